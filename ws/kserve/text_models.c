// Text to ids and back. See text_models.h.
#include "ws/kserve/text_models.h"
#include "ws/kserve/infer_outputs.h"
#include "ws/kserve/word_lists.h"
#include <stdlib.h>

#define ANSWER_MAX_BYTES (256 << 20)

struct running {
    struct infer_request *r; // its answer takes the outputs
    const struct engine *engine;
    const struct tensors *in;
    bool outer_dim;
};

// Memory for an output of this shape. Interactive clients put a dimension of 1 in front of every shape.
static int begin(const struct running *g, enum infer_output what, struct tensor_out *t, int n_dims,
                 const int64_t *shape, struct err *err) {
    *t = (struct tensor_out){.name = infer_outputs[what].field.name,
                             .type = infer_outputs[what].field.type,
                             .binary = (g->r->binary & 1u << what) != 0};
    if (g->outer_dim && what != OUTPUT_OUTPUT_LEN) tensor_out_add_dim(t, 1);
    for (int i = 0; i < n_dims; i++) tensor_out_add_dim(t, shape[i]);
    return tensor_out_allocate(t) < 0 ? kserve_no_memory(err) : 0;
}

// Adds the complete output to the answer if it is wanted.
static int put(struct running *g, enum infer_output what, struct tensor_out *t, struct err *err) {
    int rc = g->r->outputs & 1u << what ? tensors_out_take(&g->r->answer, t) : 0;
    tensor_out_release(t);
    return rc < 0 ? kserve_no_memory(err) : 0;
}

// Lists of different lengths, as rows of one width.
struct table {
    struct token_list *lists; // (n_rows)
    size_t n_rows, width;
};

static int table_init(struct table *t, size_t n_rows, struct err *err) {
    t->lists = calloc(n_rows, sizeof *t->lists);
    t->n_rows = t->lists ? n_rows : 0;
    t->width = 1;
    return t->lists ? 0 : kserve_no_memory(err);
}

static void table_release(struct table *t) {
    for (size_t i = 0; i < t->n_rows; i++) token_list_release(&t->lists[i]);
    free(t->lists);
}

static void table_measure(struct table *t) {
    for (size_t i = 0; i < t->n_rows; i++)
        if (t->lists[i].len > t->width) t->width = t->lists[i].len;
}

static void table_copy(const struct table *t, size_t row, int64_t padding, int64_t *out) {
    const struct token_list *l = &t->lists[row];
    for (size_t i = 0; i < t->width; i++) out[i] = i < l->len ? l->ids[i] : padding;
}

// --- preprocessing ---

static int64_t padding_of(const struct engine *e) {
    const struct engine_info *info = engine_info(e);
    return info->n_eos ? info->eos_ids[0] : 0;
}

static int put_ids(struct running *g, const struct table *ids, struct err *err) {
    struct tensor_out t, lengths;
    int64_t n_rows = (int64_t)ids->n_rows;
    int rc = begin(g, OUTPUT_ENCODED, &t, 2, (int64_t[]){n_rows, (int64_t)ids->width}, err);
    for (size_t row = 0; rc == 0 && row < ids->n_rows; row++)
        table_copy(ids, row, padding_of(g->engine), t.ints + row * ids->width);
    if (rc == 0) rc = put(g, OUTPUT_ENCODED, &t, err);
    if (rc < 0) {
        tensor_out_release(&t);
        return rc;
    }
    rc = begin(g, OUTPUT_ENCODED_LEN, &lengths, 2, (int64_t[]){n_rows, 1}, err);
    for (size_t row = 0; rc == 0 && row < ids->n_rows; row++)
        lengths.ints[row] = (int64_t)ids->lists[row].len;
    if (rc == 0) rc = put(g, OUTPUT_ENCODED_LEN, &lengths, err);
    tensor_out_release(&lengths);
    return rc;
}

static int encode(struct running *g, const struct tensor *query, struct err *err) {
    struct table ids = {0};
    int rc = table_init(&ids, query->n, err);
    for (size_t row = 0; rc == 0 && row < query->n; row++)
        rc = engine_tokenize(g->engine, query->texts[row].bytes, query->texts[row].len, true,
                             &ids.lists[row], err);
    table_measure(&ids);
    if (rc == 0) rc = put_ids(g, &ids, err);
    table_release(&ids);
    return rc;
}

struct words { // of a row: the ids of all, and where each ends
    const struct engine *engine;
    struct token_list *ids, *ends;
};

static int add_word(void *ctx, const char *word, size_t len, struct err *err) {
    struct words *w = ctx;
    size_t before = w->ids->len;
    TRY(engine_tokenize(w->engine, word, len, false, w->ids, err));
    if (w->ids->len == before) return 0;
    return token_list_push(w->ends, (int32_t)w->ids->len);
}

