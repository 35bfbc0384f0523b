// Loads weights of few bits. Formats that are alike in all parts stay as they are, in 4 bits or in 8 (groups.h); all others, and
// all with activations of 32 bits, are widened row by row, as the loader widens them for other devices.
#include "kernels/cuda/groups.h"
#include "base/log.h"
#include "base/parallel.h"
#include "kernels/cuda/backend_cuda.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TILE = 16, WIDEN_BYTES = 16 << 20 };

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
    int64_t first;                  // row, of the present piece
    uint8_t *codes;                 // (tiles of the piece, chunks, GROUPS_CHUNK_BYTES)
    uint16_t *scales;               // of the piece's tiles, F16
    size_t code_bytes, scale_bytes; // of a tile
    void *wide;                     // (rows of the piece, cols) of wide_dtype
    enum dtype wide_dtype;          // F32 or BF16
    pthread_mutex_t lock;
    uint32_t largest[2]; // scale, offset: an F16's bits
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

// The four words of 32 columns in the usual layout, eight columns at a time: from the lowest byte on, word t has columns
// 2 t, 2 t + 16, 2 t + 1, 2 t + 17 and in the upper halves of the bytes those 8 further.
static inline void usual_words(uint32_t words[4], const uint8_t *codes) {
    uint64_t eight[4], low, high;
    memcpy(eight, codes, sizeof eight);
    for (int i = 0; i < 4; i++) eight[i] &= 0x0f0f0f0f0f0f0f0full;
    low = eight[0] | eight[1] << 4;
    high = eight[2] | eight[3] << 4;
    for (int t = 0; t < 4; t++, low >>= 16, high >>= 16)
        words[t] = (uint32_t)((low & 0xff) | (high & 0xff) << 8 | (low & 0xff00) << 8 |
                              (high & 0xff00) << 16);
}

// A row's codes of 4 bits. to: its place in the first chunk.
static void put_codes(const struct job *j, uint8_t *row, const struct group_row *r) {
    for (int32_t k = 0; k < j->cols; k += 32) {
        uint8_t *to = row + (size_t)(k / 128) * GROUPS_CHUNK_BYTES + k % 128 / 32 * 4;
        uint32_t words[4];
        if (!(j->layout & GROUPS_BOOK) && j->cols - k >= 32)
            usual_words(words, r->codes + k);
        else
            for (int t = 0; t < 4; t++) {
                const int32_t left = j->cols - k - 2 * t;
                const uint8_t *from = r->codes + k + 2 * t;
                // e2m1's word is made without a question for each code.
                words[t] = j->layout & GROUPS_E2M1 && left >= 26
                               ? code_word(GROUPS_BOOK | GROUPS_E2M1, from, 26)
                               : code_word(j->layout, from, left);
            }
        for (int t = 0; t < 4; t++) memcpy(to + t * 16, &words[t], sizeof words[t]);
    }
}

// Eight bytes less `zero`, each by itself.
static inline uint64_t bytes_less(uint64_t x, uint64_t zeros) {
    const uint64_t high = 0x8080808080808080ull;
    return ((x | high) - (zeros & ~high)) ^ ((x ^ ~zeros) & high);
}

// Likewise of 8 bits, less `zero`: bytes h and h + 2 of word t are columns 2 t and 2 t + 1 of the eight columns h.
static void put_bytes(const struct job *j, uint8_t *row, const struct group_row *r, int zero) {
    const uint64_t zeros = 0x0101010101010101ull * (uint64_t)zero;
    for (int32_t k = 0; k < j->cols; k += 16) {
        uint8_t *to = row + (size_t)(k / 64) * GROUPS_CHUNK_BYTES + k % 64 / 16 * 4;
        uint64_t low, high = zeros;
        memcpy(&low, r->codes + k, sizeof low);
        if (k + 8 < j->cols) memcpy(&high, r->codes + k + 8, sizeof high);
        low = bytes_less(low, zeros), high = bytes_less(high, zeros);
        for (int t = 0; t < 4; t++, low >>= 16, high >>= 16) {
            const uint32_t word = (uint32_t)((low & 0xff) | (high & 0xff) << 8 |
                                             (low & 0xff00) << 8 | (high & 0xff00) << 16);
            memcpy(to + t * 16, &word, sizeof word);
        }
    }
}

