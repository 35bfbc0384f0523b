// Measures how long the device is idle between two steps, by two events: one after the copy of a
// step's results, one before the next step's first operation. The host's clock cannot measure this,
// because operations start later and end earlier than the host sees. Recording the second event
// takes the host a microsecond, so the result is slightly too large.
#include "kernels/cuda/backend_cuda.h"
#include <stdlib.h>
#include <string.h>

void cuda_idle_release(struct cuda_backend *cuda) {
    struct cuda_idle *w = &cuda->idle;
    for (int i = 0; i < CUDA_IDLE_GAPS; i++) {
        if (w->ended[i]) cudaEventDestroy(w->ended[i]);
        if (w->begun[i]) cudaEventDestroy(w->begun[i]);
    }
    *w = (struct cuda_idle){0};
}

static int watch(struct cuda_backend *cuda) {
    struct cuda_idle *w = &cuda->idle;
    for (int i = 0; i < CUDA_IDLE_GAPS; i++) {
        if (!w->ended[i]) CUDA_TRY(cudaEventCreate(&w->ended[i]));
        if (!w->begun[i]) CUDA_TRY(cudaEventCreate(&w->begun[i]));
    }
    w->n = 0;
    w->watching = true;
    w->in_gap = false;
    return 0;
}

void cuda_idle_step_begins(struct cuda_backend *cuda) {
    struct cuda_idle *w = &cuda->idle;
    if (!w->watching || !w->in_gap) return;
    w->in_gap = false;
    if (cudaEventRecord(w->begun[w->n], cuda->stream) == cudaSuccess) w->n++;
}

void cuda_idle_step_ends(struct cuda_backend *cuda) {
    struct cuda_idle *w = &cuda->idle;
    if (!w->watching || w->n == CUDA_IDLE_GAPS) return;
    w->in_gap = cudaEventRecord(w->ended[w->n], cuda->stream) == cudaSuccess;
}

static int by_value(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

int cuda_idle_time(struct backend *be, bool on, double *median_us) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_idle *w = &cuda->idle;
    float gaps[CUDA_IDLE_GAPS];
    CUDA_TRY(cudaSetDevice(cuda->device)); // the caller may be another thread than the engine's
    TRY(cuda_wait(cuda, "the last step"));
    for (int i = 0; i < w->n; i++)
        CUDA_TRY(cudaEventElapsedTime(&gaps[i], w->ended[i], w->begun[i]));
    if (w->n) qsort(gaps, (size_t)w->n, sizeof *gaps, by_value);
    *median_us = w->n ? (double)gaps[w->n / 2] * 1e3 : 0;
    w->watching = false;
    w->n = 0;
    return on ? watch(cuda) : 0;
}
