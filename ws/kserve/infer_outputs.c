// The table of outputs. See infer_outputs.h.
#include "ws/kserve/infer_outputs.h"
#include "ws/kserve/text_models.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

#define IDS (1u << MODEL_IDS)
#define TEXT (1u << MODEL_TEXT)
#define BOTH (IDS | TEXT)
#define ENCODE (1u << MODEL_ENCODE)
#define DECODE (1u << MODEL_DECODE)
#define ABSENT_LOG_PROB (-1e20f) // as FasterTransformer's beams that no token has reached

// A beam of a row: the log in front of its answer, and the answer as far as i->step.
struct shown {
    size_t row;
    const int32_t *log, *answer; // (n_log), (n)
    const float *logprobs;       // (n_logprobs)
    size_t n_log, n, n_logprobs;
    bool absent; // the search found fewer beams
};

#define FILL(name)                                                                                 \
    static int name(const struct infer *i, const struct shown *beam, size_t at, size_t width,      \
                    struct tensor_out *t, struct err *err)

static size_t least(size_t a, size_t b) {
    return a < b ? a : b;
}

// Before the end, every beam has the tokens that all beams share.
static struct shown shown_of(const struct infer *i, size_t row, size_t beam) {
    const struct infer_turn *t = &i->turns[row];
    size_t before = least((size_t)t->n_before + i->request->rows[row].n_ids, t->n_ids);
    struct shown b = {.row = row, .log = t->ids, .n_log = before};
    b.absent = beam > t->n_beams && t->state == ROW_ENDED;
    if (b.absent) return b;
    if (beam == 0 || t->state != ROW_ENDED) {
        b.answer = t->ids ? t->ids + before : NULL;
        b.n = t->n_ids - before;
        b.logprobs = t->logprobs;
        b.n_logprobs = t->n_logprobs;
    } else {
        b.answer = t->beams[beam - 1].ids;
        b.logprobs = t->beams[beam - 1].logprobs;
        b.n = b.n_logprobs = t->beams[beam - 1].n;
    }
    b.n = least(b.n, i->step);
    b.n_logprobs = least(b.n_logprobs, i->step);
    return b;
}

// Virtual tokens are left out of all outputs.
static size_t n_real(const int32_t *ids, size_t n) {
    size_t count = 0;
    for (size_t at = 0; at < n; at++) count += !prompt_is_virtual(ids[at]);
    return count;
}

// A row is padded with its end token.
FILL(fill_ids) {
    const struct engine_info *info = i->request->served->info;
    int32_t end_id = i->request->rows[beam->row].sampling.params.end_id;
    int64_t padding = end_id >= 0 ? end_id : info->n_eos ? info->eos_ids[0] : 0;
    int64_t *out = t->ints + at * width;
    size_t to = 0;
    for (size_t n = 0; n < beam->n_log && to < width; n++)
        if (!prompt_is_virtual(beam->log[n])) out[to++] = beam->log[n];
    for (size_t n = 0; n < beam->n && to < width; n++) out[to++] = beam->answer[n];
    while (to < width) out[to++] = padding;
    return 0;
}

FILL(fill_sequence_length) {
    t->ints[at] = (int64_t)(n_real(beam->log, beam->n_log) + beam->n);
    return 0;
}

FILL(fill_input_lengths) {
    const struct infer_row *r = &i->request->rows[beam->row];
    t->ints[at] = (int64_t)(r->n_ids - r->n_virtual);
    return 0;
}

FILL(fill_cum_log_probs) {
    double sum = i->turns[beam->row].context_logprob; // 0 unless asked for
    for (size_t n = 0; n < beam->n_logprobs; n++) sum += (double)beam->logprobs[n];
    t->floats[at] = beam->absent ? ABSENT_LOG_PROB : (float)sum;
    return 0;
}

FILL(fill_log_probs) {
    for (size_t n = 0; n < width && n < beam->n_logprobs; n++)
        t->floats[at * width + n] = beam->logprobs[n];
    return 0;
}

FILL(fill_context_embeddings) {
    const float *embedding = i->turns[beam->row].embedding;
    if (embedding) memcpy(t->floats + at * width, embedding, width * sizeof *embedding);
    return 0;
}

FILL(fill_text) {
    struct buf *b = &t->text_bufs[at];
    int32_t *ids = malloc((beam->n_log + beam->n + 1) * sizeof *ids); // decoding changes them
    buf_init(b, INFER_TEXT_BYTES);
    if (!ids) return E_NOMEM;
    size_t n = 0;
    for (size_t from = 0; from < beam->n_log; from++)
        if (!prompt_is_virtual(beam->log[from])) ids[n++] = beam->log[from];
    for (size_t from = 0; from < beam->n; from++) ids[n++] = beam->answer[from];
    int rc = text_model_decode(i->request->served->engine, ids, n, b, err);
    free(ids);
    t->texts[at] = (struct tensor_text){buf_z(b), b->len};
    return rc;
}

