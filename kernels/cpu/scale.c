// Products by position in memory: a buffer by a number, rows by rows. Bound by memory within the cache.
#include "kernels/cpu/cpu.h"

enum { CHUNK = 4096 };

struct scale_job {
    float *x;
    int64_t n;
    float by;
};

static void scale_chunk(void *ctx, int32_t chunk, int32_t n_chunks) {
    const struct scale_job *j = ctx;
    int64_t at = (int64_t)chunk * CHUNK, end = at + (int64_t)n_chunks * CHUNK;
    for (int64_t i = at; i < end && i < j->n; i++) j->x[i] *= j->by;
}

int cpu_scale(struct backend *be, void *x, int64_t n, const float *by, float factor) {
    struct scale_job j = {x, n, by ? factor * by[0] : factor};
    cpu_for_rows(cpu_of(be), (int32_t)((n + CHUNK - 1) / CHUNK), CHUNK, scale_chunk, &j);
    return 0;
}

struct multiply_job {
    float *y;
    const float *x;
    int32_t width;
    int64_t stride;
};

static void multiply_chunk(void *ctx, int32_t row, int32_t n_rows) {
    const struct multiply_job *j = ctx;
    for (int32_t r = row; r < row + n_rows; r++)
        for (int32_t i = 0; i < j->width; i++)
            j->y[(int64_t)r * j->width + i] *= j->x[r * j->stride + i];
}

int cpu_multiply_rows(struct backend *be, void *y, const void *x, int32_t n, int32_t width,
                      int64_t stride) {
    struct multiply_job j = {y, x, width, stride};
    cpu_for_rows(cpu_of(be), n, width, multiply_chunk, &j);
    return 0;
}
