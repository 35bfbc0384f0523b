// An inference request in FasterTransformer's terms, for every transport: named tensors and parameters,
// checked and turned into turns. Any thread: reads only its arguments.
#pragma once
#include "sessions/sessions.h"
#include "ws/kserve/code.h"
#include "ws/kserve/tensor.h"

#define INFER_ROWS_MAX 256
#define INFER_BEAMS_MAX 1024 // of all rows together
#define INFER_NAME_MAX 64
#define SEQUENCE_NAME_MAX 128

// fastertransformer (token ids), ensemble (text), and the two halves of ensemble that compute nothing:
// preprocessing (text to ids) and postprocessing (ids to text).
enum infer_model { MODEL_IDS, MODEL_TEXT, MODEL_ENCODE, MODEL_DECODE, INFER_MODELS };

// infer, generate, generate_stream, and infer with an answer for each token (ModelStreamInfer).
enum infer_form { FORM_TENSORS, FORM_TEXT, FORM_STREAM, FORM_PIECES };

enum infer_output {
    OUTPUT_IDS,
    OUTPUT_SEQUENCE_LENGTH,
    OUTPUT_RESPONSE_INPUT_LENGTHS,
    OUTPUT_CUM_LOG_PROBS,
    OUTPUT_LOG_PROBS,
    OUTPUT_CONTEXT_EMBEDDINGS,
    OUTPUT_TEXT,
    OUTPUT_ENCODED, // of preprocessing, from here on
    OUTPUT_ENCODED_LEN,
    OUTPUT_BAD_WORDS,
    OUTPUT_STOP_WORDS,
    OUTPUT_OUTPUT_LEN,
    OUTPUT_DECODED, // of postprocessing
    INFER_OUTPUTS
};
// An input or output as the metadata describes it. Shapes have no batch dimension; -1: any.
struct infer_field {
    const char *name;
    enum tensor_type type;
    int n_dims;
    int64_t shape[3];
    bool optional;
    unsigned models; // bits of enum infer_model
};

struct infer_row { // of the batch: one turn
    int32_t *ids;  // (n_ids) the new input
    size_t n_ids;
    // For a later turn of a sequence: the text instead of ids, which depend on the log. NULL: none.
    char *text;
    size_t n_virtual;        // how many of ids are virtual tokens
    struct prompt *prompt;   // owned: the session's table; NULL: none
    const char *prompt_task; // the table's task, owned by the engine; NULL: the client sent it
    struct turn_sampling sampling; // max_tokens is request_output_len
};

struct infer_request {
    enum kserve_code code; // KSERVE_OK, or why it is refused; err has the sentence
    struct err err;
    enum infer_form form;
    enum infer_model model;
    char name[INFER_NAME_MAX + 1];     // of the model, as the client calls it
    const struct served_model *served; // whose engine it is for; held until the request is freed
    char *id;                          // NULL: none
    // The sequence's id: digits, or '"' and the string, so that 42 and "42" differ. "": none.
    char sequence[SEQUENCE_NAME_MAX + 2];
    bool start, end;
    bool empty_final;   // FORM_PIECES: a last answer without outputs, so that no token waits for it
    int64_t timeout_us; // 0: none
    int64_t session_len, memory_len;  // 0: not given
    struct infer_row *rows;           // (n_rows)
    size_t n_rows, width, max_output; // the longest input_ids and request_output_len
    size_t n_beams;                   // answers of each row
    bool outer_dim;                   // shapes have the pseudo batch dimension in front
    unsigned outputs;                 // to send: bits of enum infer_output
    unsigned binary;                  // those to send in raw form (HTTP)
    bool promised;                    // accepted even while the server drains
    bool answered;                    // MODEL_ENCODE, MODEL_DECODE: `answer` has the outputs
    struct tensors_out answer;
};

// A transport reads a request with these functions, in this order: new, set, then tensors or text. All but new
// may refuse it (E_INVAL, E_NOMEM): the transport then sets r->code.
//
// infer_request_new takes the caller's hold of *served. NULL: E_NOMEM, and the caller keeps the hold.
struct infer_request *infer_request_new(enum infer_form form, enum infer_model model,
                                        const char *name, const struct served_model *served);
void infer_request_free(struct infer_request *r); // NULL is fine

struct infer_value { // of a parameter
    // VALUE_NUMBER: negative or a fraction. VALUE_OTHER: a list, an object or null.
    enum { VALUE_BOOL, VALUE_INTEGER, VALUE_STRING, VALUE_NUMBER, VALUE_OTHER } kind;
    bool flag;
    uint64_t integer;
    const char *text; // (len)
    size_t len;
};
// Ignores unknown names, as Triton does. Of infer it refuses lists and objects under any name; generate
// has sampling parameters among its own, and reads and checks those elsewhere.
int infer_request_set(struct infer_request *r, const char *name, const struct infer_value *v,
                      struct err *err);
const char *infer_parameter(size_t i); // the i-th known name; NULL after the last one

struct infer_wanted {
    const char *name;
    bool binary;
};
// Reads the inputs, and which outputs are wanted (none named: the usual ones). Tensors are borrowed for the
// call.
int infer_request_tensors(struct infer_request *r, const struct tensors *inputs,
                          const struct infer_wanted *outputs, size_t n_outputs, struct err *err);
// Makes a request of one text: one row with the server's sampling parameters. Call after
// infer_request_set().
int infer_request_text(struct infer_request *r, const char *text, struct err *err);
