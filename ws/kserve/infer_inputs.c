// The table of inputs, and the functions that check and read their values. See infer_inputs.h.
#include "ws/kserve/infer_inputs.h"
#include "ws/kserve/word_lists.h"
#include <float.h>
#include <string.h>

#define REQUEST_PROMPT_EMBEDDING "request_prompt_embedding" // also FP32 and BF16
#define IDS (1u << MODEL_IDS)
#define TEXT (1u << MODEL_TEXT)
#define BOTH (IDS | TEXT)
#define ENCODE (1u << MODEL_ENCODE)
#define DECODE (1u << MODEL_DECODE)

// The index of a row's element; an input of one element is for all rows.
static size_t element(const struct infer_reading *g, size_t row) {
    return g->tensor->n == 1 ? 0 : row;
}

int infer_refuse_value(const struct infer_reading *g, const char *what, struct err *err) {
    return err_set(err, E_INVAL, "input '%s' %s", g->tensor->name, what);
}

struct infer_input;
#define SETTER(name)                                                                               \
    static int name(struct infer_reading *g, const struct infer_input *f, struct infer_row *row,   \
                    double v, struct err *err)

struct infer_input { // a row of the table below
    struct infer_field field;
    // set: called with each row's value. read: called for each row. Neither: another file reads it.
    int (*set)(struct infer_reading *g, const struct infer_input *f, struct infer_row *row,
               double v, struct err *err);
    int (*read)(struct infer_reading *g, const struct infer_input *f, size_t row, struct err *err);
    size_t at; // in struct sampling_params: what set_real, set_whole and the readers of words fill
    double min, max;   // of set_real and set_whole
    const char *range; // the refusal of a value outside
};

static void *place_of(const struct infer_input *f, struct infer_row *row) {
    return (char *)&row->sampling.params + f->at;
}

SETTER(set_real) {
    if (!(v >= f->min && v <= f->max)) return infer_refuse_value(g, f->range, err);
    *(float *)place_of(f, row) = (float)v;
    return 0;
}
SETTER(set_whole) {
    if (!(v >= f->min && v <= f->max)) return infer_refuse_value(g, f->range, err);
    *(int32_t *)place_of(f, row) = v > INT32_MAX ? INT32_MAX : (int32_t)v;
    return 0;
}
SETTER(set_output_len) {
    TRY(set_whole(g, f, row, v, err));
    if ((size_t)v > g->r->max_output) g->r->max_output = (size_t)v;
    return 0;
}
SETTER(set_top_p_reset_ids) {
    row->sampling.params.top_p_reset_ids = v > INT32_MAX ? -1 : (int32_t)v; // beyond any vocabulary
    return 0;
}
SETTER(set_session_len) {
    g->r->session_len = (int64_t)v;
    return 0;
}
SETTER(set_memory_len) {
    g->r->memory_len = (int64_t)v;
    return 0;
}
SETTER(set_log_probs) {
    g->return_log_probs = v != 0;
    return 0;
}
SETTER(set_context_log_probs) {
    g->return_context_log_probs = row->sampling.params.context_logprob = v != 0;
    return 0;
}
SETTER(set_embeddings) {
    g->return_embeddings = row->sampling.params.context_embedding = v != 0;
    return 0;
}
SETTER(set_beam_width) { // one for all rows, as outputs have one shape
    TRY(set_whole(g, f, row, v, err));
    bool first = row == g->r->rows;
    if (!first && (size_t)v != g->r->n_beams)
        return infer_refuse_value(g, "must be the same for all rows", err);
    g->r->n_beams = (size_t)v;
    if (g->r->n_beams > 1 && g->r->n_beams * g->r->n_rows > INFER_BEAMS_MAX)
        return infer_refuse_value(g, "gives more than 1024 beams in all rows", err);
    return 0;
}
SETTER(set_start_id) {
    if (!(v < engine_info(g->engine)->n_vocab))
        return infer_refuse_value(g, "is not in the vocabulary", err);
    row->sampling.params.start_id = (int32_t)v;
    return 0;
}
SETTER(ignore) {
    return 0;
}

static int read_seed(struct infer_reading *g, const struct infer_input *f, size_t row,
                     struct err *err) {
    g->r->rows[row].sampling.params.seed = tensor_u64(g->tensor, element(g, row));
    return 0;
}

