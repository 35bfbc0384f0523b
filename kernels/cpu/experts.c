// A mixture's experts: y =|+= the weighted sum over each row's experts of down(act(up(x))).
//
// The pairs (row, expert) are sorted by expert. All pairs of an expert are a segment, whose rows of x are
// gathered next to each other; a long segment is cut at LINEAR_BLOCK_ROWS. Each phase is one job for the
// workers over all segments, not one for each expert:
//
//   gather     rows of x to their segments, and prepares them where the loops want it (linear.c)
//   up         panels of each segment's `up`, by linear's loops
//   activate   rows; prepares them for `down`
//   down       panels of each segment's `down`
//   combine    rows of y: results of the row's pairs, experts ascending
//
// linear's loops give a row the same bits in any company, and a row's sum has one order, so a row's result
// depends on that row alone. An expert's weights are read once for each segment; decode reads those of the chosen
// experts at the memory's rate, as linear does, with as many streams in flight.
//
// Work memory holds one block of rows at a time (block_rows), so that a long prompt takes no more of it.
#include "kernels/cpu/cpu.h"
#include <math.h>
#include <string.h>

enum {
    BLOCK_PAIRS = 4096, // about as many pairs at a time
    ROWS_ITEM = 32,     // rows of an item of gather and activate
    PANELS_UNIT = 4,    // panels that few rows stream side by side
    PREPARED_ROWS = 16, // loops prepare whole tiles of rows
    ALIGNMENT = 64,
    SMALL = 32768, // operations that one core does within the time of a hand-over
};

struct segment {
    int32_t expert, first, n; // pairs [first, first + n)
    int32_t rows_item;        // the first item of its rows
    int64_t prepared;         // its rows in job.prepared, in bytes
};

// Where the parts of the work memory begin; `bytes` is the whole.
struct layout {
    size_t row, place, first, segments, in, up, activated, prepared, bytes;
};

struct experts_job {
    struct cpu_backend *cpu;
    const struct experts_args *args;
    enum linear_mode mode;
    float *y;
    const float *x;
    const int32_t *ids;
    const float *weights;
    int32_t n_rows, n_segments, n_row_items;
    int32_t item_panels; // of the phase at hand
    const struct weight *matrices;
    int32_t *row;   // (pairs) of each sorted pair
    int32_t *place; // (n_rows, n_chosen) where each pair lies
    int32_t *first; // (n_experts + 1)
    struct segment *segments;
    float *in;        // (pairs, H): x, then the results of down
    float *up;        // (pairs, up's rows)
    float *activated; // (pairs, down's columns)
    uint8_t *prepared;
};

static int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

static int32_t block_rows(int32_t n, const struct experts_args *a) {
    int32_t most = BLOCK_PAIRS / a->n_chosen;
    return n < most ? n : most > 0 ? most : 1;
}

static int32_t most_segments(int32_t pairs, const struct experts_args *a) {
    return (pairs < a->n_experts ? pairs : a->n_experts) + pairs / LINEAR_BLOCK_ROWS;
}

