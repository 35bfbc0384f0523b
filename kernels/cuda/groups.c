// Loads weights of few bits. Formats of 4 bits, alike in all parts, stay as they are (groups.h); all others, and all with
// activations of 32 bits, are widened row by row, as the loader widens them for other devices.
#include "kernels/cuda/groups.h"
#include "base/parallel.h"
#include "kernels/cuda/backend_cuda.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 16, WIDEN_BYTES = 8 << 20 };

// --- rows of a source ----------------------------------------------------------------------------

static float scale_at(const struct group_format *f, const struct group_row *r, int64_t g) {
    switch (f->scale) {
    case GROUP_SCALE_F16:
        return f16_to_f32(((const uint16_t *)r->scales)[g]);
    case GROUP_SCALE_BF16:
        return bf16_to_f32(((const uint16_t *)r->scales)[g]);
    case GROUP_SCALE_F32:
        return ((const float *)r->scales)[g];
    default:
        return f16_to_f32(r->supers[g * f->group / GROUP_TILE_K]) *
               (float)((const int8_t *)r->scales)[g];
    }
}

static float offset_at(const struct group_format *f, const struct group_row *r, int64_t g,
                       float scale) {
    switch (f->zero_kind) {
    case GROUP_ZERO_SAME:
        return -scale * (float)f->zero;
    case GROUP_ZERO_U8:
        return -scale * (float)(f->zero + ((const uint8_t *)r->zeros)[g]);
    case GROUP_MIN_F16:
        return f16_to_f32(((const uint16_t *)r->zeros)[g]);
    default:
        return -f16_to_f32(r->min_supers[g * f->group / GROUP_TILE_K]) *
               (float)((const uint8_t *)r->zeros)[g];
    }
}

// Work that several threads do for the rows of a weight.
struct job {
    const struct tensor_view *parts;
    int n_parts;
    int32_t rows, cols, layout;
    int64_t first;  // row, of the present piece
    uint8_t *codes; // (tiles of the piece, chunks, GROUPS_CHUNK_BYTES)
    float *scales;  // of all tiles
    float *wide;    // (rows of the piece, cols)
    pthread_mutex_t lock;
    int rc;
    struct err err;
};

static void fail(struct job *j, int rc, const struct err *err) {
    pthread_mutex_lock(&j->lock);
    if (j->rc == 0) j->rc = rc, j->err = *err;
    pthread_mutex_unlock(&j->lock);
}

// Row `row` of the stacked parts.
static const struct group_source *read_row(struct job *j, int64_t row, struct group_row *out) {
    int i = 0;
    struct err err = {0};
    while (row >= j->parts[i].rows) row -= j->parts[i++].rows;
    const struct group_source *s = view_groups(&j->parts[i]);
    const int rc = s->row(s->ctx, row, out, &err);
    if (rc < 0) fail(j, rc, &err);
    return rc < 0 ? NULL : s;
}

// --- as codes ------------------------------------------------------------------------------------

// A code's bits in its word (groups.h): number i of pair `pair`.
static inline uint32_t code_bits(int32_t layout, uint32_t code, int pair, int i) {
    static const int sign[] = {15, 12, 9, 14}, high[] = {8, 5, 2, 13}, low[] = {6, 3, 0, 10};
    if (layout & GROUPS_E2M1)
        return (code >> 3 << sign[pair] | (code >> 2 & 1) << high[pair] | (code & 3) << low[pair])
               << (16 * i);
    return code << 4 * (layout & GROUPS_BOOK ? 2 * pair + i : pair + 4 * i);
}

// The word of columns k, k + 1, k + 8, k + 9, k + 16 ..., of which `left` exist.
static inline uint32_t code_word(int32_t layout, const uint8_t *codes, int32_t left) {
    uint32_t word = 0;
    for (int at = 0; at < 8; at++) {
        const int k = at / 2 * 8 + at % 2;
        if (k < left) word |= code_bits(layout, codes[k] & 15, at / 2, at % 2);
    }
    return word;
}

static void put_row(struct job *j, int64_t row, const struct group_format *f,
                    const struct group_row *r) {
    const int32_t chunks = groups_chunks(j->cols), n_groups = groups_count(j->cols, f->group);
    const int64_t tile = row / TILE, in_tile = row % TILE;
    uint8_t *codes = j->codes + (size_t)((row - j->first) / TILE * chunks) * GROUPS_CHUNK_BYTES;
    for (int32_t k = 0; k < j->cols; k += 32)
        for (int t = 0; t < 4; t++) {
            const int32_t in = k % GROUPS_CHUNK, left = j->cols - k - 2 * t;
            const uint8_t *from = r->codes + k + 2 * t;
            // The usual layout's word is made without a question for each code.
            const uint32_t word = j->layout & GROUPS_BOOK || left < 26
                                      ? code_word(j->layout, from, left)
                                      : code_word(0, from, 26);
            memcpy(codes + (size_t)(k / GROUPS_CHUNK) * GROUPS_CHUNK_BYTES + in_tile / 8 * 512 +
                       (in_tile % 8 * 4 + t) * 16 + in / 32 * 4,
                   &word, sizeof word);
        }
    const bool with_offset = j->layout & GROUPS_OFFSET;
    for (int32_t g = 0; g < group_count(f, j->cols); g++) {
        float *to = j->scales + ((tile * n_groups + g) * TILE + in_tile) * (with_offset ? 2 : 1);
        to[0] = scale_at(f, r, g);
        if (with_offset) to[1] = offset_at(f, r, g, to[0]);
    }
}

