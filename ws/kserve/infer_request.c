// Reading inference requests. See infer_request.h.
#include "ws/kserve/infer_request.h"
#include "ws/kserve/infer_inputs.h"
#include "ws/kserve/infer_outputs.h"
#include "ws/kserve/prompt_inputs.h"
#include "ws/kserve/text_models.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- rows ---

static void row_init(struct infer_row *row) {
    struct sampling_params *p = &row->sampling.params;
    turn_sampling_init(&row->sampling);
    // FasterTransformer's defaults: no filter means greedy, no seed means 0, beams of any length.
    p->top_p = 0;
    p->len_penalty = 0;
    p->has_seed = true;
    row->sampling.set =
        (((uint64_t)1 << n_sampling_rows) - 1) & ~sampling_rows_of(SAMPLING_GRAMMAR);
}

static void row_settle(struct infer_row *row) {
    struct sampling_params *p = &row->sampling.params;
    if (p->top_k == 0 && p->top_p == 0) p->top_k = 1;
    if (p->top_p == 0) p->top_p = 1;
    if (p->top_k > 0) p->top_p_decay = 1; // only rows without top-k decay
}

// A row without input begins with its start token.
static int settle_empty(struct infer_request *r, struct infer_row *row, struct err *err) {
    if (row->n_ids > 0) return 0;
    if (row->sampling.params.start_id < 0)
        return err_set(err, E_INVAL, "a row without input needs 'start_id'");
    *row->ids = row->sampling.params.start_id;
    row->n_ids = 1;
    if (r->width == 0) r->width = 1;
    return 0;
}

// input_ids is [rows, width], INPUT_0 [rows, 1]; FasterTransformer's interactive clients put a dimension of 1
// in front.
static int count_rows(struct infer_reading *g, const struct tensor *t, int n_dims,
                      struct err *err) {
    struct infer_request *r = g->r;
    r->outer_dim = t->n_dims == n_dims + 1;
    const int64_t *shape = t->shape + r->outer_dim;
    g->tensor = t;
    if (t->n_dims != n_dims + r->outer_dim || (r->outer_dim && t->shape[0] != 1))
        return infer_refuse_value(g, "must have the shape [rows, n] or [1, rows, n]", err);
    if (shape[0] < 1 || shape[0] > INFER_ROWS_MAX)
        return err_set(err, E_INVAL, "input '%s' must have from 1 to %d rows", t->name,
                       INFER_ROWS_MAX);
    r->rows = calloc((size_t)shape[0], sizeof *r->rows);
    if (!r->rows) return kserve_no_memory(err);
    r->n_rows = (size_t)shape[0];
    r->width = (size_t)shape[1];
    for (size_t i = 0; i < r->n_rows; i++) row_init(&r->rows[i]);
    return 0;
}

static int read_ids(struct infer_reading *g, const struct tensors *all, struct err *err) {
    struct infer_request *r = g->r;
    const struct tensor *ids = tensors_find(all, "input_ids");
    const struct tensor *lengths = tensors_find(all, "input_lengths");
    TRY(count_rows(g, ids, 2, err));
    if (lengths && lengths->n != r->n_rows) {
        g->tensor = lengths;
        return infer_refuse_value(g, "must have one element for each row", err);
    }
    for (size_t row = 0; row < r->n_rows; row++) {
        double n = lengths ? tensor_number(lengths, row) : (double)r->width;
        if (n > (double)r->width)
            return err_set(err, E_INVAL, "input 'input_lengths' must be from 0 to %zu", r->width);
        struct infer_row *out = &r->rows[row];
        out->ids = malloc(((size_t)n + 1) * sizeof *out->ids); // one more for settle_empty()
        if (!out->ids) return kserve_no_memory(err);
        for (out->n_ids = 0; out->n_ids < (size_t)n; out->n_ids++) {
            double id = tensor_number(ids, row * r->width + out->n_ids);
            if (id >= PROMPT_ID_FIRST) // prompt_inputs_read checks smaller ones
                return err_set(err, E_INVAL, "input 'input_ids' has an id outside the vocabulary");
            out->ids[out->n_ids] = (int32_t)id;
        }
    }
    return 0;
}

