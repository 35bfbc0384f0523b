// Packing of weights of few bits. See groups.h. Rows come from the source one by one, on all workers, so that beside
// the packed weights only a row for each worker is in memory.
#include "kernels/cpu/groups.h"
#include "kernels/cpu/cpu.h"
#include <stdlib.h>
#include <string.h>

struct pack {
    struct cpu_backend *cpu;
    struct weight *w;
    const struct tensor_view *parts;
    struct err *err;
    int failed; // the first failure's code; err is its
};

// --- the table of runs

static size_t scale_size(enum group_scale s) {
    return s == GROUP_SCALE_F32 ? sizeof(float) : s == GROUP_SCALE_NESTED ? 1 : sizeof(uint16_t);
}

static int32_t lines(int32_t bytes) {
    return (bytes + 63) & ~63;
}

// The places in a tile.
static void place(struct group_run *run, int64_t cols) {
    const struct group_format *f = &run->format;
    const int32_t n = GROUP_TILE_K / f->group * GROUP_PANEL;
    const int32_t super = GROUP_PANEL * (int32_t)sizeof(uint16_t);
    run->zeros_at =
        n * (int32_t)scale_size(f->scale) + (f->scale == GROUP_SCALE_NESTED ? super : 0);
    run->codes_at = lines(run->zeros_at + (f->zero_kind == GROUP_ZERO_U8      ? n
                                           : f->zero_kind == GROUP_MIN_F16    ? 2 * n
                                           : f->zero_kind == GROUP_MIN_NESTED ? n + super
                                                                              : 0));
    run->tile_bytes = run->codes_at + group_code_bytes(f->bits);
    run->panel_bytes = group_tiles(cols) * run->tile_bytes;
}

static bool is_format(const struct group_format *f) {
    return ((f->bits >= 2 && f->bits <= 6) || f->bits == 8) && f->group >= GROUP_MIN &&
           f->group <= GROUP_TILE_K && GROUP_TILE_K % f->group == 0 && (!f->book || f->bits == 4);
}

// Parts of one format are one run, whose panels may have rows of two parts.
static int make_runs(struct group_panels *p, const struct weight *w,
                     const struct tensor_view *parts, int n_parts, struct err *err) {
    int64_t row = 0, at = GROUP_DATA_AT;
    for (int i = 0; i < n_parts; row += parts[i++].rows) {
        const struct group_format *f = &view_groups(&parts[i])->format;
        struct group_run *run = &p->runs[p->n_runs];
        if (!is_format(f)) return err_set(err, E_INVAL, "part %d of a weight has no format", i);
        if (p->n_runs > 0 && group_format_equal(f, &run[-1].format)) continue;
        if (p->n_runs == GROUP_MAX_RUNS || row % GROUP_PANEL)
            return err_set(err, E_UNSUPPORTED,
                           "part %d of a weight of few bits has another format and begins at row "
                           "%lld, within a panel of %d",
                           i, (long long)row, GROUP_PANEL);
        *run = (struct group_run){.format = *f, .first_panel = (int32_t)(row / GROUP_PANEL)};
        place(run, w->cols);
        p->n_runs++;
    }
    for (int i = 0; i < p->n_runs; i++) {
        const int32_t end = i + 1 < p->n_runs ? p->runs[i + 1].first_panel : weight_panels(w);
        p->runs[i].at = at;
        at += (end - p->runs[i].first_panel) * p->runs[i].panel_bytes;
    }
    return 0;
}

// --- packing

// Numbers of 1, 2 or 4 bytes of a tile's groups, which lie `size` bytes apart, to their lane.
static void put_lane(uint8_t *to, int lane, const void *from, int32_t n, size_t size) {
    const uint8_t *at = from;
    to += (size_t)lane * size;
    if (size == 1)
        for (int32_t i = 0; i < n; i++) to[i * GROUP_PANEL] = at[i];
    else if (size == 2)
        for (int32_t i = 0; i < n; i++) memcpy(to + 2 * i * GROUP_PANEL, at + 2 * i, 2);
    else
        for (int32_t i = 0; i < n; i++) memcpy(to + 4 * i * GROUP_PANEL, at + 4 * i, 4);
}