static size_t take(struct layout *l, size_t n, size_t size) {
    size_t at = l->bytes;
    l->bytes += (n * size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static size_t prepared_bytes(const struct linear_loops *l, int32_t n) {
    if (!l->split) return 0;
    size_t rows = (size_t)ceil_div(n, PREPARED_ROWS) * PREPARED_ROWS;
    return (l->header_bytes + rows * l->row_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

// Both products use the same memory for their prepared rows, one after the other. An expert's weights decide the
// loops, since experts of one layer may differ in their formats.
static size_t segment_bytes(const struct cpu_backend *cpu, const struct experts_args *args,
                            int32_t expert, int32_t n) {
    const struct linear_loops up = cpu_linear_loops(cpu, &args->up[expert]),
                              down = cpu_linear_loops(cpu, &args->down[expert]);
    size_t a = prepared_bytes(&up, n), b = prepared_bytes(&down, n);
    return a > b ? a : b;
}

// All but the rows prepared for a product, which lie behind and are sized by the experts' formats.
static struct layout layout_of(int32_t n, const struct experts_args *a) {
    struct layout l = {0};
    const int32_t rows = block_rows(n, a), pairs = rows * a->n_chosen,
                  segments = most_segments(pairs, a);
    l.row = take(&l, (size_t)pairs, sizeof(int32_t));
    l.place = take(&l, (size_t)pairs, sizeof(int32_t));
    l.first = take(&l, (size_t)a->n_experts + 1, sizeof(int32_t));
    l.segments = take(&l, (size_t)segments, sizeof(struct segment));
    l.in = take(&l, (size_t)pairs * (size_t)a->up->cols, sizeof(float));
    l.up = take(&l, (size_t)pairs * (size_t)a->up->rows, sizeof(float));
    l.activated = take(&l, (size_t)pairs * (size_t)a->down->cols, sizeof(float));
    l.prepared = l.bytes;
    return l;
}

size_t cpu_experts_bytes(struct backend *be, int32_t n, const struct experts_args *args) {
    if (n <= 0) return 0;
    struct layout l = layout_of(n, args);
    const int32_t pairs = block_rows(n, args) * args->n_chosen;
    size_t most = 0;
    for (int32_t e = 0; e < args->n_experts; e++) {
        const size_t one = segment_bytes(cpu_of(be), args, e, PREPARED_ROWS);
        if (one > most) most = one;
    }
    // Segments round their rows up, and each has a header.
    take(&l, (size_t)(pairs / PREPARED_ROWS) + (size_t)most_segments(pairs, args), most);
    return l.bytes;
}

// --- sorting -------------------------------------------------------------------------------------

static void add_segment(struct experts_job *j, int32_t expert, int32_t first, int32_t n) {
    struct segment *s = &j->segments[j->n_segments++];
    *s = (struct segment){expert, first, n, j->n_row_items, 0};
    if (s > j->segments)
        s->prepared =
            s[-1].prepared + (int64_t)segment_bytes(j->cpu, j->args, s[-1].expert, s[-1].n);
    j->n_row_items += ceil_div(n, ROWS_ITEM);
}

// Rows ascend within an expert.
static void sort_pairs(struct experts_job *j) {
    const int32_t n_experts = j->args->n_experts, k = j->args->n_chosen, pairs = j->n_rows * k;
    memset(j->first, 0, ((size_t)n_experts + 1) * sizeof *j->first);
    for (int32_t i = 0; i < pairs; i++) j->first[j->ids[i] + 1]++;
    j->n_segments = j->n_row_items = 0;
    for (int32_t e = 0; e < n_experts; e++) {
        const int32_t end = j->first[e] + j->first[e + 1];
        for (int32_t at = j->first[e], n; at < end; at += n) {
            n = end - at < LINEAR_BLOCK_ROWS ? end - at : LINEAR_BLOCK_ROWS;
            add_segment(j, e, at, n);
        }
        j->first[e + 1] = end;
    }
    for (int32_t i = 0; i < pairs; i++) {
        const int32_t at = j->first[j->ids[i]]++;
        j->row[at] = i / k;
        j->place[i] = at;
    }
}

// --- phases --------------------------------------------------------------------------------------

static void run(struct experts_job *j, int64_t operations, int32_t n, threads_fn *fn) {
    if (operations >= SMALL) {
        threads_for(j->cpu->threads, n, fn, j);
        return;
    }
    for (int32_t i = 0; i < n; i++) fn(j, i, 0);
}

// The segment whose rows have this item.
static const struct segment *segment_of(const struct experts_job *j, int32_t item) {
    int32_t low = 0, high = j->n_segments;
    while (high - low > 1) {
        int32_t middle = (low + high) / 2;
        *(j->segments[middle].rows_item <= item ? &low : &high) = middle;
    }
    return &j->segments[low];
}

// linear's arguments for a segment: rows of `from` times a matrix of its expert.
static struct linear_args segment_args(const struct experts_job *j, const struct segment *s,
                                       const struct weight *matrices, float *to, const float *from,
                                       const float *bias) {
    const struct weight *w = &matrices[s->expert];
    return (struct linear_args){LINEAR_STORE,
                                to + (int64_t)s->first * w->rows,
                                from + (int64_t)s->first * w->cols,
                                s->n,
                                w,
                                bias ? bias + (int64_t)s->expert * w->rows : NULL,
                                j->prepared + s->prepared,
                                0};
}

static struct linear_args up_args(const struct experts_job *j, const struct segment *s) {
    return segment_args(j, s, j->args->up, j->up, j->in, j->args->up_bias);
}

static struct linear_args down_args(const struct experts_job *j, const struct segment *s) {
    return segment_args(j, s, j->args->down, j->in, j->activated, j->args->down_bias);
}

struct rows { // of an item, within its segment
    const struct segment *s;
    int32_t first, n;
};

static struct rows item_rows(const struct experts_job *j, int32_t item) {
    const struct segment *s = segment_of(j, item);
    const int32_t first = (item - s->rows_item) * ROWS_ITEM, rest = s->n - first;
    return (struct rows){s, first, rest < ROWS_ITEM ? rest : ROWS_ITEM};
}

static void gather_item(void *ctx, int item, int worker) {
    const struct experts_job *j = ctx;
    const struct rows r = item_rows(j, item);
    const int64_t width = j->args->up->cols;
    for (int32_t i = r.s->first + r.first; i < r.s->first + r.first + r.n; i++)
        memcpy(j->in + i * width, j->x + j->row[i] * width, (size_t)width * sizeof *j->in);
    const struct linear_args a = up_args(j, r.s);
    const struct linear_loops loops = cpu_linear_loops(j->cpu, a.w);
    if (loops.split) loops.split(&a, r.first, r.n);
}

static void activate_item(void *ctx, int item, int worker) {
    const struct experts_job *j = ctx;
    const struct experts_args *args = j->args;
    const struct cpu_kernels *k = j->cpu->kernels;
    const struct rows r = item_rows(j, item);
    const int32_t width = args->down->cols;
    const bool gated = args->activate.gated;
    for (int32_t i = r.s->first + r.first; i < r.s->first + r.first + r.n; i++) {
        float *up = j->up + (int64_t)i * args->up->rows;
        if (args->limit > 0) k->limit_row(up, width, args->limit);
        k->activate_row(args->activate.act, j->activated + (int64_t)i * width, up,
                        gated ? up + width : NULL, width);
    }
    const struct linear_args a = down_args(j, r.s);
    const struct linear_loops loops = cpu_linear_loops(j->cpu, a.w);
    if (loops.split) loops.split(&a, r.first, r.n);
}

// Items of a product: each segment has the same number of panels.
static struct linear_item panels_of(const struct experts_job *j, int32_t item,
                                    const struct segment **s) {
    const int32_t n_panels = weight_panels(j->matrices),
                  n_items = ceil_div(n_panels, j->item_panels);
    const int32_t panel = item % n_items * j->item_panels, rest = n_panels - panel;
    *s = &j->segments[item / n_items];
    return (struct linear_item){.n_rows = (*s)->n,
                                .panel = panel,
                                .n_panels = rest < j->item_panels ? rest : j->item_panels,
                                .next_panel = panel + j->item_panels};
}

static void up_item(void *ctx, int item, int worker) {
    const struct experts_job *j = ctx;
    const struct segment *s;
    const struct linear_item panels = panels_of(j, item, &s);
    const struct linear_args a = up_args(j, s);
    cpu_linear_loops(j->cpu, a.w).item(&a, &panels, j->cpu->scratch[worker].data);
}

static void down_item(void *ctx, int item, int worker) {
    const struct experts_job *j = ctx;
    const struct segment *s;
    const struct linear_item panels = panels_of(j, item, &s);
    const struct linear_args a = down_args(j, s);
    cpu_linear_loops(j->cpu, a.w).item(&a, &panels, j->cpu->scratch[worker].data);
}

// Several items for each worker; few panels each where there are few in all.
static void multiply(struct experts_job *j, const struct weight *matrices, int64_t pairs,
                     threads_fn *fn) {
    const int32_t n_panels = weight_panels(matrices);
    const int32_t wanted = 4 * threads_count(j->cpu->threads);
    int32_t panels = n_panels * j->n_segments / wanted / PANELS_UNIT * PANELS_UNIT;
    j->matrices = matrices;
    j->item_panels = panels < PANELS_UNIT           ? PANELS_UNIT
                     : panels > LINEAR_GROUP_PANELS ? LINEAR_GROUP_PANELS
                                                    : panels;
    run(j, pairs * matrices->rows * matrices->cols,
        j->n_segments * ceil_div(n_panels, j->item_panels), fn);
}

static void combine_rows(void *ctx, int32_t row, int32_t n_rows) {
    const struct experts_job *j = ctx;
    const int32_t k = j->args->n_chosen, width = j->args->down->rows;
    for (int32_t r = row; r < row + n_rows; r++) {
        float *y = j->y + (int64_t)r * width;
        if (j->mode != LINEAR_ADD) memset(y, 0, (size_t)width * sizeof *y);
        for (int32_t i = r * k; i < r * k + k; i++)
            j->cpu->kernels->add_weighted(y, j->in + (int64_t)j->place[i] * width, j->weights[i],
                                          width);
    }
}

static void run_block(struct experts_job *j) {
    const struct experts_args *a = j->args;
    const int64_t pairs = (int64_t)j->n_rows * a->n_chosen;
    sort_pairs(j);
    run(j, pairs * a->up->cols, j->n_row_items, gather_item);
    multiply(j, a->up, pairs, up_item);
    run(j, 4 * pairs * a->up->rows, j->n_row_items, activate_item);
    multiply(j, a->down, pairs, down_item);
    cpu_for_rows(j->cpu, j->n_rows, (int64_t)a->n_chosen * a->down->rows, combine_rows, j);
}

int cpu_experts(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                const int32_t *ids, const float *weights, const struct experts_args *args,
                void *work) {
    if (args->shared) return OP_DECLINED;
    if (n == 0) return 0;
    struct cpu_backend *cpu = cpu_of(be);
    const struct layout l = layout_of(n, args);
    const int32_t block = block_rows(n, args);
    char *base = work;
    struct experts_job j = {
        .cpu = cpu,
        .args = args,
        .mode = mode,
        .row = (int32_t *)(void *)(base + l.row),
        .place = (int32_t *)(void *)(base + l.place),
        .first = (int32_t *)(void *)(base + l.first),
        .segments = (struct segment *)(void *)(base + l.segments),
        .in = (float *)(void *)(base + l.in),
        .up = (float *)(void *)(base + l.up),
        .activated = (float *)(void *)(base + l.activated),
        .prepared = (uint8_t *)base + l.prepared,
    };
    for (int32_t row = 0; row < n; row += block) {
        j.n_rows = n - row < block ? n - row : block;
        j.y = (float *)y + (int64_t)row * args->down->rows;
        j.x = (const float *)x + (int64_t)row * args->up->cols;
        j.ids = ids + (int64_t)row * args->n_chosen;
        j.weights = weights + (int64_t)row * args->n_chosen;
        run_block(&j);
    }
    return 0;
}

// --- the feed-forward beside the experts ---------------------------------------------------------

struct gated_job {
    struct cpu_backend *cpu;
    float *y;
    const float *x, *gate;
    int32_t width;
};

static void add_gated_rows(void *ctx, int32_t row, int32_t n_rows) {
    const struct gated_job *j = ctx;
    for (int32_t r = row; r < row + n_rows; r++) {
        const int64_t at = (int64_t)r * j->width;
        j->cpu->kernels->add_weighted(j->y + at, j->x + at, 1 / (1 + expf(-j->gate[r])), j->width);
    }
}

int cpu_add_gated(struct backend *be, void *y, const void *x, const float *gate, int32_t n,
                  int32_t width) {
    struct gated_job j = {cpu_of(be), y, x, gate, width};
    cpu_for_rows(j.cpu, n, width, add_gated_rows, &j);
    return 0;
}