static struct word_reading words_of(const struct infer_reading *g, const struct infer_input *f,
                                    size_t row) {
    return (struct word_reading){g->tensor, g->engine, row, g->r->n_rows,
                                 place_of(f, &g->r->rows[row])};
}
static int read_word_ids(struct infer_reading *g, const struct infer_input *f, size_t row,
                         struct err *err) {
    struct word_reading w = words_of(g, f, row);
    return word_lists_ids(&w, err);
}
static int read_words(struct infer_reading *g, const struct infer_input *f, size_t row,
                      struct err *err) {
    struct word_reading w = words_of(g, f, row);
    return word_lists_text(&w, err);
}

static const struct infer_input inputs[] = {
#define AT(member) .at = offsetof(struct sampling_params, member)
#define FIELD(...) .field = {__VA_ARGS__}
#define NUMBER(name, type, models, ...)                                                            \
    { FIELD(name, type, 1, {1}, true, models), __VA_ARGS__ }
#define REAL(name, member, low, high, what)                                                        \
    NUMBER(name, TENSOR_FP32, BOTH, .set = set_real, AT(member), .min = (low), .max = (high),      \
           .range = what)
#define OUTPUT_LEN                                                                                 \
    .set = set_output_len, AT(max_tokens), .min = 1, .max = INT32_MAX,                             \
    .range = "must be from 1 to 2147483647"
    {FIELD("input_ids", TENSOR_UINT32, 1, {-1}, false, IDS)},
    {FIELD("input_lengths", TENSOR_UINT32, 1, {1}, true, IDS)},
    {FIELD("request_output_len", TENSOR_UINT32, 1, {-1}, false, IDS), OUTPUT_LEN},
    {FIELD("INPUT_0", TENSOR_BYTES, 1, {-1}, false, TEXT)},
    {FIELD("INPUT_1", TENSOR_UINT32, 1, {-1}, false, TEXT), OUTPUT_LEN},
    {FIELD("INPUT_2", TENSOR_BYTES, 1, {-1}, true, TEXT), .read = read_words, AT(bad_words)},
    {FIELD("INPUT_3", TENSOR_BYTES, 1, {-1}, true, TEXT), .read = read_words, AT(stop)},
    {FIELD("QUERY", TENSOR_BYTES, 1, {-1}, false, ENCODE)}, // read by text_models.c
    {FIELD("BAD_WORDS_DICT", TENSOR_BYTES, 1, {-1}, true, ENCODE)},
    {FIELD("STOP_WORDS_DICT", TENSOR_BYTES, 1, {-1}, true, ENCODE)},
    {FIELD("REQUEST_OUTPUT_LEN", TENSOR_UINT32, 1, {-1}, true, ENCODE)},
    {FIELD("TOKENS_BATCH", TENSOR_UINT32, 2, {-1, -1}, false, DECODE)},
    {FIELD("RESPONSE_INPUT_LENGTHS", TENSOR_INT32, 1, {-1}, true, DECODE)},
    NUMBER("runtime_top_k", TENSOR_UINT32, BOTH, .set = set_whole, AT(top_k), .max = UINT32_MAX),
    REAL("runtime_top_p", top_p, 0, 1, "must be from 0 to 1"),
    REAL("temperature", temperature, 0, 100, "must be from 0 to 100"),
    REAL("repetition_penalty", repetition_penalty, 0.01, 100, "must be from 0.01 to 100"),
    REAL("presence_penalty", presence_penalty, -100, 100, "must be from -100 to 100"),
    NUMBER("min_length", TENSOR_INT32, BOTH, .set = set_whole, AT(min_tokens), .max = INT32_MAX,
           .range = "must not be negative"),
    {FIELD("random_seed", TENSOR_UINT64, 1, {1}, true, BOTH), .read = read_seed},
    {FIELD("bad_words_list", TENSOR_INT32, 2, {2, -1}, true, IDS), .read = read_word_ids,
     AT(bad_words)},
    {FIELD("stop_words_list", TENSOR_INT32, 2, {2, -1}, true, IDS), .read = read_word_ids,
     AT(stop)},
    NUMBER("session_len", TENSOR_UINT32, BOTH, .set = set_session_len),
    NUMBER("memory_len", TENSOR_UINT32, BOTH, .set = set_memory_len),
    NUMBER("is_return_log_probs", TENSOR_BOOL, BOTH, .set = set_log_probs),
    NUMBER("start_id", TENSOR_UINT32, BOTH, .set = set_start_id),
    NUMBER("end_id", TENSOR_UINT32, BOTH, .set = set_whole, AT(end_id), .max = UINT32_MAX),
    NUMBER("beam_width", TENSOR_UINT32, BOTH, .set = set_beam_width, AT(beam_width), .min = 1,
           .max = BEAMS_MAX, .range = "must be from 1 to 64"),
    REAL("len_penalty", len_penalty, -10, 10, "must be from -10 to 10"),
    REAL("beam_search_diversity_rate", beam_search_diversity_rate, -100, 100,
         "must be from -100 to 100"),
    REAL("top_p_decay", top_p_decay, DBL_MIN, 1, "must be above 0 and at most 1"),
    REAL("top_p_min", top_p_min, DBL_MIN, 1, "must be above 0 and at most 1"),
    NUMBER("top_p_reset_ids", TENSOR_UINT32, BOTH, .set = set_top_p_reset_ids),
    NUMBER("is_return_context_cum_log_probs", TENSOR_BOOL, BOTH, .set = set_context_log_probs),
    NUMBER("is_return_context_embeddings", TENSOR_BOOL, BOTH, .set = set_embeddings),
    // Read by prompt_inputs.c.
    NUMBER("prompt_learning_task_name_ids", TENSOR_UINT32, BOTH, .set = NULL),
    NUMBER("request_prompt_type", TENSOR_UINT32, BOTH, .set = NULL),
    NUMBER("request_prompt_lengths", TENSOR_UINT32, BOTH, .set = NULL),
    {FIELD(REQUEST_PROMPT_EMBEDDING, TENSOR_FP16, 2, {-1, -1}, true, BOTH)},
    NUMBER("START", TENSOR_INT32, BOTH, .set = ignore), // the request's parameters have this effect
    NUMBER("END", TENSOR_INT32, BOTH, .set = ignore),
#undef OUTPUT_LEN
#undef REAL
#undef FIELD
#undef NUMBER
#undef AT
};
enum { N_INPUTS = sizeof inputs / sizeof *inputs };