// Bits [first, first + bits) of each code, as a plane.
static void put_plane(uint8_t *to, int lane, const uint8_t *codes, int32_t first, int32_t bits) {
    const uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
    for (int k = 0; k < GROUP_TILE_K; k += 32 / bits, to += 4 * GROUP_PANEL) {
        uint32_t word = 0, four;
        for (int i = 0; i < 8 / bits; i++) {
            memcpy(&four, codes + k + 4 * i, 4);
            word |= (four >> first & mask) << (bits * i);
        }
        memcpy(to + lane * 4, &word, 4);
    }
}

static void put_codes(uint8_t *to, int lane, const uint8_t *codes, int32_t bits) {
    const int32_t plane = group_plane_bits(bits);
    if (bits == 8) {
        for (int k = 0; k < GROUP_TILE_K; k += 4)
            memcpy(to + k * GROUP_PANEL + lane * 4, codes + k, 4);
        return;
    }
    put_plane(to, lane, codes, 0, plane);
    if (bits > plane) put_plane(to + group_code_bytes(plane), lane, codes, plane, bits - plane);
}

// Groups past the last column keep the zeros of the allocation.
static void put_row(uint8_t *panel, const struct group_run *run, int lane, int64_t cols,
                    const struct group_row *row) {
    const struct group_format *f = &run->format;
    const size_t size = scale_size(f->scale);
    const int32_t per_tile = GROUP_TILE_K / f->group;
    const int64_t groups = group_count(f, cols);
    const int32_t super = GROUP_PANEL * (int32_t)sizeof(uint16_t);
    for (int64_t t = 0; t < group_tiles(cols); t++, panel += run->tile_bytes) {
        const int64_t first = t * per_tile;
        const int32_t n = (int32_t)(groups - first < per_tile ? groups - first : per_tile);
        uint8_t *scales = panel, *zeros = panel + run->zeros_at;
        if (f->scale == GROUP_SCALE_NESTED) {
            put_lane(scales, lane, row->supers + t, 1, sizeof(uint16_t));
            scales += super;
        }
        put_lane(scales, lane, (const char *)row->scales + (size_t)first * size, n, size);
        if (f->zero_kind == GROUP_MIN_NESTED) {
            put_lane(zeros, lane, row->min_supers + t, 1, sizeof(uint16_t));
            zeros += super;
        }
        if (f->zero_kind == GROUP_MIN_F16)
            put_lane(zeros, lane, (const uint16_t *)row->zeros + first, n, sizeof(uint16_t));
        else if (f->zero_kind != GROUP_ZERO_SAME)
            put_lane(zeros, lane, (const uint8_t *)row->zeros + first, n, 1);
        put_codes(panel + run->codes_at, lane, row->codes + t * GROUP_TILE_K, f->bits);
    }
}

static void fail(struct pack *p, const struct err *why) {
    int none = 0;
    if (__atomic_compare_exchange_n(&p->failed, &none, why->code, false, __ATOMIC_RELAXED,
                                    __ATOMIC_RELAXED))
        err_set(p->err, why->code, "%s", why->text);
}

static void pack_panel(void *ctx, int panel, int worker) {
    struct pack *p = ctx;
    const struct weight *w = p->w;
    const struct group_run *run = group_run_of(w->data, panel);
    uint8_t *to = (uint8_t *)(uintptr_t)group_panel(w->data, panel);
    struct group_row row;
    struct err why = {0};
    if (__atomic_load_n(&p->failed, __ATOMIC_RELAXED)) return;
    void *room = group_row_alloc(&row, w->cols);
    if (!room) {
        err_set(&why, E_NOMEM, "no memory for a row of %d weights", w->cols);
        fail(p, &why);
        return;
    }
    for (int o = 0; o < GROUP_PANEL && why.code == 0; o++) {
        int64_t r = (int64_t)panel * GROUP_PANEL + o;
        const struct tensor_view *v = p->parts;
        if (r >= w->rows) break;
        while (r >= v->rows) r -= v++->rows;
        const struct group_source *source = view_groups(v);
        if (source->row(source->ctx, r, &row, &why) < 0) break;
        put_row(to, run, o, w->cols, &row);
    }
    if (why.code < 0) fail(p, &why);
    free(room);
}