static int read_texts(struct infer_reading *g, const struct tensors *all, struct err *err) {
    struct infer_request *r = g->r;
    const struct tensor *texts = tensors_find(all, "INPUT_0");
    struct token_list ids;
    TRY(count_rows(g, texts, 2, err));
    if (r->width != 1) return infer_refuse_value(g, "must have one text for each row", err);
    for (size_t row = 0; row < r->n_rows; row++) {
        struct infer_row *out = &r->rows[row];
        token_list_init(&ids);
        int rc = engine_tokenize_start(g->engine, texts->texts[row].bytes, texts->texts[row].len,
                                       &ids, err);
        if (rc == 0) out->ids = token_list_take(&ids, &out->n_ids);
        token_list_release(&ids);
        TRY(rc);
        if (out->n_ids == 0) return infer_refuse_value(g, "has an empty text", err);
        if (out->n_ids > r->width) r->width = out->n_ids;
    }
    return 0;
}

static int read_rows(struct infer_reading *g, const struct tensors *all, struct err *err) {
    TRY(g->r->model == MODEL_IDS ? read_ids(g, all, err) : read_texts(g, all, err));
    TRY(infer_inputs_read(g, all, err));
    for (size_t i = 0; i < g->r->n_rows; i++) {
        row_settle(&g->r->rows[i]);
        TRY(settle_empty(g->r, &g->r->rows[i], err));
    }
    return prompt_inputs_read(g->r, g->engine, all, err);
}

// --- outputs ---

static unsigned outputs_made(enum infer_made_when when) {
    unsigned made = 0;
    for (int o = 0; o < INFER_OUTPUTS; o++)
        if (infer_outputs[o].when == when) made |= 1u << o;
    return made;
}

// Without a list: the model's outputs that need not be asked for, and those that an input asks for.
static int read_outputs(const struct infer_reading *g, const struct infer_wanted *wanted, size_t n,
                        struct err *err) {
    struct infer_request *r = g->r;
    unsigned log_probs = outputs_made(MADE_WITH_LOG_PROBS);
    unsigned embeddings = outputs_made(MADE_WITH_EMBEDDINGS), asked = outputs_made(MADE_ALWAYS);
    if (g->return_log_probs) asked |= log_probs;
    if (g->return_context_log_probs) asked |= 1u << OUTPUT_CUM_LOG_PROBS;
    if (g->return_embeddings) asked |= embeddings;
    for (int o = 0; n == 0 && o < INFER_OUTPUTS; o++)
        if (infer_outputs[o].field.models & 1u << r->model) r->outputs |= asked & 1u << o;
    for (size_t i = 0; i < n; i++) {
        int o = infer_output_find(wanted[i].name, r->model);
        if (o < 0)
            return err_set(err, E_INVAL, "unexpected inference output '%.64s' for model '%s'",
                           wanted[i].name ? wanted[i].name : "", r->name);
        r->outputs |= 1u << o;
        r->binary = wanted[i].binary ? r->binary | 1u << o : r->binary & ~(1u << o);
    }
    for (size_t i = 0; i < r->n_rows; i++) {
        struct sampling_params *p = &r->rows[i].sampling.params;
        if (r->outputs & log_probs) p->logprobs = true;
        if (r->outputs & embeddings) p->context_embedding = true;
    }
    return 0;
}

// --- parameters ---

static int set_flag(bool *out, const char *name, const struct infer_value *v, struct err *err) {
    if (v->kind != VALUE_BOOL)
        return err_set(err, E_INVAL, "parameter '%s' must be true or false", name);
    *out = v->flag;
    return 0;
}

static int set_start(struct infer_request *r, const struct infer_value *v, struct err *err) {
    return set_flag(&r->start, "sequence_start", v, err);
}

static int set_end(struct infer_request *r, const struct infer_value *v, struct err *err) {
    return set_flag(&r->end, "sequence_end", v, err);
}

static int refuse_reserved(struct err *err) {
    return err_set(err, E_INVAL,
                   "parameter keys starting with 'triton_' are reserved for Triton usage and "
                   "should not be specified.");
}

static int set_empty_final(struct infer_request *r, const struct infer_value *v, struct err *err) {
    if (v->kind != VALUE_BOOL || r->form != FORM_PIECES) return refuse_reserved(err);
    r->empty_final = v->flag;
    return 0;
}

static int set_timeout(struct infer_request *r, const struct infer_value *v, struct err *err) {
    if (v->kind != VALUE_INTEGER || v->integer > INT64_C(1) << 52)
        return err_set(err, E_INVAL, "parameter 'timeout' must be a number of microseconds");
    r->timeout_us = (int64_t)v->integer;
    return 0;
}