const struct infer_field *infer_input(size_t i) {
    return i < N_INPUTS ? &inputs[i].field : NULL;
}

static const struct infer_input *find_input(const char *name, enum infer_model model) {
    for (int i = 0; i < N_INPUTS; i++)
        if (inputs[i].field.models & 1u << model && strcmp(inputs[i].field.name, name) == 0)
            return &inputs[i];
    return NULL;
}

// FasterTransformer's tools send some inputs in other types than their configurations name.
static bool takes_type(const struct infer_field *f, enum tensor_type type) {
    if (f->type == type) return true;
    if (strcmp(f->name, REQUEST_PROMPT_EMBEDDING) == 0)
        return type == TENSOR_FP32 || type == TENSOR_BF16;
    return strcmp(f->name, "random_seed") == 0 &&
           (type == TENSOR_INT32 || type == TENSOR_UINT32 || type == TENSOR_INT64);
}

int infer_inputs_check(const struct infer_request *r, const struct tensors *all, struct err *err) {
    for (size_t i = 0; i < all->n; i++) {
        const struct tensor *t = &all->list[i];
        const struct infer_input *f = find_input(t->name, r->model);
        if (!f)
            return err_set(err, E_INVAL, "unexpected inference input '%s' for model '%s'", t->name,
                           r->name);
        if (!takes_type(&f->field, t->type))
            return err_set(
                err, E_INVAL, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                t->name, tensor_type_name(t->type), r->name, tensor_type_name(f->field.type));
    }
    for (int i = 0; i < N_INPUTS; i++) {
        const struct infer_field *f = &inputs[i].field;
        if (f->models & 1u << r->model && !f->optional && !tensors_find(all, f->name))
            return err_set(err, E_INVAL, "inference input '%s' is missing for model '%s'", f->name,
                           r->name);
    }
    return 0;
}

static int read_input(struct infer_reading *g, const struct infer_input *f, struct err *err) {
    struct infer_request *r = g->r;
    if (!f->set && !f->read) return 0;
    bool is_list = f->field.n_dims > 1;
    if (!is_list && g->tensor->n != 1 && g->tensor->n != r->n_rows)
        return infer_refuse_value(g, "must have one element, or one for each row", err);
    for (size_t row = 0; row < r->n_rows; row++)
        TRY(f->set ? f->set(g, f, &r->rows[row], tensor_number(g->tensor, element(g, row)), err)
                   : f->read(g, f, row, err));
    return 0;
}

int infer_inputs_read(struct infer_reading *g, const struct tensors *all, struct err *err) {
    for (size_t i = 0; i < all->n; i++) {
        g->tensor = &all->list[i];
        TRY(read_input(g, find_input(g->tensor->name, g->r->model), err));
    }
    return 0;
}