int group_weight_init(struct cpu_backend *cpu, struct weight *w, const struct tensor_view *parts,
                      int n_parts, struct err *err) {
    struct group_panels panels = {0};
    TRY(make_runs(&panels, w, parts, n_parts, err));
    const struct group_run *last = &panels.runs[panels.n_runs - 1];
    w->bytes = (size_t)(last->at + (weight_panels(w) - last->first_panel) * last->panel_bytes);
    w->data = pages_pool_alloc(&cpu->weights, w->bytes);
    if (!w->data) {
        size_t bytes = w->bytes;
        *w = (struct weight){0};
        return err_set(err, E_NOMEM, "out of memory for a weight of %zu bytes", bytes);
    }
    memcpy(w->data, &panels, sizeof panels);
    struct pack p = {cpu, w, parts, err, 0};
    threads_for(cpu->threads, weight_panels(w), pack_panel, &p);
    if (p.failed < 0) cpu_weight_release(&cpu->base, w);
    return p.failed;
}

// --- looking at a row

static float number(const uint8_t *p, enum dtype t) {
    uint16_t half;
    float wide;
    if (t == DTYPE_F32) return memcpy(&wide, p, sizeof wide), wide;
    memcpy(&half, p, sizeof half);
    return t == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static float scale_of(const uint8_t *tile, const struct group_run *run, int lane, int32_t group) {
    const int32_t at = group * GROUP_PANEL + lane;
    switch (run->format.scale) {
    case GROUP_SCALE_F16:
        return number(tile + 2 * at, DTYPE_F16);
    case GROUP_SCALE_BF16:
        return number(tile + 2 * at, DTYPE_BF16);
    case GROUP_SCALE_F32:
        return number(tile + 4 * at, DTYPE_F32);
    default:
        return number(tile + 2 * lane, DTYPE_F16) * (float)(int8_t)tile[2 * GROUP_PANEL + at];
    }
}

static float offset_of(const uint8_t *tile, const struct group_run *run, int lane, int32_t group,
                       float scale) {
    const uint8_t *zeros = tile + run->zeros_at;
    const int32_t at = group * GROUP_PANEL + lane;
    switch (run->format.zero_kind) {
    case GROUP_ZERO_SAME:
        return -scale * (float)run->format.zero;
    case GROUP_ZERO_U8:
        return -scale * (float)(run->format.zero + zeros[at]);
    case GROUP_MIN_F16:
        return number(zeros + 2 * at, DTYPE_F16);
    default:
        return -number(zeros + 2 * lane, DTYPE_F16) * (float)zeros[2 * GROUP_PANEL + at];
    }
}

static int plane_of(const uint8_t *plane, int32_t bits, int lane, int32_t k) {
    const int32_t columns = 32 / bits; // of a word
    return plane[k / columns * 64 + lane * 4 + k % 4] >> (k % columns / 4 * bits) &
           ((1 << bits) - 1);
}

static int code_of(const uint8_t *codes, const struct group_format *f, int lane, int32_t k) {
    const int32_t bits = group_plane_bits(f->bits);
    if (bits == 8) return codes[k / 4 * 64 + lane * 4 + k % 4];
    int code = plane_of(codes, bits, lane, k);
    if (f->bits > bits)
        code |= plane_of(codes + group_code_bytes(bits), f->bits - bits, lane, k) << bits;
    return f->book ? f->book[code] : code;
}

void group_weight_row(const struct weight *w, int32_t row, float *out) {
    const struct group_run *run = group_run_of(w->data, row / GROUP_PANEL);
    const uint8_t *tile = group_panel(w->data, row / GROUP_PANEL);
    const int32_t group = run->format.group;
    const int lane = row % GROUP_PANEL;
    for (int32_t k = 0; k < w->cols; k += group) {
        const int32_t in_tile = k % GROUP_TILE_K;
        const uint8_t *at = tile + (int64_t)(k / GROUP_TILE_K) * run->tile_bytes;
        const float scale = scale_of(at, run, lane, in_tile / group);
        const float offset = offset_of(at, run, lane, in_tile / group, scale);
        for (int32_t i = 0; i < group && k + i < w->cols; i++)
            // In double, and rounded once: as a fused multiply-add rounds it.
            out[k + i] = (float)((double)scale *
                                     code_of(at + run->codes_at, &run->format, lane, in_tile + i) +
                                 offset);
    }
}
