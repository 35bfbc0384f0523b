// Packing of weights (layouts in weight.h). The views are mapped files, read twice for PANEL_BF12
// (the sizes of its tiles must be known before the first is placed) and once otherwise. Nothing
// else is allocated.
#include "kernels/cpu/weight.h"
#include "kernels/cpu/cpu.h"
#include "kernels/weight_parts.h"
#include <stdlib.h>
#include <string.h>

struct pack {
    struct weight *w;
    const struct tensor_view *parts;
    int n_parts;
};

// The view that holds row `row` of the stack, and the row within it.
static const struct tensor_view *part_of(const struct pack *p, int64_t *row) {
    const struct tensor_view *v = p->parts;
    while (*row >= v->rows) *row -= v++->rows;
    return v;
}

// Copies output `row`, K [k, k + n) of the stack to out.
static void fetch_row(const struct pack *p, int64_t row, int64_t k, int n, void *out) {
    const struct tensor_view *v = part_of(p, &row);
    size_t size = dtype_size(v->dtype);
    const char *from =
        (const char *)v->data + (row * v->row_stride + k * v->col_stride) * (int64_t)size;
    if (v->col_stride == 1) {
        memcpy(out, from, (size_t)n * size);
        return;
    }
    for (int i = 0; i < n; i++, from += v->col_stride * (int64_t)size)
        memcpy((char *)out + (size_t)i * size, from, size);
}

// A tile of 16 outputs x 32 K, zero where the matrix ends.
static void fetch_tile16(const struct pack *p, int32_t panel, int32_t tile,
                         uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K]) {
    const struct weight *w = p->w;
    int32_t k = tile * WEIGHT_TILE_K, rest = w->cols - k;
    int n = rest < WEIGHT_TILE_K ? rest : WEIGHT_TILE_K;
    if (n < WEIGHT_TILE_K) memset(t, 0, sizeof(uint16_t) * WEIGHT_PANEL * WEIGHT_TILE_K);
    for (int o = 0; o < WEIGHT_PANEL; o++) {
        int32_t row = panel * WEIGHT_PANEL + o;
        if (row < w->rows)
            fetch_row(p, row, k, n, t[o]);
        else
            memset(t[o], 0, sizeof t[o]);
    }
}

// The head of a packed tile: the high bytes of its weights without their signs, ascending, padded
// with bytes that no weight has. If there are more than it holds, the head of a raw tile.
static void tile_head(const uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K],
                      uint8_t head[WEIGHT_HEAD_BYTES]) {
    const uint16_t *v = &t[0][0];
    uint8_t seen[128] = {0};
    int n = 0;
    for (int i = 0; i < WEIGHT_PANEL * WEIGHT_TILE_K; i++) seen[v[i] >> 8 & 0x7f] = 1;
    memset(head, WEIGHT_NO_VALUE, WEIGHT_HEAD_BYTES);
    for (int i = 0; i < 128; i++) {
        if (!seen[i]) continue;
        if (n == WEIGHT_HEAD_BYTES) {
            head[0] = WEIGHT_RAW_TILE;
            return;
        }
        head[n++] = (uint8_t)i;
    }
}

static void put_raw_tile(uint16_t *to, const uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K]) {
    for (int pair = 0; pair < WEIGHT_TILE_K / 2; pair++)
        for (int o = 0; o < WEIGHT_PANEL; o++, to += 2) memcpy(to, &t[o][2 * pair], 2 * sizeof *to);
}

// Position of lane `lane` (0 to 31) of a group's pair row among two rows' bytes.
static int packed_byte(int row, int lane) {
    return lane / 8 * 16 + row % 2 * 8 + lane % 8;
}

