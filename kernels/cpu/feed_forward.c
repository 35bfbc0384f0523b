// A fused feed-forward for few rows. Composed of its ops, it hands work over three times, and the
// whole result of the gated matrix moves between cores, because each worker computes panels of all
// rows but activates rows of all panels. Here a worker computes the gate's panels and the panels
// that they gate, activates them in its L1, and rounds them into the x of the second matrix. A
// quarter of the bytes move between cores, and one hand-over and the separate rounding are saved.
//
// The loops and roundings are those of the ops, so the bits are the same. Only for products of bf16
// (AVX512-BF16): the other paths do not prepare x of the second matrix, or do not count 16 rows as
// few.
#include "kernels/cpu/linear_bf16.h"

// With more rows than cpu_own_takes allows, registers hold one panel at a time, not a pair.
enum { PANELS_UNIT = 4 };

struct feed_job {
    struct cpu_backend *cpu;
    struct linear_args up, down;
    struct own_job own;
    struct bf16_gated gated;
    int32_t n_panels, item_panels;
};

#if defined(__x86_64__)
static void run_item(void *ctx, int index, int worker) {
    const struct feed_job *j = ctx;
    int32_t panel = index * j->item_panels, left = j->n_panels - panel;
    struct linear_item item = {.n_rows = j->up.n,
                               .panel = panel,
                               .n_panels = left < j->item_panels ? left : j->item_panels};
    struct linear_args up = j->up;
    cpu_own_x(j->cpu, &j->own, &up, worker);
    bf16_gated_item(&up, &item, &j->gated, j->cpu->scratch[worker].data);
}

// One worker computes whole tiles of the second matrix's K, and both matrices are bf16.
static bool takes(const struct cpu_backend *cpu, int32_t n, const struct weight *up,
                  const struct weight *down, bool gated) {
    return gated && cpu_own_takes(cpu, n, up) && down->dtype == DTYPE_BF16 &&
           up->rows == 2 * down->cols && down->cols % WEIGHT_TILE_K == 0;
}

int cpu_feed_forward(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                     const struct feed_forward_args *args) {
    struct cpu_backend *cpu = cpu_of(be);
    const struct weight *up = args->up, *down = args->down;
    if (n == 0 || !takes(cpu, n, up, down, args->activate.gated)) return OP_DECLINED;
    struct feed_job j = {.cpu = cpu,
                         .up = {LINEAR_STORE, NULL, x, n, up, args->up_bias, NULL, 0},
                         .down = {mode, y, NULL, n, down, args->down_bias, cpu->shared.data, 0},
                         .own = cpu_own_begin(cpu, args->norm),
                         .gated = {args->activate.act, cpu->kernels->activate_row, &j.down},
                         .n_panels = weight_panels(up) / 2};
    // As linear's items: several for each worker.
    int32_t wanted = 4 * threads_count(cpu->threads);
    j.item_panels = (j.n_panels + wanted - 1) / wanted;
    j.item_panels = (j.item_panels + PANELS_UNIT - 1) / PANELS_UNIT * PANELS_UNIT;
    if (j.item_panels > LINEAR_GROUP_PANELS) j.item_panels = LINEAR_GROUP_PANELS;
    threads_for(cpu->threads, (j.n_panels + j.item_panels - 1) / j.item_panels, run_item, &j);
    cpu_linear_prepared(cpu, mode, y, n, down, args->down_bias, j.down.split_x);
    return 0;
}
#else
int cpu_feed_forward(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                     const struct feed_forward_args *args) {
    return OP_DECLINED;
}
#endif
