// A matrix for each head, each for its own part of a row: latent attention's steps into the latents' space and
// back. Beside them the copies of parts of rows.
//
// Each head's parts are gathered into rows, multiplied by linear's loops, and put where they belong. A row's bits
// are those that linear would give it, in any company. Work memory holds one block of rows at a time.
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

size_t cpu_linear_heads_bytes(struct backend *be, int32_t n, const struct heads_args *a) {
    const struct linear_loops loops = cpu_linear_loops(cpu_of(be), a->w);
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

int cpu_linear_heads(struct backend *be, void *y, const void *x, int32_t n,
                     const struct heads_args *a, void *work) {
    struct cpu_backend *cpu = cpu_of(be);
    const int32_t block = block_rows(n, a);
    char *base = work;
    struct heads_job j = {.cpu = cpu, .args = a, .loops = cpu_linear_loops(cpu, a->w)};
    j.in = (float *)(void *)base;
    j.out = (float *)(void *)(base + floats_bytes(block, a, a->w->cols));
    j.prepared = (uint8_t *)j.out + floats_bytes(block, a, a->w->rows);
    for (int32_t row = 0; row < n; row += block) {
        j.n = n - row < block ? n - row : block;
        j.x = (const float *)x + row * a->x_row;
        j.y = (float *)y + row * a->y_row;
        plan(&j);
        const int64_t parts = (int64_t)j.n * a->n_heads;
        run(&j, parts * a->w->cols, a->n_heads * j.row_items, gather_item);
        run(&j, parts * a->w->rows * a->w->cols, a->n_heads * j.panel_items, multiply_item);
        cpu_for_rows(cpu, j.n, (int64_t)a->n_heads * a->w->rows, scatter_rows, &j);
    }
    return 0;
}

// --- copies --------------------------------------------------------------------------------------

struct copy_job {
    const struct parts_args *args;
    float *y;
    const float *x;
};

static void copy_rows(void *ctx, int32_t row, int32_t n_rows) {
    const struct copy_job *j = ctx;
    const struct parts_args *a = j->args;
    for (int64_t r = row; r < row + n_rows; r++)
        for (int64_t p = 0; p < a->n_parts; p++)
            memcpy(j->y + r * a->y_row + p * a->y_part, j->x + r * a->x_row + p * a->x_part,
                   (size_t)a->width * sizeof(float));
}

int cpu_copy_parts(struct backend *be, void *y, const void *x, int32_t n,
                   const struct parts_args *a) {
    struct copy_job j = {a, y, x};
    cpu_for_rows(cpu_of(be), n, (int64_t)a->n_parts * a->width, copy_rows, &j);
    return 0;
}
