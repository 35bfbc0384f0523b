// An inference request in FasterTransformer's terms: read from the body, checked, and turned into
// turns. Reads nothing but its arguments: any thread.
#pragma once
#include "sessions/sessions.h"
#include "ws/kserve/tensor.h"

#define INFER_ROWS_MAX 256
#define SEQUENCE_NAME_MAX 128

// fastertransformer (token ids), ensemble (text), and the two halves of ensemble that compute nothing:
// preprocessing (text to ids) and postprocessing (ids to text).
enum infer_model { MODEL_IDS, MODEL_TEXT, MODEL_ENCODE, MODEL_DECODE, INFER_MODELS };

enum infer_form { FORM_TENSORS, FORM_TEXT, FORM_STREAM }; // infer, generate, generate_stream

enum infer_output {
    OUTPUT_IDS,
    OUTPUT_SEQUENCE_LENGTH,
    OUTPUT_RESPONSE_INPUT_LENGTHS,
    OUTPUT_CUM_LOG_PROBS,
    OUTPUT_LOG_PROBS,
    OUTPUT_TEXT,
    OUTPUT_ENCODED, // of preprocessing, from here on
    OUTPUT_ENCODED_LEN,
    OUTPUT_BAD_WORDS,
    OUTPUT_STOP_WORDS,
    OUTPUT_OUTPUT_LEN,
    OUTPUT_DECODED, // of postprocessing
    INFER_OUTPUTS
};
// What metadata says of an input or output. Shapes without the batch dimension; -1: any.
struct infer_field {
    const char *name;
    enum tensor_type type;
    int n_dims;
    int64_t shape[3];
    bool optional;
    unsigned models; // bits of enum infer_model
};
extern const struct infer_field infer_outputs[INFER_OUTPUTS];
// Input i, or NULL behind the last one.
const struct infer_field *infer_input(size_t i);

struct infer_row { // of the batch: one turn
    int32_t *ids;  // (n_ids) the new input
    size_t n_ids;
    struct turn_sampling sampling; // max_tokens is request_output_len
};

struct infer_request {
    int status; // 0, or the HTTP status that refuses it, for err
    struct err err;
    enum infer_form form;
    enum infer_model model;
    char name[65]; // the model's, as the client calls it
    char *id;      // NULL: none
    // The sequence's id: digits, or '"' and the string, so that 42 and "42" are two. "": none.
    char sequence[SEQUENCE_NAME_MAX + 2];
    bool start, end;
    int64_t timeout_us;               // 0: none
    int64_t session_len, memory_len;  // 0: not given
    struct infer_row *rows;           // (n_rows)
    size_t n_rows, width, max_output; // the longest input_ids and request_output_len
    bool outer_dim;                   // shapes have the pseudo batch dimension in front
    unsigned outputs, binary;         // bits of enum infer_output
    // Of MODEL_ENCODE and MODEL_DECODE: the body, of which the first answer_json bytes are JSON.
    struct buf answer;
    size_t answer_json;
};

// Where a request was sent to, and its body.
struct infer_source {
    enum infer_form form;
    enum infer_model model;
    const char *name;
    const char *body, *header_len; // header_len: Inference-Header-Content-Length, "": all is JSON
    size_t len, max_bytes;
};

// Never fails but for memory (NULL): a request that is refused says so in status.
struct infer_request *infer_request_read(const struct engine *e, const struct infer_source *source);
void infer_request_free(struct infer_request *r); // NULL is fine