// What codes of 8 bits are stored less: the zero of all, or what makes them signed bytes.
static int byte_zero(const struct job *j, const struct group_format *f) {
    return !(j->layout & GROUPS_OFFSET) ? f->zero : f->bits == 8 ? 128 : 0;
}

// A number times GROUPS_SCALED, and the larger of it and *largest.
static uint16_t scaled(float v, uint32_t *largest) {
    const uint16_t half = f16_from_f32(v * GROUPS_SCALED);
    if ((half & 0x7fffu) > *largest) *largest = half & 0x7fff;
    return half;
}

// largest: of scales, of offsets.
static void put_row(const struct job *j, int64_t row, const struct group_format *f,
                    const struct group_row *r, uint32_t largest[2]) {
    const bool bytes = j->layout & GROUPS_BYTES, with_offset = j->layout & GROUPS_OFFSET;
    const int64_t tile = (row - j->first) / TILE, in_tile = row % TILE; // first is a tile's
    uint8_t *codes = j->codes + (size_t)tile * j->code_bytes + in_tile / 8 * 512 + in_tile % 8 * 64;
    const int zero = bytes ? byte_zero(j, f) : 0;
    if (bytes)
        put_bytes(j, codes, r, zero);
    else
        put_codes(j, codes, r);
    const int32_t group = j->layout & GROUPS_SIZE, n_groups = groups_count(j->layout, j->cols);
    for (int32_t g = 0; g * group < j->cols; g++) {
        uint16_t *to = j->scales + ((tile * n_groups + g) * TILE + in_tile) * (with_offset ? 2 : 1);
        const int32_t of = g * group / f->group;
        const float scale = scale_at(f, r, of);
        to[0] = scaled(scale, &largest[0]);
        if (with_offset)
            to[1] = scaled(offset_at(f, r, of, scale) + scale * (float)zero, &largest[1]);
    }
}

static void pack_rows(void *ctx, int64_t at, int64_t n) {
    struct job *j = ctx;
    struct group_row row;
    const struct err none = {.code = E_NOMEM, .text = "no memory for a row of few bits"};
    uint32_t largest[2] = {0};
    void *memory = group_row_alloc(&row, j->cols);
    if (!memory) fail(j, E_NOMEM, &none);
    // What no row and no column fills is 0.
    memset(j->codes + (size_t)at * j->code_bytes, 0, (size_t)n * j->code_bytes);
    memset((char *)j->scales + (size_t)at * j->scale_bytes, 0, (size_t)n * j->scale_bytes);
    for (int64_t r = at * TILE; memory && r < (at + n) * TILE; r++) {
        if (j->first + r >= j->rows) break;
        const struct group_source *s = read_row(j, j->first + r, &row);
        if (!s) break;
        put_row(j, j->first + r, &s->format, &row, largest);
    }
    free(memory);
    pthread_mutex_lock(&j->lock);
    if (largest[0] > j->largest[0]) j->largest[0] = largest[0];
    if (largest[1] > j->largest[1]) j->largest[1] = largest[1];
    pthread_mutex_unlock(&j->lock);
}

// Whether F16 holds the scales: none is too large, and they are not so small that the largest of them lost bits.
static bool scales_fit(const struct job *j) {
    enum { INFINITE = 0x7c00, TINY = 0x1400 }; // 2^-10, times GROUPS_SCALED
    return j->largest[0] < INFINITE && j->largest[1] < INFINITE &&
           (j->largest[0] == 0 || j->largest[0] >= TINY);
}