static void pack_rows(void *ctx, int64_t at, int64_t n) {
    struct job *j = ctx;
    struct group_row row;
    const struct err none = {.code = E_NOMEM, .text = "no memory for a row of few bits"};
    void *memory = group_row_alloc(&row, j->cols);
    if (!memory) fail(j, E_NOMEM, &none);
    for (int64_t r = at * TILE; memory && r < (at + n) * TILE; r++) {
        if (j->first + r >= j->rows) break;
        const struct group_source *s = read_row(j, j->first + r, &row);
        if (!s) break;
        put_row(j, j->first + r, &s->format, &row);
    }
    free(memory);
}

// What the GPU's kernels have: at most 4 bits, one format, columns in words of 16 bytes of x. The layout, or 0.
static int32_t layout_of(const struct backend *be, const struct tensor_view *parts, int n_parts) {
    const struct group_format *f = &view_groups(parts)->format;
    if (be->act_dtype == DTYPE_F32 || f->bits > 4 || parts[0].cols % 8) return 0;
    for (int i = 1; i < n_parts; i++)
        if (!group_format_equal(f, &view_groups(&parts[i])->format)) return 0;
    // A zero is taken off the codes, where that is exact.
    const bool same =
        f->zero_kind == GROUP_ZERO_SAME && f->zero >= 0 && (f->book || f->zero <= 128);
    if (!same && (f->book || f->group < 32)) return 0; // Q2_K: more scales and offsets than codes
    const int32_t zero = same && !f->book ? f->zero : 0;
    const int32_t book = !f->book ? 0
                         : same && f->book == group_book_e2m1 && f->zero == 16
                             ? GROUPS_BOOK | GROUPS_E2M1
                             : GROUPS_BOOK;
    return f->group | (same ? 0 : GROUPS_OFFSET) | book | zero * GROUPS_ZERO;
}

static int send_head(struct cuda_backend *cuda, const struct weight *w,
                     const struct group_format *f) {
    float head[16] = {0};
    const bool less = !(w->layout & GROUPS_OFFSET);
    for (int i = 0; f->book && i < 16; i++) head[i] = (float)(f->book[i] - (less ? f->zero : 0));
    return cuda_mem_write(&cuda->base, w->data, head, sizeof head);
}

static int send_codes(struct cuda_backend *cuda, struct weight *w, struct job *j, struct err *err) {
    const int64_t tiles = (w->rows + TILE - 1) / TILE;
    const size_t tile_bytes = (size_t)groups_chunks(w->cols) * GROUPS_CHUNK_BYTES;
    const int64_t step =
        CUDA_STAGING_BYTES / tile_bytes > 0 ? (int64_t)(CUDA_STAGING_BYTES / tile_bytes) : 1;
    j->codes = malloc((size_t)(step < tiles ? step : tiles) * tile_bytes);
    if (!j->codes) return err_set(err, E_NOMEM, "no memory for %zu bytes of codes", tile_bytes);
    for (int64_t tile = 0; tile < tiles; tile += step) {
        const int64_t n = tiles - tile < step ? tiles - tile : step;
        memset(j->codes, 0, (size_t)n * tile_bytes);
        j->first = tile * TILE;
        parallel_ranges(n, 1, pack_rows, j);
        if (j->rc < 0) return err_set(err, j->rc, "%s", j->err.text);
        TRY(cuda_mem_write(&cuda->base, (char *)w->data + GROUPS_HEAD + (size_t)tile * tile_bytes,
                           j->codes, (size_t)n * tile_bytes));
    }
    return 0;
}

// Work space for the widest of these matrices, as the products of many rows read it.
static int reserve_wide(struct cuda_backend *cuda, const struct weight *w, struct err *err) {
    const size_t bytes = (size_t)w->rows * (size_t)w->cols * dtype_size(cuda->base.act_dtype);
    if (cuda->deterministic || bytes <= cuda->widened_bytes) return 0;
    cudaFree(cuda->widened);
    cuda->widened = NULL, cuda->widened_bytes = 0;
    TRY(cuda_alloc(&cuda->widened, bytes, err));
    cuda->widened_bytes = bytes;
    return 0;
}