// Outputs without fill() are made by text_models.c.
const struct infer_output_row infer_outputs[INFER_OUTPUTS] = {
#define ROW(name, type, n_dims, models, width, has_beams, fill)                                    \
    { {name, type, n_dims, {-1, -1}, false, models}, width, has_beams, fill, MADE_ALWAYS }
#define FLOATS(name, n_dims, width, fill, when)                                                    \
    { {name, TENSOR_FP32, n_dims, {-1, -1}, false, BOTH}, width, true, fill, when }
    [OUTPUT_IDS] = ROW("output_ids", TENSOR_UINT32, 2, IDS, WIDTH_LOG, true, fill_ids),
    [OUTPUT_SEQUENCE_LENGTH] =
        ROW("sequence_length", TENSOR_UINT32, 1, BOTH, WIDTH_NONE, true, fill_sequence_length),
    [OUTPUT_RESPONSE_INPUT_LENGTHS] =
        ROW("response_input_lengths", TENSOR_INT32, 1, IDS, WIDTH_NONE, true, fill_input_lengths),
    [OUTPUT_CUM_LOG_PROBS] =
        FLOATS("cum_log_probs", 1, WIDTH_NONE, fill_cum_log_probs, MADE_WITH_LOG_PROBS),
    [OUTPUT_LOG_PROBS] =
        FLOATS("output_log_probs", 2, WIDTH_ANSWER, fill_log_probs, MADE_WITH_LOG_PROBS),
    [OUTPUT_CONTEXT_EMBEDDINGS] = FLOATS("context_embeddings", 2, WIDTH_HIDDEN,
                                         fill_context_embeddings, MADE_WITH_EMBEDDINGS),
    [OUTPUT_TEXT] = ROW("OUTPUT_0", TENSOR_BYTES, 1, TEXT, WIDTH_NONE, false, fill_text),
    [OUTPUT_ENCODED] = {.field = {"INPUT_ID", TENSOR_UINT32, 1, {-1}, false, ENCODE}},
    [OUTPUT_ENCODED_LEN] = {.field = {"REQUEST_INPUT_LEN", TENSOR_UINT32, 1, {1}, false, ENCODE}},
    [OUTPUT_BAD_WORDS] = {.field = {"BAD_WORDS_IDS", TENSOR_INT32, 2, {2, -1}, false, ENCODE}},
    [OUTPUT_STOP_WORDS] = {.field = {"STOP_WORDS_IDS", TENSOR_INT32, 2, {2, -1}, false, ENCODE}},
    [OUTPUT_OUTPUT_LEN] = {.field = {"REQUEST_OUTPUT_LEN", TENSOR_UINT32, 1, {-1}, false, ENCODE}},
    [OUTPUT_DECODED] = {.field = {"OUTPUT", TENSOR_BYTES, 1, {-1}, false, DECODE}},
#undef FLOATS
#undef ROW
};

int infer_output_find(const char *name, enum infer_model model) {
    for (int o = 0; name && o < INFER_OUTPUTS; o++)
        if (infer_outputs[o].field.models & 1u << model &&
            strcmp(infer_outputs[o].field.name, name) == 0)
            return o;
    return -1;
}

// --- tensors ---

// The longest log of any session, and so of a row.
static size_t longest_log(const struct infer *i) {
    return (size_t)i->request->served->info->max_session_len;
}

static size_t log_width(const struct infer *i) {
    size_t before = 0;
    for (size_t row = 0; row < i->request->n_rows; row++) {
        const struct infer_turn *t = &i->turns[row];
        size_t n = (size_t)t->n_before, n_known = least(n, t->n_ids);
        n -= n_known - n_real(t->ids, n_known);
        if (n > before) before = n;
    }
    return least(before + i->request->width + i->request->max_output, longest_log(i));
}

// [rows, beams, width] or [rows, beams]; text: [rows * beams]. With the pseudo batch dimension in front.
static size_t set_shape(const struct infer *i, const struct infer_output_row *o,
                        struct tensor_out *t) {
    int64_t n_rows = (int64_t)i->request->n_rows, n_beams = (int64_t)i->request->n_beams;
    size_t width = o->width == WIDTH_LOG      ? log_width(i)
                   : o->width == WIDTH_ANSWER ? least(i->request->max_output, longest_log(i))
                   : o->width == WIDTH_HIDDEN ? (size_t)i->request->served->info->width
                                              : 1;
    if (i->request->outer_dim) tensor_out_add_dim(t, 1);
    tensor_out_add_dim(t, o->has_beams ? n_rows : n_rows * n_beams);
    if (o->has_beams) tensor_out_add_dim(t, n_beams);
    if (o->width != WIDTH_NONE) tensor_out_add_dim(t, (int64_t)width);
    return width;
}

static int make(const struct infer *i, enum infer_output what, struct tensors_out *out,
                struct err *err) {
    const struct infer_output_row *o = &infer_outputs[what];
    struct tensor_out t = {.name = o->field.name,
                           .type = o->field.type,
                           .binary = (i->request->binary & 1u << what) != 0};
    size_t width = set_shape(i, o, &t), n_beams = i->request->n_beams;
    int rc = tensor_out_allocate(&t);
    for (size_t at = 0; rc == 0 && at < i->request->n_rows * n_beams; at++) {
        struct shown beam = shown_of(i, at / n_beams, at % n_beams);
        rc = o->fill(i, &beam, at, width, &t, err);
    }
    if (rc == 0) rc = tensors_out_take(out, &t);
    tensor_out_release(&t);
    return rc;
}

int infer_outputs_make(const struct infer *i, struct tensors_out *out, struct err *err) {
    for (int o = 0; o < INFER_OUTPUTS; o++)
        if (i->request->outputs & 1u << o) TRY(make(i, (enum infer_output)o, out, err));
    return 0;
}
