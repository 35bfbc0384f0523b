// Runs a function over rows in chunks, in parallel where that pays.
#include "kernels/cpu/cpu.h"

struct rows_job {
    cpu_rows_fn *fn;
    void *ctx;
    int32_t n, chunk;
};

static void rows_item(void *ctx, int item, int worker) {
    const struct rows_job *j = ctx;
    int32_t row = item * j->chunk;
    j->fn(j->ctx, row, j->n - row < j->chunk ? j->n - row : j->chunk);
}

void cpu_for_rows(struct cpu_backend *cpu, int32_t n, int64_t work_per_row, cpu_rows_fn *fn,
                  void *ctx) {
    // A hand-over costs about a microsecond, so a few microseconds of work are not worth one.
    const int64_t worth_it = 32768;
    int workers = threads_count(cpu->threads);
    struct rows_job j = {fn, ctx, n, n};
    if (workers > 1 && n > 1 && n * work_per_row >= worth_it)
        j.chunk = (n + 2 * workers - 1) / (2 * workers);
    if (n > 0) threads_for(cpu->threads, (n + j.chunk - 1) / j.chunk, rows_item, &j);
}
