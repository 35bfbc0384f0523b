// Latent attention: queries come into the latents' space by a matrix for each head, and what attention gives comes
// back by another one. Between them are the cache's own ops.
//
// A matrix for each head: its parts are gathered into rows, multiplied by linear's loops, and put where they belong. A
// row's bits are those that linear would give it, in any company. Work memory holds one block of rows at a time.
#include "kernels/cpu/cpu.h"
#include <string.h>

enum {
    BLOCK_PARTS = 4096, // rows times heads at a time
    ROWS_ITEM = 32,
    PANELS_UNIT = 4,
    PREPARED_ROWS = 16, // loops prepare whole tiles of rows
    ALIGNMENT = 64,
    SMALL = 32768, // operations that one core does within the time of a hand-over
};

// A matrix for each head, for a part of each row. x_row ... are elements from one row to the next, and from one head's
// part to the next one's.
struct heads_args {
    const struct weight *w; // (n_heads) of equal shapes
    int32_t n_heads;
    int64_t x_row, x_head, y_row, y_head;
};

struct heads_job {
    struct cpu_backend *cpu;
    const struct heads_args *args;
    struct linear_loops loops;
    float *y;
    const float *x;
    int32_t n, row_items, item_panels, panel_items;
    float *in, *out; // (n_heads, n, cols), (n_heads, n, rows)
    uint8_t *prepared;
    size_t prepared_bytes; // of a head
};

static int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

