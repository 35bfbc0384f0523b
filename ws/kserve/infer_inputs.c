// The table of inputs, and the functions that check and read their values. See infer_inputs.h.
#include "ws/kserve/infer_inputs.h"
#include "ws/kserve/word_lists.h"
#include <math.h>
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

#define SETTER(name)                                                                               \
    static int name(struct infer_reading *g, struct infer_row *row, double v, struct err *err)
#define IN_RANGE(low, high, what)                                                                  \
    if (!(v >= (low) && v <= (high))) return infer_refuse_value(g, what, err)

SETTER(set_output_len) {
    IN_RANGE(1, INT32_MAX, "must be from 1 to 2147483647");
    row->sampling.params.max_tokens = (int32_t)v;
    if ((size_t)v > g->r->max_output) g->r->max_output = (size_t)v;
    return 0;
}
SETTER(set_top_k) {
    row->sampling.params.top_k = v > INT32_MAX ? INT32_MAX : (int32_t)v;
    return 0;
}
SETTER(set_top_p) {
    IN_RANGE(0, 1, "must be from 0 to 1");
    row->sampling.params.top_p = (float)v;
    return 0;
}
SETTER(set_top_p_decay) {
    if (!(v > 0 && v <= 1)) return infer_refuse_value(g, "must be above 0 and at most 1", err);
    row->sampling.params.top_p_decay = (float)v;
    return 0;
}
SETTER(set_top_p_min) {
    if (!(v > 0 && v <= 1)) return infer_refuse_value(g, "must be above 0 and at most 1", err);
    row->sampling.params.top_p_min = (float)v;
    return 0;
}
SETTER(set_top_p_reset_ids) {
    row->sampling.params.top_p_reset_ids = v > INT32_MAX ? -1 : (int32_t)v; // beyond any vocabulary
    return 0;
}
SETTER(set_temperature) {
    IN_RANGE(0, 100, "must be from 0 to 100");
    row->sampling.params.temperature = (float)v;
    return 0;
}
SETTER(set_repetition_penalty) {
    IN_RANGE(0.01, 100, "must be from 0.01 to 100");
    row->sampling.params.repetition_penalty = (float)v;
    return 0;
}
SETTER(set_presence_penalty) {
    IN_RANGE(-100, 100, "must be from -100 to 100");
    row->sampling.params.presence_penalty = (float)v;
    return 0;
}
SETTER(set_min_length) {
    IN_RANGE(0, INT32_MAX, "must not be negative");
    row->sampling.params.min_tokens = (int32_t)v;
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
    IN_RANGE(1, BEAMS_MAX, "must be from 1 to 64");
    bool first = row == g->r->rows;
    if (!first && (size_t)v != g->r->n_beams)
        return infer_refuse_value(g, "must be the same for all rows", err);
    g->r->n_beams = (size_t)v;
    if (g->r->n_beams > 1 && g->r->n_beams * g->r->n_rows > INFER_BEAMS_MAX)
        return infer_refuse_value(g, "gives more than 1024 beams in all rows", err);
    row->sampling.params.beam_width = (int32_t)v;
    return 0;
}
SETTER(set_len_penalty) {
    IN_RANGE(-10, 10, "must be from -10 to 10");
    row->sampling.params.len_penalty = (float)v;
    return 0;
}
SETTER(set_diversity) {
    IN_RANGE(-100, 100, "must be from -100 to 100");
    row->sampling.params.beam_search_diversity_rate = (float)v;
    return 0;
}
SETTER(set_end_id) {
    row->sampling.params.end_id = v > INT32_MAX ? INT32_MAX : (int32_t)v;
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

static int read_seed(struct infer_reading *g, size_t row, struct err *err) {
    g->r->rows[row].sampling.params.seed = tensor_u64(g->tensor, element(g, row));
    return 0;
}

static struct word_reading words_of(const struct infer_reading *g, size_t row) {
    return (struct word_reading){g->tensor, g->engine, row, g->r->n_rows,
                                 &g->r->rows[row].sampling.params};
}
static int read_bad_ids(struct infer_reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_bad_ids(&w, err);
}
static int read_stop_ids(struct infer_reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_stop_ids(&w, err);
}
static int read_bad_words(struct infer_reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_bad_text(&w, err);
}
static int read_stop_words(struct infer_reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_stop_text(&w, err);
}

// set: called with each row's value. read: called for each row. Neither: another file reads it.
static const struct infer_input {
    struct infer_field field;
    int (*set)(struct infer_reading *g, struct infer_row *row, double v, struct err *err);
    int (*read)(struct infer_reading *g, size_t row, struct err *err);
} inputs[] = {
#define NUMBER(name, type, models, set)                                                            \
    { {name, type, 1, {1}, true, models}, set, NULL }
    {{"input_ids", TENSOR_UINT32, 1, {-1}, false, IDS}, NULL, NULL},
    {{"input_lengths", TENSOR_UINT32, 1, {1}, true, IDS}, NULL, NULL},
    {{"request_output_len", TENSOR_UINT32, 1, {-1}, false, IDS}, set_output_len, NULL},
    {{"INPUT_0", TENSOR_BYTES, 1, {-1}, false, TEXT}, NULL, NULL},
    {{"INPUT_1", TENSOR_UINT32, 1, {-1}, false, TEXT}, set_output_len, NULL},
    {{"INPUT_2", TENSOR_BYTES, 1, {-1}, true, TEXT}, NULL, read_bad_words},
    {{"INPUT_3", TENSOR_BYTES, 1, {-1}, true, TEXT}, NULL, read_stop_words},
    {{"QUERY", TENSOR_BYTES, 1, {-1}, false, ENCODE}, NULL, NULL}, // read by text_models.c
    {{"BAD_WORDS_DICT", TENSOR_BYTES, 1, {-1}, true, ENCODE}, NULL, NULL},
    {{"STOP_WORDS_DICT", TENSOR_BYTES, 1, {-1}, true, ENCODE}, NULL, NULL},
    {{"REQUEST_OUTPUT_LEN", TENSOR_UINT32, 1, {-1}, true, ENCODE}, NULL, NULL},
    {{"TOKENS_BATCH", TENSOR_UINT32, 2, {-1, -1}, false, DECODE}, NULL, NULL},
    {{"RESPONSE_INPUT_LENGTHS", TENSOR_INT32, 1, {-1}, true, DECODE}, NULL, NULL},
    NUMBER("runtime_top_k", TENSOR_UINT32, BOTH, set_top_k),
    NUMBER("runtime_top_p", TENSOR_FP32, BOTH, set_top_p),
    NUMBER("temperature", TENSOR_FP32, BOTH, set_temperature),
    NUMBER("repetition_penalty", TENSOR_FP32, BOTH, set_repetition_penalty),
    NUMBER("presence_penalty", TENSOR_FP32, BOTH, set_presence_penalty),
    NUMBER("min_length", TENSOR_INT32, BOTH, set_min_length),
    {{"random_seed", TENSOR_UINT64, 1, {1}, true, BOTH}, NULL, read_seed},
    {{"bad_words_list", TENSOR_INT32, 2, {2, -1}, true, IDS}, NULL, read_bad_ids},
    {{"stop_words_list", TENSOR_INT32, 2, {2, -1}, true, IDS}, NULL, read_stop_ids},
    NUMBER("session_len", TENSOR_UINT32, BOTH, set_session_len),
    NUMBER("memory_len", TENSOR_UINT32, BOTH, set_memory_len),
    NUMBER("is_return_log_probs", TENSOR_BOOL, BOTH, set_log_probs),
    NUMBER("start_id", TENSOR_UINT32, BOTH, set_start_id),
    NUMBER("end_id", TENSOR_UINT32, BOTH, set_end_id),
    NUMBER("beam_width", TENSOR_UINT32, BOTH, set_beam_width),
    NUMBER("len_penalty", TENSOR_FP32, BOTH, set_len_penalty),
    NUMBER("beam_search_diversity_rate", TENSOR_FP32, BOTH, set_diversity),
    NUMBER("top_p_decay", TENSOR_FP32, BOTH, set_top_p_decay),
    NUMBER("top_p_min", TENSOR_FP32, BOTH, set_top_p_min),
    NUMBER("top_p_reset_ids", TENSOR_UINT32, BOTH, set_top_p_reset_ids),
    NUMBER("is_return_context_cum_log_probs", TENSOR_BOOL, BOTH, set_context_log_probs),
    NUMBER("is_return_context_embeddings", TENSOR_BOOL, BOTH, set_embeddings),
    // Read by prompt_inputs.c.
    NUMBER("prompt_learning_task_name_ids", TENSOR_UINT32, BOTH, NULL),
    NUMBER("request_prompt_type", TENSOR_UINT32, BOTH, NULL),
    NUMBER("request_prompt_lengths", TENSOR_UINT32, BOTH, NULL),
    {{REQUEST_PROMPT_EMBEDDING, TENSOR_FP16, 2, {-1, -1}, true, BOTH}, NULL, NULL},
    NUMBER("START", TENSOR_INT32, BOTH, ignore), // the request's parameters have this effect
    NUMBER("END", TENSOR_INT32, BOTH, ignore),
#undef NUMBER
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
        TRY(f->set ? f->set(g, &r->rows[row], tensor_number(g->tensor, element(g, row)), err)
                   : f->read(g, row, err));
    return 0;
}

int infer_inputs_read(struct infer_reading *g, const struct tensors *all, struct err *err) {
    for (size_t i = 0; i < all->n; i++) {
        g->tensor = &all->list[i];
        TRY(read_input(g, find_input(g->tensor->name, g->r->model), err));
    }
    return 0;
}
