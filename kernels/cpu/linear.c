// y =|+= x W^T + bias: cuts the result into items, and the items' inner loops (linear.inc,
// linear_bf16.c, linear_amx.c, linear_int8.inc) do the rest.
//
// Bytes moved: W once (n <= 512) and x once for each item. Few rows are bound by the memory's read
// rate, many by the multipliers; README.md has the rates measured.
#include "kernels/cpu/int8_rows.h"

// A worker's own x lies in its scratch, after the part that an item of few rows uses: the split x,
// then the normed rows.
enum { OWN_ROWS = 8, OWN_AT = 1 << 16 };

static size_t own_bytes(const struct cpu_backend *cpu, const struct weight *w) {
    return OWN_AT +
           OWN_ROWS * (cpu->kernels->linear_row_bytes(w) + (size_t)w->cols * sizeof(float));
}

static size_t int8_row_bytes(const struct weight *w) {
    return ((size_t)weight_int8_tiles(w) + 1) * INT8_TILE_K * 4;
}

struct linear_loops cpu_linear_loops(const struct cpu_backend *cpu, const struct weight *w) {
    const struct cpu_kernels *k = cpu->kernels;
    if (w->dtype == DTYPE_I8)
        return (struct linear_loops){k->int8_split, k->int8_item, int8_row_bytes(w),
                                     INT8_HEADER_BYTES};
    const bool few = k->groups8_split && w->layout == PANEL_GROUPS && w->data &&
                     group_most_bits(w->data) < 8; // without data it is a shape for reserve
    if (few)
        return (struct linear_loops){k->groups8_split, k->groups8_item, group_x_bytes(w->cols), 0};
    if (w->layout == PANEL_GROUPS)
        return (struct linear_loops){k->groups_split, k->groups_item, group_x_bytes(w->cols), 0};
    if (w->dtype == DTYPE_BF16 && k->linear_split)
        return (struct linear_loops){k->linear_split, k->linear_item_split, k->linear_row_bytes(w),
                                     0};
    return (struct linear_loops){NULL, k->linear_item, 0, 0};
}

int cpu_linear_reserve(struct cpu_backend *cpu, const struct weight *w, struct err *err) {
    // AMX stores a block of the item's weights, the other sets one of x and, for e4m3 weights with
    // blocks, the sums of one block (two panels).
    size_t floats =
        (size_t)LINEAR_GROUP_PANELS * WEIGHT_PANEL * (LINEAR_BLOCK_K + LINEAR_BLOCK_ROWS) +
        (size_t)LINEAR_BLOCK_ROWS * (LINEAR_ROW_FLOATS + 2 * WEIGHT_PANEL);
    const struct linear_loops loops = cpu_linear_loops(cpu, w);
    size_t split = loops.header_bytes + LINEAR_BLOCK_ROWS * loops.row_bytes;
    size_t scratch = floats * sizeof(float);
    if (cpu->fuses && w->dtype == DTYPE_BF16 && scratch < own_bytes(cpu, w))
        scratch = own_bytes(cpu, w);
    return cpu_reserve(cpu, scratch, split, err);
}

bool cpu_own_takes(const struct cpu_backend *cpu, int32_t n, const struct weight *w) {
    return cpu->fuses && n <= OWN_ROWS && w->dtype == DTYPE_BF16;
}

struct own_job cpu_own_begin(struct cpu_backend *cpu, const struct norm_args *norm) {
    return (struct own_job){norm, ++cpu->n_own_jobs};
}

void cpu_own_x(struct cpu_backend *cpu, const struct own_job *job, struct linear_args *a,
               int worker) {
    const struct cpu_kernels *k = cpu->kernels;
    char *own = (char *)cpu->scratch[worker].data + OWN_AT;
    a->split_x = own;
    if (cpu->own_x[worker].job == job->number) return;
    const struct norm_args *norm = job->norm;
    const int32_t cols = a->w->cols;
    if (norm) {
        float *y = (float *)(void *)(own + OWN_ROWS * k->linear_row_bytes(a->w));
        k->norm_rows(norm->kind, y, a->x, a->n, cols, cols, norm->weight, norm->bias, norm->eps);
        a->x = y;
    }
    k->linear_split(a, 0, a->n);
    cpu->own_x[worker].job = job->number;
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
    const struct own_job *own; // each worker's x is its own; NULL: split_x is all workers'
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
    struct linear_args args = job->args;
    if (job->own) cpu_own_x(job->cpu, job->own, &args, worker);
    job->item(&args, &item, job->cpu->scratch[worker].data);
}

static void run_split(void *ctx, int32_t row, int32_t n_rows) {
    const struct linear_job *job = ctx;
    job->split(&job->args, row, n_rows);
}

static int32_t ceil_div(int32_t a, int32_t b) {
    return (a + b - 1) / b;
}

// An item has all rows and as many panels as its scratch holds. There are several items for each
// worker, so that one delayed worker does not delay all. If the matrix is too narrow for that, the
// rows are divided too.
static void plan(struct linear_job *job, int workers) {
    int32_t wanted = workers == 1 ? 1 : workers * 4, unit = 2;
    job->item_rows = job->n_rows;
    // Few rows stream best from eight panels, but a narrow matrix must divide evenly between the
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
    const struct linear_loops l = cpu_linear_loops(job->cpu, job->args.w);
    job->split = l.split;
    job->item = l.item;
}

// A matrix that one core multiplies within the time of a hand-over.
enum { SMALL = 32768 };

// All rows in one pass, x each worker's own.
static void run_own(struct cpu_backend *cpu, const struct linear_args *args,
                    const struct norm_args *norm) {
    const struct own_job own = cpu_own_begin(cpu, norm);
    struct linear_job job = {
        .args = *args, .cpu = cpu, .n_panels = weight_panels(args->w), .own = &own};
    job.n_rows = args->n;
    pick_loops(&job);
    bool small = (int64_t)args->w->rows * args->w->cols * args->n < SMALL;
    plan(&job, small ? 1 : threads_count(cpu->threads));
    threads_for(cpu->threads, job.n_panel_items * ceil_div(job.n_rows, job.item_rows), run_item,
                &job);
}

int cpu_norm_linear(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                    void *y, const void *x, int32_t n, const struct weight *w, const float *bias,
                    const struct activate_args *act) {
    struct cpu_backend *cpu = cpu_of(be);
    if (mode != LINEAR_STORE || act || n == 0 || !cpu_own_takes(cpu, n, w)) return OP_DECLINED;
    run_own(cpu, &(struct linear_args){LINEAR_STORE, y, x, n, w, bias, NULL, 0}, norm);
    return 0;
}

int cpu_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
               const struct weight *w, const float *bias) {
    struct cpu_backend *cpu = cpu_of(be);
    if (n > 0 && cpu_own_takes(cpu, n, w)) {
        run_own(cpu, &(struct linear_args){mode, y, x, n, w, bias, NULL, 0}, NULL);
        return 0;
    }
    struct linear_job job = {.args = {mode, y, x, n, w, bias, cpu->shared.data, 0}, .cpu = cpu};
    job.n_panels = weight_panels(w);
    pick_loops(&job);
    int workers = threads_count(cpu->threads);
    bool small = (int64_t)w->rows * w->cols * n < SMALL;
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
