// Reading inference requests. See infer_request.h.
#include "ws/kserve/infer_request.h"
#include "base/json_raw.h"
#include "ws/kserve/text_models.h"
#include "ws/kserve/word_lists.h"
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDS (1u << MODEL_IDS)
#define TEXT (1u << MODEL_TEXT)
#define BOTH (IDS | TEXT)
#define ENCODE (1u << MODEL_ENCODE)
#define DECODE (1u << MODEL_DECODE)

const struct infer_field infer_outputs[INFER_OUTPUTS] = {
    [OUTPUT_IDS] = {"output_ids", TENSOR_UINT32, 2, {-1, -1}, false, IDS},
    [OUTPUT_SEQUENCE_LENGTH] = {"sequence_length", TENSOR_UINT32, 1, {-1}, false, BOTH},
    [OUTPUT_RESPONSE_INPUT_LENGTHS] = {"response_input_lengths", TENSOR_INT32, 1, {-1}, false, IDS},
    [OUTPUT_CUM_LOG_PROBS] = {"cum_log_probs", TENSOR_FP32, 1, {-1}, false, BOTH},
    [OUTPUT_LOG_PROBS] = {"output_log_probs", TENSOR_FP32, 2, {-1, -1}, false, BOTH},
    [OUTPUT_TEXT] = {"OUTPUT_0", TENSOR_BYTES, 1, {-1}, false, TEXT},
    [OUTPUT_ENCODED] = {"INPUT_ID", TENSOR_UINT32, 1, {-1}, false, ENCODE},
    [OUTPUT_ENCODED_LEN] = {"REQUEST_INPUT_LEN", TENSOR_UINT32, 1, {1}, false, ENCODE},
    [OUTPUT_BAD_WORDS] = {"BAD_WORDS_IDS", TENSOR_INT32, 2, {2, -1}, false, ENCODE},
    [OUTPUT_STOP_WORDS] = {"STOP_WORDS_IDS", TENSOR_INT32, 2, {2, -1}, false, ENCODE},
    [OUTPUT_OUTPUT_LEN] = {"REQUEST_OUTPUT_LEN", TENSOR_UINT32, 1, {-1}, false, ENCODE},
    [OUTPUT_DECODED] = {"OUTPUT", TENSOR_BYTES, 1, {-1}, false, DECODE},
};

// --- inputs ---

struct reading {
    struct infer_request *r;
    const struct engine *engine;
    const struct tensor *tensor; // the input that is read
    bool return_log_probs;
};

// Element of a row's; an input of one element is for all rows.
static size_t element(const struct reading *g, size_t row) {
    return g->tensor->n == 1 ? 0 : row;
}

static int refuse_value(const struct reading *g, const char *what, struct err *err) {
    return err_set(err, E_INVAL, "input '%s' %s", g->tensor->name, what);
}

#define SETTER(name)                                                                               \
    static int name(struct reading *g, struct infer_row *row, double v, struct err *err)
#define FINITE(low, high, what)                                                                    \
    if (!(v >= (low) && v <= (high))) return refuse_value(g, what, err)

