// y += x. Moves three floats for each addition, within the cache.
#include "kernels/cpu/cpu.h"

struct add_job {
    struct cpu_backend *cpu;
    float *y;
    const float *x;
    int64_t n;
};

enum { ADD_CHUNK = 4096 };

static void add_chunk(void *ctx, int32_t chunk, int32_t n_chunks) {
    const struct add_job *j = ctx;
    int64_t at = (int64_t)chunk * ADD_CHUNK, end = at + (int64_t)n_chunks * ADD_CHUNK;
    if (end > j->n) end = j->n;
    j->cpu->kernels->add(j->y + at, j->x + at, end - at);
}

int cpu_add(struct backend *be, void *y, const void *x, int64_t n_elements) {
    struct add_job j = {cpu_of(be), y, x, n_elements};
    cpu_for_rows(j.cpu, (int32_t)((n_elements + ADD_CHUNK - 1) / ADD_CHUNK), ADD_CHUNK, add_chunk,
                 &j);
    return 0;
}