static int put_words(struct running *g, enum infer_output what, const struct table *ids,
                     const struct table *ends, struct err *err) {
    size_t width = ids->width; // an end for each id at most
    struct tensor_out t;
    int rc = begin(g, what, &t, 3, (int64_t[]){(int64_t)ids->n_rows, 2, (int64_t)width}, err);
    for (size_t row = 0; rc == 0 && row < ids->n_rows; row++) {
        table_copy(ids, row, 0, t.ints + row * 2 * width);
        table_copy(ends, row, -1, t.ints + row * 2 * width + width);
    }
    if (rc == 0) rc = put(g, what, &t, err);
    tensor_out_release(&t);
    return rc;
}

static int encode_words(struct running *g, enum infer_output what, const char *input, size_t n_rows,
                        struct err *err) {
    const struct tensor *in = tensors_find(g->in, input);
    struct table ids = {0}, ends = {0};
    int rc = table_init(&ids, n_rows, err);
    if (rc == 0) rc = table_init(&ends, n_rows, err);
    for (size_t row = 0; rc == 0 && in && row < n_rows && row < in->n; row++) {
        struct words w = {g->engine, &ids.lists[row], &ends.lists[row]};
        rc = word_lists_split(in->texts[row].bytes, in->texts[row].len, add_word, &w, err);
    }
    table_measure(&ids);
    ends.width = ids.width;
    if (rc == 0) rc = put_words(g, what, &ids, &ends, err);
    table_release(&ids);
    table_release(&ends);
    return rc;
}

static int preprocess(struct running *g, struct err *err) {
    const struct tensor *query = tensors_find(g->in, "QUERY");
    const struct tensor *len = tensors_find(g->in, "REQUEST_OUTPUT_LEN");
    if (query->n < 1 || query->n > INFER_ROWS_MAX)
        return err_set(err, E_INVAL, "input 'QUERY' must have from 1 to %d rows", INFER_ROWS_MAX);
    g->outer_dim = query->n_dims > 2;
    TRY(encode(g, query, err));
    TRY(encode_words(g, OUTPUT_BAD_WORDS, "BAD_WORDS_DICT", query->n, err));
    TRY(encode_words(g, OUTPUT_STOP_WORDS, "STOP_WORDS_DICT", query->n, err));
    if (!len) return 0;
    struct tensor_out t;
    int rc = begin(g, OUTPUT_OUTPUT_LEN, &t, len->n_dims, len->shape, err);
    for (size_t i = 0; rc == 0 && i < len->n; i++) t.ints[i] = (int64_t)tensor_u64(len, i);
    if (rc == 0) rc = put(g, OUTPUT_OUTPUT_LEN, &t, err);
    tensor_out_release(&t);
    return rc;
}

// --- postprocessing ---

int text_model_decode(const struct engine *e, int32_t *ids, size_t n, struct buf *out,
                      struct err *err) {
    size_t n_known = 0, len;
    for (size_t i = 0; i < n; i++)
        if (engine_token_bytes(e, ids[i], &len)) ids[n_known++] = ids[i];
    return engine_detokenize(e, ids, n_known, true, out, err);
}

static int decode(struct running *g, const struct tensor *ids, size_t n_rows, struct tensor_out *t,
                  struct err *err) {
    size_t width = (size_t)ids->shape[ids->n_dims - 1];
    int32_t *row_ids = malloc((width + 1) * sizeof *row_ids);
    int rc = row_ids ? 0 : kserve_no_memory(err);
    for (size_t row = 0; rc == 0 && row < n_rows; row++) {
        for (size_t i = 0; i < width; i++) {
            uint64_t id = tensor_u64(ids, row * width + i);
            row_ids[i] = id > INT32_MAX ? INT32_MAX : (int32_t)id;
        }
        buf_init(&t->text_bufs[row], ANSWER_MAX_BYTES);
        rc = text_model_decode(g->engine, row_ids, width, &t->text_bufs[row], err);
        t->texts[row] = (struct tensor_text){buf_z(&t->text_bufs[row]), t->text_bufs[row].len};
    }
    free(row_ids);
    return rc;
}

static int postprocess(struct running *g, struct err *err) {
    const struct tensor *ids = tensors_find(g->in, "TOKENS_BATCH");
    size_t width = ids->n_dims ? (size_t)ids->shape[ids->n_dims - 1] : 0;
    size_t n_rows = width ? ids->n / width : 0;
    if (n_rows < 1 || n_rows > INFER_BEAMS_MAX) // a row for each beam
        return err_set(err, E_INVAL, "input 'TOKENS_BATCH' must have from 1 to %d rows",
                       INFER_BEAMS_MAX);
    g->outer_dim = ids->n_dims > 3;
    struct tensor_out t;
    int rc = begin(g, OUTPUT_DECODED, &t, 1, (int64_t[]){(int64_t)n_rows}, err);
    if (rc == 0) rc = decode(g, ids, n_rows, &t, err);
    if (rc == 0) rc = put(g, OUTPUT_DECODED, &t, err);
    tensor_out_release(&t);
    return rc;
}

int text_model_run(struct infer_request *r, const struct engine *e, const struct tensors *in,
                   struct err *err) {
    struct running g = {.r = r, .engine = e, .in = in};
    return r->model == MODEL_ENCODE ? preprocess(&g, err) : postprocess(&g, err);
}