SETTER(set_output_len) {
    FINITE(1, INT32_MAX, "must be from 1 to 2147483647");
    row->sampling.params.max_tokens = (int32_t)v;
    if ((size_t)v > g->r->max_output) g->r->max_output = (size_t)v;
    return 0;
}
SETTER(set_top_k) {
    row->sampling.params.top_k = v > INT32_MAX ? INT32_MAX : (int32_t)v;
    return 0;
}
SETTER(set_top_p) {
    FINITE(0, INFINITY, "must not be negative");
    row->sampling.params.top_p = v > 1 ? 1 : (float)v;
    return 0;
}
SETTER(set_temperature) {
    FINITE(0, 100, "must be from 0 to 100");
    row->sampling.params.temperature = (float)v;
    return 0;
}
SETTER(set_repetition_penalty) {
    FINITE(0.01, 100, "must be from 0.01 to 100");
    row->sampling.params.repetition_penalty = (float)v;
    return 0;
}
SETTER(set_presence_penalty) {
    FINITE(-100, 100, "must be from -100 to 100");
    row->sampling.params.presence_penalty = (float)v;
    return 0;
}
SETTER(set_min_length) {
    FINITE(0, INT32_MAX, "must not be negative");
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
SETTER(need_one) {
    return v == 1 ? 0 : refuse_value(g, "must be 1: it is not served otherwise", err);
}
SETTER(need_zero) {
    return v == 0 ? 0 : refuse_value(g, "must be 0: it is not served otherwise", err);
}
SETTER(set_end_id) {
    row->sampling.params.end_id = v > INT32_MAX ? INT32_MAX : (int32_t)v;
    return 0;
}
SETTER(need_nothing) { // it has a meaning for beams or for an empty input only
    return 0;
}

static int read_seed(struct reading *g, size_t row, struct err *err) {
    g->r->rows[row].sampling.params.seed = tensor_u64(g->tensor, element(g, row));
    return 0;
}

static struct word_reading words_of(const struct reading *g, size_t row) {
    return (struct word_reading){g->tensor, g->engine, row, g->r->n_rows,
                                 &g->r->rows[row].sampling.params};
}
static int read_bad_ids(struct reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_bad_ids(&w, err);
}
static int read_stop_ids(struct reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_stop_ids(&w, err);
}
static int read_bad_words(struct reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_bad_text(&w, err);
}
static int read_stop_words(struct reading *g, size_t row, struct err *err) {
    struct word_reading w = words_of(g, row);
    return word_lists_stop_text(&w, err);
}

// set: called with each row's number. read: called for each row. Neither: read_rows() reads it.
static const struct input_field {
    struct infer_field field;
    int (*set)(struct reading *g, struct infer_row *row, double v, struct err *err);
    int (*read)(struct reading *g, size_t row, struct err *err);
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
    NUMBER("start_id", TENSOR_UINT32, BOTH, need_nothing),
    NUMBER("end_id", TENSOR_UINT32, BOTH, set_end_id),
    NUMBER("beam_width", TENSOR_UINT32, BOTH, need_one),
    NUMBER("len_penalty", TENSOR_FP32, BOTH, need_nothing),
    NUMBER("beam_search_diversity_rate", TENSOR_FP32, BOTH, need_nothing),
    NUMBER("top_p_decay", TENSOR_FP32, BOTH, need_one),
    NUMBER("top_p_min", TENSOR_FP32, BOTH, need_nothing),
    NUMBER("top_p_reset_ids", TENSOR_UINT32, BOTH, need_nothing),
    NUMBER("is_return_context_cum_log_probs", TENSOR_BOOL, BOTH, need_zero),
    NUMBER("is_return_context_embeddings", TENSOR_BOOL, BOTH, need_zero),
    NUMBER("request_prompt_type", TENSOR_UINT32, BOTH, need_zero),
    NUMBER("START", TENSOR_INT32, BOTH, need_nothing), // the request's parameters say it
    NUMBER("END", TENSOR_INT32, BOTH, need_nothing),
#undef NUMBER
};
enum { N_INPUTS = sizeof inputs / sizeof *inputs };

const struct infer_field *infer_input(size_t i) {
    return i < N_INPUTS ? &inputs[i].field : NULL;
}

static const struct input_field *find_input(const char *name, enum infer_model model) {
    for (int i = 0; i < N_INPUTS; i++)
        if (inputs[i].field.models & 1u << model && strcmp(inputs[i].field.name, name) == 0)
            return &inputs[i];
    return NULL;
}

// --- rows ---

static int no_memory(struct infer_request *r) {
    r->status = 503;
    return err_set(&r->err, E_NOMEM, "the server is out of memory");
}

static void row_init(struct infer_row *row) {
    struct sampling_params *p = &row->sampling.params;
    turn_sampling_init(&row->sampling);
    // FasterTransformer's defaults: no filter means greedy, no seed means 0.
    p->top_p = 0;
    p->has_seed = true;
    row->sampling.set = (uint32_t)(((uint64_t)1 << n_sampling_rows) - 1);
}

static void row_settle(struct infer_row *row) {
    struct sampling_params *p = &row->sampling.params;
    if (p->top_k == 0 && p->top_p == 0) p->top_k = 1;
    if (p->top_p == 0) p->top_p = 1;
}

// input_ids is [rows, width], INPUT_0 [rows, 1]; FasterTransformer's interactive models put a 1 before.
static int count_rows(struct reading *g, const struct tensor *t, int n_dims, struct err *err) {
    struct infer_request *r = g->r;
    r->outer_dim = t->n_dims == n_dims + 1;
    const int64_t *shape = t->shape + r->outer_dim;
    g->tensor = t;
    if (t->n_dims != n_dims + r->outer_dim || (r->outer_dim && t->shape[0] != 1))
        return refuse_value(g, "must have the shape [rows, n] or [1, rows, n]", err);
    if (shape[0] < 1 || shape[0] > INFER_ROWS_MAX)
        return err_set(err, E_INVAL, "input '%s' must have from 1 to %d rows", t->name,
                       INFER_ROWS_MAX);
    r->rows = calloc((size_t)shape[0], sizeof *r->rows);
    if (!r->rows) return no_memory(r);
    r->n_rows = (size_t)shape[0];
    r->width = (size_t)shape[1];
    for (size_t i = 0; i < r->n_rows; i++) row_init(&r->rows[i]);
    return 0;
}

static int read_ids(struct reading *g, const struct tensors *all, struct err *err) {
    struct infer_request *r = g->r;
    const struct tensor *ids = tensors_find(all, "input_ids");
    const struct tensor *lengths = tensors_find(all, "input_lengths");
    TRY(count_rows(g, ids, 2, err));
    if (lengths && lengths->n != r->n_rows) {
        g->tensor = lengths;
        return refuse_value(g, "must have one element for each row", err);
    }
    for (size_t row = 0; row < r->n_rows; row++) {
        double n = lengths ? tensor_number(lengths, row) : (double)r->width;
        if (n < 1 || n > (double)r->width)
            return err_set(err, E_INVAL, "input 'input_lengths' must be from 1 to %zu", r->width);
        struct infer_row *out = &r->rows[row];
        out->ids = malloc((size_t)n * sizeof *out->ids);
        if (!out->ids) return no_memory(r);
        for (out->n_ids = 0; out->n_ids < (size_t)n; out->n_ids++) {
            double id = tensor_number(ids, row * r->width + out->n_ids);
            if (id >= engine_info(g->engine)->n_vocab)
                return err_set(err, E_INVAL, "input 'input_ids' has an id outside the vocabulary");
            out->ids[out->n_ids] = (int32_t)id;
        }
    }
    return 0;
}

static int read_texts(struct reading *g, const struct tensors *all, struct err *err) {
    struct infer_request *r = g->r;
    const struct tensor *texts = tensors_find(all, "INPUT_0");
    struct token_list ids;
    TRY(count_rows(g, texts, 2, err));
    if (r->width != 1) return refuse_value(g, "must have one text for each row", err);
    for (size_t row = 0; row < r->n_rows; row++) {
        struct infer_row *out = &r->rows[row];
        token_list_init(&ids);
        int rc = engine_tokenize(g->engine, texts->texts[row].bytes, texts->texts[row].len, true,
                                 &ids, err);
        if (rc == 0) out->ids = token_list_take(&ids, &out->n_ids);
        token_list_release(&ids);
        TRY(rc);
        if (out->n_ids == 0) return refuse_value(g, "has an empty text", err);
        if (out->n_ids > r->width) r->width = out->n_ids;
    }
    return 0;
}

static int check_inputs(const struct reading *g, const struct tensors *all, const char *name,
                        struct err *err) {
    enum infer_model model = g->r->model;
    for (size_t i = 0; i < all->n; i++) {
        const struct tensor *t = &all->list[i];
        const struct input_field *f = find_input(t->name, model);
        if (!f)
            return err_set(err, E_INVAL, "unexpected inference input '%s' for model '%s'", t->name,
                           name);
        if (f->field.type != t->type)
            return err_set(
                err, E_INVAL, "inference input '%s' data-type is '%s', but model '%s' expects '%s'",
                t->name, tensor_type_name(t->type), name, tensor_type_name(f->field.type));
    }
    for (int i = 0; i < N_INPUTS; i++) {
        const struct infer_field *f = &inputs[i].field;
        if (f->models & 1u << model && !f->optional && !tensors_find(all, f->name))
            return err_set(err, E_INVAL, "inference input '%s' is missing for model '%s'", f->name,
                           name);
    }
    return 0;
}

static int read_input(struct reading *g, const struct input_field *f, struct err *err) {
    struct infer_request *r = g->r;
    if (!f->set && !f->read) return 0;
    bool is_list = f->field.n_dims > 1;
    if (!is_list && g->tensor->n != 1 && g->tensor->n != r->n_rows)
        return refuse_value(g, "must have one element, or one for each row", err);
    for (size_t row = 0; row < r->n_rows; row++)
        TRY(f->set ? f->set(g, &r->rows[row], tensor_number(g->tensor, element(g, row)), err)
                   : f->read(g, row, err));
    return 0;
}

static int read_inputs(struct reading *g, const struct tensors *all, const char *name,
                       struct err *err) {
    TRY(check_inputs(g, all, name, err));
    if (g->r->model > MODEL_TEXT) return 0;
    TRY(g->r->model == MODEL_IDS ? read_ids(g, all, err) : read_texts(g, all, err));
    for (size_t i = 0; i < all->n; i++) {
        g->tensor = &all->list[i];
        TRY(read_input(g, find_input(g->tensor->name, g->r->model), err));
    }
    for (size_t i = 0; i < g->r->n_rows; i++) row_settle(&g->r->rows[i]);
    return 0;
}

// --- outputs and parameters ---

static int read_outputs(struct reading *g, const cJSON *json, const char *name, struct err *err) {
    struct infer_request *r = g->r;
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(json, "outputs"), *wanted;
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(json, "parameters");
    bool all_binary = false;
    TRY(json_get_bool(parameters, "binary_data_output", &all_binary, err));
    unsigned log_probs = 1u << OUTPUT_CUM_LOG_PROBS | 1u << OUTPUT_LOG_PROBS;
    for (int i = 0; i < INFER_OUTPUTS; i++)
        if (cJSON_GetArraySize(list) == 0 && infer_outputs[i].models & 1u << r->model &&
            (g->return_log_probs || !(log_probs & 1u << i)))
            r->outputs |= 1u << i;
    if (all_binary) r->binary = UINT_MAX;
    cJSON_ArrayForEach(wanted, list) {
        const char *output = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(wanted, "name"));
        int i = 0;
        bool binary = all_binary;
        while (i < INFER_OUTPUTS && (!output || strcmp(infer_outputs[i].name, output) != 0 ||
                                     !(infer_outputs[i].models & 1u << r->model)))
            i++;
        if (i == INFER_OUTPUTS)
            return err_set(err, E_INVAL, "unexpected inference output '%.64s' for model '%s'",
                           output ? output : "", name);
        TRY(json_get_bool(cJSON_GetObjectItemCaseSensitive(wanted, "parameters"), "binary_data",
                          &binary, err));
        r->outputs |= 1u << i;
        r->binary = binary ? r->binary | 1u << i : r->binary & ~(1u << i);
    }
    if (r->outputs & log_probs)
        for (size_t i = 0; i < r->n_rows; i++) r->rows[i].sampling.params.logprobs = true;
    return 0;
}

