// The end of the head: logits are scaled, and with a cap bent to within it. Reads and writes each once.
#include "kernels/cpu/cpu.h"

struct logits_job {
    struct cpu_backend *cpu;
    float *x;
    int64_t n;
    float scale, cap;
};

enum { CHUNK = 4096 };

static void logits_chunk(void *ctx, int32_t chunk, int32_t n_chunks) {
    const struct logits_job *j = ctx;
    int64_t at = (int64_t)chunk * CHUNK, end = at + (int64_t)n_chunks * CHUNK;
    if (end > j->n) end = j->n;
    if (j->cap != 0)
        j->cpu->kernels->cap_values(j->x + at, end - at, j->scale, j->cap);
    else
        for (int64_t i = at; i < end; i++) j->x[i] *= j->scale;
}

int cpu_finish_logits(struct backend *be, float *x, int64_t n, float scale, float cap) {
    struct logits_job j = {cpu_of(be), x, n, scale, cap};
    cpu_for_rows(j.cpu, (int32_t)((n + CHUNK - 1) / CHUNK), CHUNK * 4, logits_chunk, &j);
    return 0;
}