// Loops of 32 equal steps without branches, which the compiler vectorises.
static void put_packed_tile(uint8_t *to, const uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K],
                            const uint8_t head[WEIGHT_HEAD_BYTES]) {
    uint16_t raw[WEIGHT_TILE_K / 2][2 * WEIGHT_PANEL];
    put_raw_tile(raw[0], t);
    memset(to, 0, WEIGHT_PACKED_BYTES);
    for (int row = 0; row < WEIGHT_TILE_K / 2; row++) {
        uint8_t *group = to + row / 4 * (WEIGHT_PACKED_BYTES / 4), code[32], low[32];
        uint8_t *rest = group + 64 + row % 4 / 2 * 64;
        for (int i = 0; i < 32; i++) {
            uint8_t value = raw[row][i] >> 8 & 0x7f, at = 0;
#pragma GCC unroll 8
            for (int j = 1; j < WEIGHT_HEAD_BYTES; j++) at += value >= head[j];
            code[i] = (uint8_t)((raw[row][i] >> 15 << 3 | at) << row % 4 / 2 * 4);
            low[i] = (uint8_t)raw[row][i];
        }
        for (int i = 0; i < 32; i += 8) {
            memcpy(rest + packed_byte(row, i), low + i, 8);
            for (int j = i; j < i + 8; j++) group[packed_byte(row, j)] |= code[j];
        }
    }
}

// First pass of PANEL_BF12: offset[panel + 1] = the panel's size.
static void measure_panel(void *ctx, int panel, int worker) {
    const struct pack *p = ctx;
    int64_t bytes = weight_header_bytes(p->w);
    for (int32_t i = 0; i < weight_tiles(p->w); i++) {
        uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K];
        fetch_tile16(p, panel, i, t);
        uint8_t head[WEIGHT_HEAD_BYTES];
        tile_head(t, head);
        bytes += weight_tile_bytes(head);
    }
    ((int64_t *)p->w->data)[panel + 1] = bytes;
}

static void pack_bf12_panel(void *ctx, int panel, int worker) {
    const struct pack *p = ctx;
    uint8_t *head = (uint8_t *)(uintptr_t)weight_panel(p->w, panel);
    uint8_t *to = head + weight_header_bytes(p->w);
    for (int32_t i = 0; i < weight_tiles(p->w); i++, head += WEIGHT_HEAD_BYTES) {
        uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K];
        fetch_tile16(p, panel, i, t);
        tile_head(t, head);
        if (weight_tile_is_raw(head))
            put_raw_tile((uint16_t *)to, t);
        else
            put_packed_tile(to, t, head);
        to += weight_tile_bytes(head);
    }
}

static void pack_bf16_panel(void *ctx, int panel, int worker) {
    const struct pack *p = ctx;
    uint16_t *to = (uint16_t *)(uintptr_t)weight_panel(p->w, panel);
    for (int32_t i = 0; i < weight_tiles(p->w); i++, to += WEIGHT_RAW_BYTES / 2) {
        uint16_t t[WEIGHT_PANEL][WEIGHT_TILE_K];
        fetch_tile16(p, panel, i, t);
        put_raw_tile(to, t);
    }
}

// PANEL_F32 and PANEL_F16: [k][16]. The allocation is zeroed, so only what exists is written.
static void pack_plain_panel(void *ctx, int panel, int worker) {
    const struct pack *p = ctx;
    const struct weight *w = p->w;
    size_t size = dtype_size(w->dtype);
    char *to = (char *)(uintptr_t)weight_panel(w, panel);
    for (int32_t k = 0; k < w->cols; k += WEIGHT_TILE_K) {
        int n = w->cols - k < WEIGHT_TILE_K ? w->cols - k : WEIGHT_TILE_K;
        for (int o = 0; o < WEIGHT_PANEL && panel * WEIGHT_PANEL + o < w->rows; o++) {
            char row[WEIGHT_TILE_K * sizeof(float)];
            fetch_row(p, panel * WEIGHT_PANEL + o, k, n, row);
            for (int i = 0; i < n; i++)
                memcpy(to + ((size_t)(k + i) * WEIGHT_PANEL + (size_t)o) * size,
                       row + (size_t)i * size, size);
        }
    }
}

static void copy_scales(const struct pack *p, int32_t panel) {
    const struct weight *w = p->w;
    const int32_t n = fp8_blocks(w->cols, w->block_k);
    const float factor = w->layout == PANEL_F8 ? WEIGHT_F8_FACTOR : 1;
    float *to = w->scales + (int64_t)panel * n * WEIGHT_PANEL;
    for (int o = 0; o < WEIGHT_PANEL; o++) {
        int64_t row = (int64_t)panel * WEIGHT_PANEL + o, at = row;
        if (row >= w->rows) break;
        const float *from = part_of(p, &at)->scales;
        for (int32_t i = 0; i < n; i++) to[i * WEIGHT_PANEL + o] = factor * from[at * n + i];
    }
}