// The id as it was written: a 64-bit number is not exact as a double.
static int read_sequence(struct infer_request *r, const char *text, struct err *err) {
    size_t len;
    const char *parameters = json_raw_value(text, "parameters", &len);
    const char *id = parameters ? json_raw_value(parameters, "sequence_id", &len) : NULL;
    if (!id || (len == 1 && *id == '0') || (len == 2 && *id == '"')) return 0;
    bool is_string = *id == '"';
    if (is_string) len--; // its last quote
    if (!is_string && strspn(id, "0123456789") != len)
        return err_set(err, E_INVAL, "sequence_id must be an unsigned integer or a string");
    if (len > SEQUENCE_NAME_MAX)
        return err_set(err, E_INVAL, "sequence_id has more than %d bytes", SEQUENCE_NAME_MAX);
    memcpy(r->sequence, id, len);
    return 0;
}

static int read_parameters(struct infer_request *r, const cJSON *json, const char *text,
                           struct err *err) {
    const cJSON *parameters, *p;
    const char *id = NULL;
    TRY(json_get_string(json, "id", &id, err));
    if (id && !(r->id = strdup(id))) return no_memory(r);
    int rc = json_get_object(json, "parameters", &parameters, err);
    if (rc != JSON_PRESENT) return rc;
    cJSON_ArrayForEach(p, parameters) if (strncmp(p->string, "triton_", 7) == 0) return err_set(
        err, E_INVAL,
        "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
        "specified.");
    TRY(json_get_bool(parameters, "sequence_start", &r->start, err));
    TRY(json_get_bool(parameters, "sequence_end", &r->end, err));
    TRY(json_get_int(parameters, "timeout", 0, INT64_C(1) << 52, &r->timeout_us, err));
    return read_sequence(r, text, err);
}