static int keep(struct cuda_backend *cuda, struct weight *w, struct job *j, struct err *err) {
    const struct group_format *f = &view_groups(j->parts)->format;
    const int64_t tiles = (w->rows + TILE - 1) / TILE;
    const size_t codes = (size_t)(tiles * groups_chunks(w->cols)) * GROUPS_CHUNK_BYTES;
    const size_t scales = (size_t)(tiles * groups_count(w->cols, f->group)) * TILE * sizeof(float) *
                          (w->layout & GROUPS_OFFSET ? 2 : 1);
    w->dtype = DTYPE_U8;
    w->bytes = GROUPS_HEAD + codes + scales;
    j->scales = calloc(1, scales);
    if (!j->scales) return err_set(err, E_NOMEM, "no memory for %zu bytes of scales", scales);
    TRY(reserve_wide(cuda, w, err));
    TRY(cuda_alloc(&w->data, GROUPS_HEAD + codes, err));
    TRY(cuda_alloc((void **)&w->scales, scales, err));
    TRY(send_head(cuda, w, f));
    TRY(send_codes(cuda, w, j, err));
    return cuda_mem_write(&cuda->base, w->scales, j->scales, scales);
}

// --- widened -------------------------------------------------------------------------------------

static void widen_rows(void *ctx, int64_t at, int64_t n) {
    struct job *j = ctx;
    struct group_row row;
    const struct err none = {.code = E_NOMEM, .text = "no memory for a row of few bits"};
    void *memory = group_row_alloc(&row, j->cols);
    if (!memory) fail(j, E_NOMEM, &none);
    for (int64_t r = at; memory && r < at + n; r++) {
        const struct group_source *s = read_row(j, j->first + r, &row);
        if (!s) break;
        const struct group_format *f = &s->format;
        float *to = j->wide + r * j->cols;
        for (int32_t k = 0; k < j->cols; k++) {
            const int code = f->book ? f->book[row.codes[k] & 15] : row.codes[k];
            const float scale = scale_at(f, &row, k / f->group);
            // In double, and rounded once.
            to[k] = (float)((double)scale * code + offset_at(f, &row, k / f->group, scale));
        }
    }
    free(memory);
}

static int widen(struct cuda_backend *cuda, struct weight *w, struct job *j, struct err *err) {
    const size_t row_bytes = (size_t)w->cols * sizeof(float);
    const int64_t step = WIDEN_BYTES / row_bytes > 0 ? (int64_t)(WIDEN_BYTES / row_bytes) : 1;
    const int32_t unit = (int32_t)(16 / dtype_size(cuda->base.act_dtype));
    w->dtype = cuda->base.act_dtype;
    w->layout = (w->cols + unit - 1) / unit * unit;
    w->bytes = (size_t)w->rows * (size_t)w->layout * dtype_size(w->dtype);
    j->wide = malloc((size_t)step * row_bytes);
    if (!j->wide) return err_set(err, E_NOMEM, "no memory for %zu bytes of rows", row_bytes);
    TRY(cuda_alloc(&w->data, w->bytes, err));
    if (w->layout != w->cols) CUDA_TRY(cudaMemsetAsync(w->data, 0, w->bytes, cuda->stream));
    for (int64_t row = 0; row < w->rows; row += step) {
        const int64_t n = w->rows - row < step ? w->rows - row : step;
        j->first = row;
        parallel_ranges(n, 1, widen_rows, j);
        if (j->rc < 0) return err_set(err, j->rc, "%s", j->err.text);
        const struct tensor_view v = {.data = j->wide,
                                      .dtype = DTYPE_F32,
                                      .rows = n,
                                      .cols = w->cols,
                                      .row_stride = w->cols,
                                      .col_stride = 1};
        TRY(cuda_send_view(cuda, w, &v, row));
    }
    return 0;
}

int cuda_groups_fill(struct cuda_backend *cuda, struct weight *w, const struct tensor_view *parts,
                     int n_parts, struct err *err) {
    struct job j = {.parts = parts, .n_parts = n_parts, .rows = w->rows, .cols = w->cols};
    for (int i = 0; i < n_parts; i++) {
        const int32_t group = view_groups(&parts[i])->format.group;
        if (group < GROUP_MIN || group > GROUP_TILE_K || GROUP_TILE_K % group)
            return err_set(err, E_INVAL, "groups of %d columns are not supported", group);
    }
    pthread_mutex_init(&j.lock, NULL);
    w->layout = j.layout = layout_of(&cuda->base, parts, n_parts);
    int rc = w->layout ? keep(cuda, w, &j, err) : widen(cuda, w, &j, err);
    pthread_mutex_destroy(&j.lock);
    free(j.codes);
    free(j.scales);
    free(j.wide);
    return rc;
}