// [k][16], as pack_plain_panel, a tile at a time.
static void pack_fp8_panel(void *ctx, int panel, int worker) {
    const struct pack *p = ctx;
    const struct weight *w = p->w;
    uint8_t *to = (uint8_t *)(uintptr_t)weight_panel(w, panel);
    for (int32_t k = 0; k < w->cols; k += WEIGHT_TILE_K, to += WEIGHT_TILE_K * WEIGHT_PANEL) {
        uint8_t t[WEIGHT_PANEL][WEIGHT_TILE_K] = {{0}};
        int n = w->cols - k < WEIGHT_TILE_K ? w->cols - k : WEIGHT_TILE_K;
        for (int o = 0; o < WEIGHT_PANEL && panel * WEIGHT_PANEL + o < w->rows; o++)
            fetch_row(p, panel * WEIGHT_PANEL + o, k, n, t[o]);
        for (int i = 0; i < WEIGHT_TILE_K; i++)
            for (int o = 0; o < WEIGHT_PANEL; o++) to[i * WEIGHT_PANEL + o] = t[o][i];
    }
    copy_scales(p, panel);
}

static void pack_int8_panel(void *ctx, int panel, int worker) {
    const struct pack *p = ctx;
    const struct weight *w = p->w;
    uint8_t *to = (uint8_t *)(uintptr_t)weight_panel(w, panel);
    for (int32_t k = 0; k < w->cols; k += INT8_TILE_K, to += INT8_TILE_BYTES) {
        int n = w->cols - k < INT8_TILE_K ? w->cols - k : INT8_TILE_K;
        for (int o = 0; o < WEIGHT_PANEL; o++) {
            int64_t row = (int64_t)panel * WEIGHT_PANEL + o;
            int8_t q[INT8_TILE_K] = {0};
            if (row < w->rows) fetch_row(p, row, k, n, q);
            int8_panel_put(to, o, q, INT8_TILE_K, INT8_TILE_K);
        }
    }
    copy_scales(p, panel);
}

// Places the panels one behind another; returns the whole size. offset[i + 1] holds panel i's size.
static int64_t place_panels(int64_t *offset, int32_t n_panels) {
    offset[0] = (int64_t)(((size_t)n_panels + 1) * sizeof *offset + 63) & ~INT64_C(63);
    for (int32_t i = 0; i < n_panels; i++) offset[i + 1] += offset[i];
    return offset[n_panels];
}

// PANEL_BF12's table of offsets lies at the front of data, but data can only be allocated when the
// sizes are known. The table is therefore built separately and copied.
static int alloc_bf12(struct cpu_backend *cpu, struct pack *p, struct err *err) {
    struct weight *w = p->w;
    int32_t n_panels = weight_panels(w);
    int64_t *offset = calloc((size_t)n_panels + 1, sizeof *offset);
    if (!offset) return err_set(err, E_NOMEM, "out of memory for a weight's table");
    w->data = offset;
    threads_for(cpu->threads, n_panels, measure_panel, p);
    w->bytes = (size_t)place_panels(offset, n_panels);
    w->data = pages_pool_alloc(&cpu->weights, w->bytes);
    if (w->data) memcpy(w->data, offset, ((size_t)n_panels + 1) * sizeof *offset);
    free(offset);
    return 0;
}

// --- packed or not

// Memory is two to three times slower than the last-level cache, which hides the cost of unpacking
// PANEL_BF12. With products of bf16 (AVX512-BF16) the cache hides it too: then all weights are
// packed, and more of them stay in the cache. In F32, where weights are also widened, a model that
// fits the cache is faster unpacked: weights stay PANEL_BF16 as long as together they fit the cache
// and each takes at most an eighth of it. A larger matrix belongs to a model that does not fit.
// Both layouts give the same bits, so the choice affects only speed. It depends on the machine and
// the order in which a model is loaded.
enum { RAW_MAX_SHARE = 8 };

void cpu_raw_budget_set(struct cpu_backend *cpu, size_t cache_bytes) {
    cpu->raw_left = cache_bytes;
    cpu->raw_max = cache_bytes / RAW_MAX_SHARE;
}