// 42 and "42" are two sequences; 0 and "" are none.
static int set_sequence(struct infer_request *r, const struct infer_value *v, struct err *err) {
    r->sequence[0] = '\0';
    if (v->kind == VALUE_INTEGER && v->integer)
        snprintf(r->sequence, sizeof r->sequence, "%llu", (unsigned long long)v->integer);
    if (v->kind == VALUE_INTEGER) return 0;
    if (v->kind != VALUE_STRING)
        return err_set(err, E_INVAL, "sequence_id must be an unsigned integer or a string");
    if (v->len > SEQUENCE_NAME_MAX)
        return err_set(err, E_INVAL, "sequence_id has more than %d bytes", SEQUENCE_NAME_MAX);
    if (v->len) snprintf(r->sequence, sizeof r->sequence, "\"%.*s", (int)v->len, v->text);
    return 0;
}

// Without effect: owners take turns here.
static int set_priority(struct infer_request *r, const struct infer_value *v, struct err *err) {
    if (v->kind == VALUE_INTEGER) return 0;
    return err_set(err, E_INVAL, "parameter 'priority' must be an unsigned integer");
}

static const struct {
    const char *name;
    int (*set)(struct infer_request *r, const struct infer_value *v, struct err *err);
} parameters[] = {
    {"sequence_id", set_sequence}, {"sequence_start", set_start},
    {"sequence_end", set_end},     {"timeout", set_timeout},
    {"priority", set_priority},    {"triton_enable_empty_final_response", set_empty_final}};
enum { N_PARAMETERS = sizeof parameters / sizeof *parameters };

const char *infer_parameter(size_t i) {
    return i < N_PARAMETERS ? parameters[i].name : NULL;
}

int infer_request_set(struct infer_request *r, const char *name, const struct infer_value *v,
                      struct err *err) {
    for (int i = 0; i < N_PARAMETERS; i++)
        if (strcmp(parameters[i].name, name) == 0) return parameters[i].set(r, v, err);
    if (strncmp(name, "triton_", 7) == 0) return refuse_reserved(err);
    bool sampling = r->form == FORM_TEXT || r->form == FORM_STREAM; // which has lists and objects
    if (sampling || v->kind != VALUE_OTHER) return 0;
    return err_set(err, E_INVAL, "parameter '%.64s' must be a boolean, a number or a string", name);
}

// --- the whole ---

int infer_request_text(struct infer_request *r, const char *text, struct err *err) {
    struct token_list ids;
    r->rows = calloc(1, sizeof *r->rows);
    if (!r->rows) return kserve_no_memory(err);
    r->n_rows = 1;
    turn_sampling_init(&r->rows->sampling);
    if (r->sequence[0] && !r->start) {
        r->rows->text = strdup(text);
        return r->rows->text ? 0 : kserve_no_memory(err);
    }
    token_list_init(&ids);
    int rc = engine_tokenize_start(r->served->engine, text, strlen(text), &ids, err);
    if (rc == 0) r->rows->ids = token_list_take(&ids, &r->rows->n_ids);
    token_list_release(&ids);
    return rc;
}

int infer_request_tensors(struct infer_request *r, const struct tensors *inputs,
                          const struct infer_wanted *outputs, size_t n_outputs, struct err *err) {
    const struct engine *e = r->served->engine;
    struct infer_reading g = {.r = r, .engine = e};
    TRY(infer_inputs_check(r, inputs, err));
    bool computes = r->model == MODEL_IDS || r->model == MODEL_TEXT;
    if (computes) TRY(read_rows(&g, inputs, err));
    TRY(read_outputs(&g, outputs, n_outputs, err));
    if (computes) return 0;
    r->answered = true;
    return text_model_run(r, e, inputs, err);
}

struct infer_request *infer_request_new(enum infer_form form, enum infer_model model,
                                        const char *name, const struct served_model *served) {
    struct infer_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->form = form;
    r->model = model;
    r->n_beams = 1;
    r->served = served;
    snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

void infer_request_free(struct infer_request *r) {
    if (!r) return;
    for (size_t i = 0; i < r->n_rows; i++) {
        free(r->rows[i].ids);
        free(r->rows[i].text);
        prompt_free(r->rows[i].prompt);
        turn_sampling_release(&r->rows[i].sampling);
    }
    free(r->rows);
    free(r->id);
    placement_drop(r->served);
    tensors_out_release(&r->answer);
    free(r);
}