// --- the whole ---

// {"text_input":"...","parameters":{...}}: parameters have the names of parley.v1; other members of
// the request are taken as parameters too.
static int read_generate(struct reading *g, const cJSON *json, struct err *err) {
    struct infer_request *r = g->r;
    struct token_list ids;
    const char *text = NULL;
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(json, "parameters");
    int32_t n_vocab = engine_info(g->engine)->n_vocab;
    TRY(json_get_string(json, "text_input", &text, err));
    if (!text || !*text) return err_set(err, E_INVAL, "text_input is missing or empty");
    r->rows = calloc(1, sizeof *r->rows);
    if (!r->rows) return no_memory(r);
    r->n_rows = 1;
    turn_sampling_init(&r->rows->sampling);
    TRY(sampling_json_read(&r->rows->sampling, json, n_vocab, err));
    if (cJSON_IsObject(parameters))
        TRY(sampling_json_read(&r->rows->sampling, parameters, n_vocab, err));
    token_list_init(&ids);
    int rc = engine_tokenize(g->engine, text, strlen(text), true, &ids, err);
    if (rc == 0) r->rows->ids = token_list_take(&ids, &r->rows->n_ids);
    token_list_release(&ids);
    return rc;
}

static int split_body(const struct infer_source *source, size_t *json_len, struct err *err) {
    const char *text = source->header_len;
    char *end = NULL;
    *json_len = source->len;
    if (!*text) return 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > source->len)
        return err_set(err, E_INVAL,
                       "Inference-Header-Content-Length must be a number of at most %zu",
                       source->len);
    *json_len = (size_t)n;
    return 0;
}