// What the GPU's kernels have: one format, columns in words of 16 bytes of x. The layout, or 0.
static int32_t layout_of(const struct backend *be, const struct tensor_view *parts, int n_parts) {
    const struct group_format *f = &view_groups(parts)->format;
    if (be->act_dtype == DTYPE_F32 || parts[0].cols % 8) return 0;
    for (int i = 1; i < n_parts; i++)
        if (!group_format_equal(f, &view_groups(&parts[i])->format)) return 0;
    const bool bytes = f->bits > 4;
    // A zero is taken off the codes, where that is exact.
    const bool same =
        f->zero_kind == GROUP_ZERO_SAME && f->zero >= 0 &&
        (bytes ? f->zero <= 128 && (1 << f->bits) - f->zero <= 128 : f->book || f->zero <= 128);
    if (!same && (f->book || f->group < 32)) return 0; // Q2_K: more scales and offsets than codes
    if (bytes) // no unit is wider than what a block has at a time
        return (f->group < 128 ? f->group : 128) | GROUPS_BYTES | (same ? 0 : GROUPS_OFFSET);
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

// Through the pinned buffers of the staging area: one is filled while the other is copied.
static int send_tiles(struct cuda_backend *cuda, const struct weight *w, struct job *j,
                      struct err *err) {
    struct cuda_staging *g = &cuda->staging;
    const int64_t tiles = (w->rows + TILE - 1) / TILE;
    const int64_t step = (int64_t)(CUDA_STAGING_BYTES / (j->code_bytes + j->scale_bytes));
    for (int64_t tile = 0; tile < tiles; tile += step) {
        const int64_t n = tiles - tile < step ? tiles - tile : step;
        const size_t codes = (size_t)n * j->code_bytes, scales = (size_t)n * j->scale_bytes;
        const int i = g->next;
        g->next = 1 - i;
        CUDA_TRY(cudaEventSynchronize(g->copied[i]));
        j->first = tile * TILE;
        j->codes = (uint8_t *)g->pinned[i];
        j->scales = (uint16_t *)(void *)(g->pinned[i] + codes);
        parallel_ranges(n, 1, pack_rows, j);
        if (j->rc < 0) return err_set(err, j->rc, "%s", j->err.text);
        CUDA_TRY(cudaMemcpyAsync((char *)w->data + GROUPS_HEAD + (size_t)tile * j->code_bytes,
                                 j->codes, codes, cudaMemcpyHostToDevice, cuda->stream));
        CUDA_TRY(cudaMemcpyAsync((char *)w->scales + (size_t)tile * j->scale_bytes, j->scales,
                                 scales, cudaMemcpyHostToDevice, cuda->stream));
        CUDA_TRY(cudaEventRecord(g->copied[i], cuda->stream));
    }
    return 0;
}

// Work space for the largest of these matrices, as the products of many rows read it.
static int reserve_wide(struct cuda_backend *cuda, const struct weight *w, struct err *err) {
    const size_t bytes = (size_t)w->rows * (size_t)w->cols * dtype_size(cuda->base.act_dtype);
    if (cuda->deterministic || cuda_groups_tall(w->rows, w->cols) || bytes <= cuda->widened_bytes)
        return 0;
    cudaFree(cuda->widened);
    cuda->widened = NULL, cuda->widened_bytes = 0;
    TRY(cuda_alloc(&cuda->widened, bytes, err));
    cuda->widened_bytes = bytes;
    return 0;
}

// *fits: whether they are kept, else they are still to be widened.
static int keep(struct cuda_backend *cuda, struct weight *w, struct job *j, bool *fits,
                struct err *err) {
    const size_t tiles = (size_t)((w->rows + TILE - 1) / TILE);
    w->dtype = DTYPE_U8;
    w->bytes = GROUPS_HEAD + tiles * (j->code_bytes + j->scale_bytes);
    TRY(reserve_wide(cuda, w, err));
    TRY(cuda_alloc(&w->data, GROUPS_HEAD + tiles * j->code_bytes, err));
    TRY(cuda_alloc((void **)&w->scales, tiles * j->scale_bytes, err));
    TRY(send_head(cuda, w, &view_groups(j->parts)->format));
    TRY(send_tiles(cuda, w, j, err));
    *fits = scales_fit(j);
    if (*fits) return 0;
    log_info("model.widened", "rows=%d cols=%d because=\"F16 does not hold its scales\"", w->rows,
             w->cols);
    CUDA_TRY(cudaStreamSynchronize(cuda->stream));
    cudaFree(w->data);
    cudaFree(w->scales);
    w->data = NULL, w->scales = NULL, w->layout = 0;
    return 0;
}

// --- widened -------------------------------------------------------------------------------------

// Group by group, so that the loops are vector code. In double, and rounded once.
static void widen_row(void *to, enum dtype dtype, const struct group_format *f,
                      const struct group_row *r, int32_t cols) {
    for (int32_t k = 0; k < cols; k += f->group) {
        const int32_t n = cols - k < f->group ? cols - k : f->group;
        const double scale = scale_at(f, r, k / f->group);
        const double offset = offset_at(f, r, k / f->group, (float)scale);
        float values[GROUP_TILE_K];
        uint8_t codes[GROUP_TILE_K];
        memcpy(codes, r->codes + k, (size_t)n);
        for (int32_t i = 0; f->book && i < n; i++) codes[i] = f->book[codes[i] & 15];
        for (int32_t i = 0; i < n; i++) values[i] = (float)(scale * codes[i] + offset);
        if (dtype == DTYPE_F32)
            memcpy((float *)to + k, values, (size_t)n * sizeof *values);
        else
            for (int32_t i = 0; i < n; i++) ((uint16_t *)to)[k + i] = bf16_from_f32(values[i]);
    }
}

static void widen_rows(void *ctx, int64_t at, int64_t n) {
    struct job *j = ctx;
    struct group_row row;
    const struct err none = {.code = E_NOMEM, .text = "no memory for a row of few bits"};
    const size_t row_bytes = (size_t)j->cols * dtype_size(j->wide_dtype);
    void *memory = group_row_alloc(&row, j->cols);
    if (!memory) fail(j, E_NOMEM, &none);
    for (int64_t r = at; memory && r < at + n; r++) {
        const struct group_source *s = read_row(j, j->first + r, &row);
        if (!s) break;
        widen_row((char *)j->wide + (size_t)r * row_bytes, j->wide_dtype, &s->format, &row,
                  j->cols);
    }
    free(memory);
}

static int widen(struct cuda_backend *cuda, struct weight *w, struct job *j, struct err *err) {
    j->wide_dtype = cuda->base.act_dtype == DTYPE_BF16 ? DTYPE_BF16 : DTYPE_F32;
    const size_t row_bytes = (size_t)w->cols * dtype_size(j->wide_dtype);
    const int64_t step = WIDEN_BYTES / row_bytes > 0 ? (int64_t)(WIDEN_BYTES / row_bytes) : 1;
    const int32_t unit = (int32_t)(16 / dtype_size(cuda->base.act_dtype));
    w->dtype = cuda->base.act_dtype;
    w->layout = (w->cols + unit - 1) / unit * unit;
    w->bytes = (size_t)w->rows * (size_t)w->layout * dtype_size(w->dtype);
    j->wide = malloc((size_t)(step < w->rows ? step : w->rows) * row_bytes);
    if (!j->wide) return err_set(err, E_NOMEM, "no memory for %zu bytes of rows", row_bytes);
    TRY(cuda_alloc(&w->data, w->bytes, err));
    if (w->layout != w->cols) CUDA_TRY(cudaMemsetAsync(w->data, 0, w->bytes, cuda->stream));
    for (int64_t row = 0; row < w->rows; row += step) {
        const int64_t n = w->rows - row < step ? w->rows - row : step;
        j->first = row;
        parallel_ranges(n, 1, widen_rows, j);
        if (j->rc < 0) return err_set(err, j->rc, "%s", j->err.text);
        const struct tensor_view v = {.data = j->wide,
                                      .dtype = j->wide_dtype,
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
    if (j.layout) {
        j.code_bytes = (size_t)groups_chunks(j.layout, w->cols) * GROUPS_CHUNK_BYTES;
        j.scale_bytes = (size_t)groups_count(j.layout, w->cols) * TILE * sizeof(uint16_t) *
                        (j.layout & GROUPS_OFFSET ? 2 : 1);
    }
    if (j.code_bytes + j.scale_bytes > CUDA_STAGING_BYTES) w->layout = j.layout = 0;
    bool kept = false;
    int rc = w->layout ? keep(cuda, w, &j, &kept, err) : 0;
    if (rc == 0 && !kept) rc = widen(cuda, w, &j, err);
    pthread_mutex_destroy(&j.lock);
    free(j.wide);
    return rc;
}