static size_t scales_bytes(const struct weight *w) {
    return (size_t)weight_panels(w) * (size_t)fp8_blocks(w->cols, w->block_k) * WEIGHT_PANEL *
           sizeof(float);
}

static size_t plain_bytes(const struct weight *w) {
    if (w->layout == PANEL_I8)
        return (size_t)weight_panels(w) * (size_t)int8_panel_bytes(w->cols) + scales_bytes(w);
    return (size_t)weight_panels(w) * (size_t)weight_tiles(w) * WEIGHT_TILE_K * WEIGHT_PANEL *
               dtype_size(w->dtype) +
           (w->layout == PANEL_F8 ? scales_bytes(w) : 0);
}

static enum weight_layout pick_layout(const struct cpu_backend *cpu, const struct weight *w) {
    if (w->dtype == DTYPE_F32) return PANEL_F32;
    if (w->dtype == DTYPE_F16) return PANEL_F16;
    if (w->dtype == DTYPE_I8) return PANEL_I8;
    if (w->dtype == DTYPE_F8_E4M3) return PANEL_F8;
    if (w->dtype == DTYPE_U8) return PANEL_GROUPS;
    size_t bytes = plain_bytes(w);
    bool raw = bytes <= cpu->raw_max && bytes <= cpu->raw_left;
    return raw ? PANEL_BF16 : (enum weight_layout)cpu->kernels->bf16_layout;
}

static bool counts_as_raw(const struct cpu_backend *cpu, const struct weight *w) {
    return w->data && w->layout == PANEL_BF16 && cpu->kernels->bf16_layout != PANEL_BF16;
}

int cpu_weight_init(struct backend *be, struct weight *w, const struct tensor_view *parts,
                    int n_parts, struct err *err) {
    struct cpu_backend *cpu = cpu_of(be);
    int64_t rows = 0;
    *w = (struct weight){0};
    // A panel is one item of a job.
    TRY(weight_parts_check(parts, n_parts, (int64_t)THREADS_MAX_ITEMS * WEIGHT_PANEL, "the CPU",
                           &rows, err));
    w->dtype = parts[0].dtype;
    w->rows = (int32_t)rows;
    w->cols = (int32_t)parts[0].cols;
    w->block_k = parts[0].block_k;
    w->layout = pick_layout(cpu, w);
    TRY(cpu_linear_reserve(cpu, w, err));
    if (w->layout == PANEL_GROUPS) return group_weight_init(cpu, w, parts, n_parts, err);
    struct pack p = {w, parts, n_parts};
    if (w->layout == PANEL_BF12) {
        TRY(alloc_bf12(cpu, &p, err));
    } else {
        w->bytes = plain_bytes(w);
        w->data = pages_pool_alloc(&cpu->weights, w->bytes);
    }
    if (!w->data) {
        size_t bytes = w->bytes;
        *w = (struct weight){0};
        return err_set(err, E_NOMEM, "out of memory for a weight of %zu bytes", bytes);
    }
    if (counts_as_raw(cpu, w)) cpu->raw_left -= w->bytes;
    if (w->layout == PANEL_I8 || w->layout == PANEL_F8)
        w->scales = (float *)(uintptr_t)weight_panel(w, weight_panels(w)); // after the last one
    threads_for(cpu->threads, weight_panels(w),
                w->layout == PANEL_I8     ? pack_int8_panel
                : w->layout == PANEL_F8   ? pack_fp8_panel
                : w->layout == PANEL_BF12 ? pack_bf12_panel
                : w->layout == PANEL_BF16 ? pack_bf16_panel
                                          : pack_plain_panel,
                &p);
    return 0;
}