static int read_json(struct reading *g, const struct infer_source *source, const cJSON *json,
                     size_t json_len, struct err *err) {
    struct tensors tensors = {0};
    if (!cJSON_IsObject(json)) return err_set(err, E_INVAL, "the request must be a JSON object");
    TRY(read_parameters(g->r, json, source->body, err));
    if (source->form != FORM_TENSORS) return read_generate(g, json, err);
    int rc = tensors_read(&tensors, json, source->body + json_len, source->len - json_len, err);
    if (rc == 0) rc = read_inputs(g, &tensors, source->name, err);
    if (rc == 0) rc = read_outputs(g, json, source->name, err);
    if (rc == 0 && source->model > MODEL_TEXT) rc = text_model_run(g->r, g->engine, &tensors, err);
    tensors_release(&tensors);
    return rc;
}

static int read_all(struct infer_request *r, const struct engine *e,
                    const struct infer_source *source) {
    struct json_limits limits = json_limits_message;
    struct reading g = {.r = r, .engine = e};
    size_t json_len;
    limits.max_bytes = source->max_bytes;
    TRY(split_body(source, &json_len, &r->err));
    cJSON *json = json_parse(source->body, json_len, &limits, &r->err);
    if (!json) return r->err.code;
    int rc = read_json(&g, source, json, json_len, &r->err);
    cJSON_Delete(json);
    return rc;
}

struct infer_request *infer_request_read(const struct engine *e,
                                         const struct infer_source *source) {
    struct infer_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    buf_init(&r->answer, 0);
    r->form = source->form;
    r->model = source->model;
    snprintf(r->name, sizeof r->name, "%s", source->name);
    int rc = read_all(r, e, source);
    if (rc < 0 && !r->status) r->status = rc == E_NOMEM ? 503 : 400;
    return r;
}

void infer_request_free(struct infer_request *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n_rows; i++) free(r->rows[i].ids);
    free(r->rows);
    free(r->id);
    buf_release(&r->answer);
    free(r);
}