static size_t aligned(size_t bytes) {
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static int32_t block_rows(int32_t n, const struct heads_args *a) {
    int32_t most = BLOCK_PARTS / a->n_heads;
    if (most > LINEAR_BLOCK_ROWS) most = LINEAR_BLOCK_ROWS;
    return n < most ? n : most > 0 ? most : 1;
}

static size_t floats_bytes(int32_t n, const struct heads_args *a, int32_t width) {
    return aligned((size_t)a->n_heads * (size_t)n * (size_t)width * sizeof(float));
}

static size_t prepared_bytes(const struct linear_loops *l, int32_t n) {
    if (!l->split) return 0;
    size_t rows = (size_t)ceil_div(n, PREPARED_ROWS) * PREPARED_ROWS;
    return aligned(l->header_bytes + rows * l->row_bytes);
}

static size_t heads_bytes(struct cpu_backend *cpu, int32_t n, const struct heads_args *a) {
    const struct linear_loops loops = cpu_linear_loops(cpu, a->w);
    const int32_t rows = block_rows(n, a);
    return n > 0 ? floats_bytes(rows, a, a->w->cols) + floats_bytes(rows, a, a->w->rows) +
                       (size_t)a->n_heads * prepared_bytes(&loops, rows)
                 : 0;
}

static struct linear_args args_of(const struct heads_job *j, int32_t head) {
    const struct weight *w = &j->args->w[head];
    return (struct linear_args){LINEAR_STORE,
                                j->out + (int64_t)head * j->n * w->rows,
                                j->in + (int64_t)head * j->n * w->cols,
                                j->n,
                                w,
                                NULL,
                                j->prepared + (size_t)head * j->prepared_bytes,
                                0};
}

static void gather_item(void *ctx, int item, int worker) {
    const struct heads_job *j = ctx;
    const struct heads_args *a = j->args;
    const int32_t head = item / j->row_items, first = item % j->row_items * ROWS_ITEM,
                  end = first + ROWS_ITEM < j->n ? first + ROWS_ITEM : j->n;
    const int64_t cols = a->w->cols;
    for (int64_t r = first; r < end; r++)
        memcpy(j->in + ((int64_t)head * j->n + r) * cols, j->x + r * a->x_row + head * a->x_head,
               (size_t)cols * sizeof(float));
    const struct linear_args args = args_of(j, head);
    if (j->loops.split) j->loops.split(&args, first, end - first);
}

static void multiply_item(void *ctx, int item, int worker) {
    const struct heads_job *j = ctx;
    const int32_t panel = item % j->panel_items * j->item_panels,
                  rest = weight_panels(j->args->w) - panel;
    const struct linear_args args = args_of(j, item / j->panel_items);
    const struct linear_item panels = {.n_rows = j->n,
                                       .panel = panel,
                                       .n_panels = rest < j->item_panels ? rest : j->item_panels,
                                       .next_panel = panel + j->item_panels};
    j->loops.item(&args, &panels, j->cpu->scratch[worker].data);
}

static void scatter_rows(void *ctx, int32_t row, int32_t n_rows) {
    const struct heads_job *j = ctx;
    const struct heads_args *a = j->args;
    const int64_t rows = a->w->rows;
    for (int64_t r = row; r < row + n_rows; r++)
        for (int64_t h = 0; h < a->n_heads; h++)
            memcpy(j->y + r * a->y_row + h * a->y_head, j->out + (h * j->n + r) * rows,
                   (size_t)rows * sizeof(float));
}

static void run(struct heads_job *j, int64_t operations, int32_t n, threads_fn *fn) {
    if (operations >= SMALL) {
        threads_for(j->cpu->threads, n, fn, j);
        return;
    }
    for (int32_t i = 0; i < n; i++) fn(j, i, 0);
}

// Several items for each worker.
static void plan(struct heads_job *j) {
    const int32_t n_panels = weight_panels(j->args->w), wanted = 4 * threads_count(j->cpu->threads);
    int32_t panels = n_panels * j->args->n_heads / wanted / PANELS_UNIT * PANELS_UNIT;
    j->item_panels = panels < PANELS_UNIT           ? PANELS_UNIT
                     : panels > LINEAR_GROUP_PANELS ? LINEAR_GROUP_PANELS
                                                    : panels;
    j->panel_items = ceil_div(n_panels, j->item_panels);
    j->row_items = ceil_div(j->n, ROWS_ITEM);
    j->prepared_bytes = prepared_bytes(&j->loops, j->n);
}

// y[r * y_row + h * y_head], (w->rows) elements, = W_h x[r * x_row + h * x_head], (w->cols). y must not overlap x.
static void linear_heads(struct cpu_backend *cpu, float *y, const float *x, int32_t n,
                         const struct heads_args *a, char *work) {
    const int32_t block = block_rows(n, a);
    struct heads_job j = {.cpu = cpu, .args = a, .loops = cpu_linear_loops(cpu, a->w)};
    j.in = (float *)(void *)work;
    j.out = (float *)(void *)(work + floats_bytes(block, a, a->w->cols));
    j.prepared = (uint8_t *)j.out + floats_bytes(block, a, a->w->rows);
    for (int32_t row = 0; row < n; row += block) {
        j.n = n - row < block ? n - row : block;
        j.x = x + row * a->x_row;
        j.y = y + row * a->y_row;
        plan(&j);
        const int64_t parts = (int64_t)j.n * a->n_heads;
        run(&j, parts * a->w->cols, a->n_heads * j.row_items, gather_item);
        run(&j, parts * a->w->rows * a->w->cols, a->n_heads * j.panel_items, multiply_item);
        cpu_for_rows(cpu, j.n, (int64_t)a->n_heads * a->w->rows, scatter_rows, &j);
    }
}

// --- latents -------------------------------------------------------------------------------------

// rows (n, n_heads + 1, dim), as `attention` and `kv_write` take them: for each head [rotated part of q | k_h q], then the
// cache's own [rotated part | c]. attended (n, n_heads, dim).
struct latent_plan {
    int32_t dim;
    struct heads_args in, back;
    size_t attended, heads, end; // bytes: rows are first
};

static struct latent_plan plan_latents(struct cpu_backend *cpu, int32_t n,
                                       const struct latent_args *a) {
    const int64_t dim = a->rope_dim + a->rank, own = a->nope_dim + a->rope_dim, heads = a->n_heads;
    struct latent_plan p = {
        .dim = (int32_t)dim,
        .in = {a->k, a->n_heads, a->q_row, own, (heads + 1) * dim, dim},
        .back = {a->v, a->n_heads, heads * dim, dim, heads * a->v_dim, a->v_dim},
    };
    const size_t in = heads_bytes(cpu, n, &p.in), back = heads_bytes(cpu, n, &p.back);
    p.attended = aligned((size_t)(n * (heads + 1) * dim) * sizeof(float));
    p.heads = p.attended + aligned((size_t)(n * heads * dim) * sizeof(float));
    p.end = p.heads + (in > back ? in : back);
    return p;
}

size_t cpu_latent_bytes(struct backend *be, int32_t n, const struct latent_args *a) {
    return n > 0 ? plan_latents(cpu_of(be), n, a).end : 0;
}

struct place_job {
    const struct cpu_kernels *kernels;
    const struct latent_args *args;
    int32_t dim;
    float *rows;
};

// What a row holds beside the heads' products.
static void place_rows(void *ctx, int32_t row, int32_t n_rows) {
    const struct place_job *j = ctx;
    const struct latent_args *a = j->args;
    const int64_t own = a->nope_dim + a->rope_dim;
    const size_t turned = (size_t)a->rope_dim * sizeof(float);
    for (int64_t r = row; r < row + n_rows; r++) {
        const float *q = (const float *)a->q + r * a->q_row + a->nope_dim;
        const float *latents = (const float *)a->latents + r * a->latents_row;
        float *to = j->rows + r * (a->n_heads + 1) * j->dim;
        for (int64_t h = 0; h < a->n_heads; h++) memcpy(to + h * j->dim, q + h * own, turned);
        float *last = to + (int64_t)a->n_heads * j->dim;
        memcpy(last, latents + a->rank, turned);
        j->kernels->norm_rows(NORM_RMS, last + a->rope_dim, latents, 1, a->rank, a->rank, a->norm,
                              NULL, a->eps);
        j->kernels->rope_rows(a->style, to, 1, 0, a->n_heads + 1, j->dim, a->rope_dim,
                              a->cos_sin + r * a->rope_dim);
    }
}

int cpu_latent_attention(struct backend *be, void *out, const struct kv_store *kv,
                         const struct batch *b, const struct latent_args *a, void *work) {
    struct cpu_backend *cpu = cpu_of(be);
    const int32_t n = b->n_rows;
    const struct latent_plan p = plan_latents(cpu, n, a);
    char *base = work;
    float *rows = work, *attended = (float *)(void *)(base + p.attended);
    struct place_job place = {cpu->kernels, a, p.dim, rows};
    const struct attention_args args = {.layer = a->layer,
                                        .n_heads = a->n_heads,
                                        .n_kv_heads = 1,
                                        .head_dim = p.dim,
                                        .scale = a->scale};
    linear_heads(cpu, rows + a->rope_dim, a->q, n, &p.in, base + p.heads);
    cpu_for_rows(cpu, n, (int64_t)a->n_heads * a->rope_dim + a->rank, place_rows, &place);
    TRY(cpu_kv_write(be, kv, a->layer, rows, b, a->n_heads));
    TRY(cpu_attention(be, attended, rows, kv, b, &args));
    linear_heads(cpu, out, attended + a->rope_dim, n, &p.back, base + p.heads);
    return 0;
}