int cpu_weight_map(struct backend *be, struct weight *w, const void *panels,
                   const struct tensor_view *parts, int n_parts, struct err *err) {
    struct cpu_backend *cpu = cpu_of(be);
    int64_t rows = 0;
    *w = (struct weight){0};
    // A panel is one item of a job.
    TRY(weight_parts_check(parts, n_parts, (int64_t)THREADS_MAX_ITEMS * WEIGHT_PANEL, "the CPU",
                           &rows, err));
    if (parts[0].dtype != DTYPE_I8 || (uintptr_t)panels % INT8_PANEL_ALIGNMENT)
        return err_set(err, E_INVAL, "panels of 8 bits that are not aligned to %d bytes",
                       INT8_PANEL_ALIGNMENT);
    struct weight mapped = {.data = (void *)(uintptr_t)panels,
                            .dtype = DTYPE_I8,
                            .rows = (int32_t)rows,
                            .cols = (int32_t)parts[0].cols,
                            .layout = PANEL_I8,
                            .mapped = true};
    mapped.bytes = plain_bytes(&mapped);
    TRY(cpu_linear_reserve(cpu, &mapped, err));
    size_t bytes = scales_bytes(&mapped);
    mapped.scales = pages_pool_alloc(&cpu->weights, bytes);
    if (!mapped.scales)
        return err_set(err, E_NOMEM, "out of memory for scales of %zu bytes", bytes);
    struct pack p = {&mapped, parts, n_parts};
    for (int32_t i = 0; i < weight_panels(&mapped); i++) copy_scales(&p, i);
    *w = mapped;
    return 0;
}

void cpu_weight_release(struct backend *be, struct weight *w) {
    struct cpu_backend *cpu = cpu_of(be);
    if (counts_as_raw(cpu, w)) cpu->raw_left += w->bytes;
    pages_pool_free(&cpu->weights, w->mapped ? w->scales : w->data);
    *w = (struct weight){0};
}

// Lane `lane` of one tile of PANEL_BF12.
static void bf12_lane(const uint8_t *tile, const uint8_t *head, int32_t lane, int32_t n_k,
                      float *out) {
    for (int32_t k = 0; k < n_k; k++) {
        int32_t pair = k / 2, word = 2 * lane + k % 2;
        uint16_t raw;
        if (weight_tile_is_raw(head)) {
            memcpy(&raw, tile + pair * 64 + word * 2, 2);
        } else {
            const uint8_t *group = tile + pair / 4 * (WEIGHT_PACKED_BYTES / 4);
            const int at = packed_byte(pair, word), half = pair % 4 / 2;
            unsigned code = group[at] >> (4 * half) & 15, low = group[64 + 64 * half + at];
            raw = (uint16_t)((code >> 3) << 15 | (unsigned)head[code & 7] << 8 | low);
        }
        out[k] = bf16_to_f32(raw);
    }
}

static void bf12_row(const struct weight *w, int32_t row, float *out) {
    const uint8_t *head = weight_panel(w, row / WEIGHT_PANEL),
                  *tile = head + weight_header_bytes(w);
    for (int32_t i = 0, k = 0; i < weight_tiles(w); i++, k += WEIGHT_TILE_K) {
        int32_t n = w->cols - k < WEIGHT_TILE_K ? w->cols - k : WEIGHT_TILE_K;
        bf12_lane(tile, head, row % WEIGHT_PANEL, n, out + k);
        tile += weight_tile_bytes(head);
        head += WEIGHT_HEAD_BYTES;
    }
}

void weight_row(const struct weight *w, int32_t row, float *out) {
    if (w->layout == PANEL_BF12) {
        bf12_row(w, row, out);
        return;
    }
    if (w->layout == PANEL_GROUPS) {
        group_weight_row(w, row, out);
        return;
    }
    const uint8_t *p = weight_panel(w, row / WEIGHT_PANEL);
    int32_t lane = row % WEIGHT_PANEL;
    for (int32_t k = 0; k < w->cols; k++) {
        if (w->layout == PANEL_F32)
            out[k] = ((const float *)p)[k * WEIGHT_PANEL + lane];
        else if (w->layout == PANEL_F16)
            out[k] = f16_to_f32(((const uint16_t *)p)[k * WEIGHT_PANEL + lane]);
        else if (w->layout == PANEL_F8)
            out[k] = weight_scales(w, row / WEIGHT_PANEL, w->block_k ? k / w->block_k : 0)[lane] *
                     (e4m3_to_f32(p[k * WEIGHT_PANEL + lane]) / WEIGHT_F8_FACTOR);
        else if (w->layout == PANEL_I8)
            out[k] = w->scales[row] * (float)(p[k / 4 * 64 + lane * 4 + k % 4] - 128);
        else
            out[k] =
                bf16_to_f32(((const uint16_t *)p)[k / 2 * 2 * WEIGHT_PANEL + 2 * lane + k % 2]);
    }
}
