// y =|+= x W^T + bias: cuts the result into items, and the items' inner loops (linear.inc,
// linear_bf16.c, linear_amx.c, linear_int8.inc) do the rest.
//
// Bytes moved: W once (n <= 512) and x once for each item. Few rows are bound by the memory's read
// rate, many by the multipliers; README.md has the rates measured.
#include "kernels/cpu/int8_rows.h"

int cpu_linear_reserve(struct cpu_backend *cpu, const struct weight *w, struct err *err) {
    // AMX keeps a block of the item's weights, the others one of x, and of e4m3 weights with blocks
    // the sums of one (two panels).
    size_t floats =
        (size_t)LINEAR_GROUP_PANELS * WEIGHT_PANEL * (LINEAR_BLOCK_K + LINEAR_BLOCK_ROWS) +
        (size_t)LINEAR_BLOCK_ROWS * (LINEAR_ROW_FLOATS + 2 * WEIGHT_PANEL);
    size_t split = 0;
    if (w->dtype == DTYPE_I8)
        split = INT8_HEADER_BYTES +
                (size_t)LINEAR_BLOCK_ROWS * ((size_t)weight_int8_tiles(w) + 1) * INT8_TILE_K * 4;
    else if (cpu->kernels->linear_split)
        split = (size_t)LINEAR_BLOCK_ROWS * cpu->kernels->linear_row_bytes(w);
    return cpu_reserve(cpu, floats * sizeof(float), split, err);
}

struct linear_job {
    struct linear_args args;
    struct cpu_backend *cpu;
    void (*split)(const struct linear_args *a, int32_t row, int32_t n_rows); // of x; NULL: as it is
    void (*item)(const struct linear_args *a, const struct linear_item *item, void *scratch);
    int32_t row, n_rows; // this pass
    int32_t item_rows;   // rows and panels of an item
    int32_t item_panels;
    int32_t n_panels, n_panel_items;
};

static void run_item(void *ctx, int index, int worker) {
    const struct linear_job *job = ctx;
    int32_t row = index / job->n_panel_items * job->item_rows;
    int32_t panel = index % job->n_panel_items * job->item_panels;
    struct linear_item item = {
        .row = job->row + row,
        .n_rows = job->n_rows - row < job->item_rows ? job->n_rows - row : job->item_rows,
        .panel = panel,
        .n_panels =
            job->n_panels - panel < job->item_panels ? job->n_panels - panel : job->item_panels,
        .next_panel = panel + job->item_panels,
    };
    job->item(&job->args, &item, job->cpu->scratch[worker].data);
}

static void run_split(void *ctx, int32_t row, int32_t n_rows) {
    const struct linear_job *job = ctx;
    job->split(&job->args, row, n_rows);
}

static int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

// Items of all rows and as many panels as their scratch holds, but several for each worker, so that
// one that was held up does not hold up all. Where the matrix is too narrow for that, the rows are
// cut too.
static void plan(struct linear_job *job, int workers) {
    int32_t wanted = workers == 1 ? 1 : workers * 4, unit = 2;
    job->item_rows = job->n_rows;
    // Few rows stream best from eight panels, but a narrow matrix must come out even between the
    // workers.
    bool few = job->n_rows <= LINEAR_FEW_ROWS;
    if (few) unit = job->n_panels >= 8 * wanted ? 8 : 4;
    job->item_panels = ceil_div(ceil_div(job->n_panels, wanted), unit) * unit;
    // Rounded down: five items for two workers would take as long as six.
    if (few && job->item_panels > unit) job->item_panels = job->n_panels / (wanted * unit) * unit;
    if (job->item_panels > LINEAR_GROUP_PANELS) job->item_panels = LINEAR_GROUP_PANELS;
    job->n_panel_items = ceil_div(job->n_panels, job->item_panels);
    int32_t row_items = ceil_div(wanted, job->n_panel_items),
            tile = job->split ? 32 : job->cpu->kernels->row_tile;
    if (row_items > 1 && job->n_rows >= 4 * tile)
        job->item_rows = ceil_div(ceil_div(job->n_rows, row_items), tile) * tile;
}

static void pick_loops(struct linear_job *job) {
    const struct cpu_kernels *k = job->cpu->kernels;
    enum dtype t = job->args.w->dtype;
    job->item = k->linear_item;
    if (t == DTYPE_I8) {
        job->split = k->int8_split;
        job->item = k->int8_item;
    } else if (t == DTYPE_BF16 && k->linear_split) {
        job->split = k->linear_split;
        job->item = k->linear_item_split;
    }
}

int cpu_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
               const struct weight *w, const float *bias) {
    struct cpu_backend *cpu = cpu_of(be);
    struct linear_job job = {.args = {mode, y, x, n, w, bias, cpu->shared.data, 0}, .cpu = cpu};
    job.n_panels = weight_panels(w);
    pick_loops(&job);
    int workers = threads_count(cpu->threads);
    // A matrix that one core has done with in the time of a hand-over.
    bool small = (int64_t)w->rows * w->cols * n < 32768;
    for (job.row = 0; job.row < n; job.row += job.n_rows) {
        job.n_rows = n - job.row < LINEAR_BLOCK_ROWS ? n - job.row : LINEAR_BLOCK_ROWS;
        plan(&job, small ? 1 : workers);
        int32_t n_items = job.n_panel_items * ceil_div(job.n_rows, job.item_rows);
        if (job.split) {
            job.args.split_row = job.row;
            cpu_for_rows(cpu, job.n_rows, w->cols, run_split, &job);
        }
        threads_for(cpu->threads, n_items, run_item, &job);
    }
    return 0;
}

void cpu_linear_prepared(struct cpu_backend *cpu, enum linear_mode mode, float *y, int32_t n,
                         const struct weight *w, const float *bias, void *split_x) {
    struct linear_job job = {.args = {mode, y, NULL, n, w, bias, split_x, 0}, .cpu = cpu};
    job.n_panels = weight_panels(w);
    job.n_rows = n;
    pick_loops(&job);
    plan(&job, threads_count(cpu->threads));
    int32_t n_items = job.n_panel_items * ceil_div(n, job.item_rows);
    threads_for(cpu->threads, n_items, run_item, &job);
}
