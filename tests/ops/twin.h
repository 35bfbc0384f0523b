// The CUDA ops against their CPU twins: both get the same values (rounded to the GPU's dtype
// first), and the GPU's results are compared within that dtype's rounding. Without a GPU the tests
// are skipped with a message.
#pragma once
#include "kernels/cuda/step.h"
#include "tests/ops/ops_fixture.h"
#include "tests/scale.h"
#include <string.h>

struct twin {
    struct backend *cpu, *gpu;
    enum dtype t; // of the GPU's activations
};

static inline float twin_round(enum dtype t, float v) {
    return t == DTYPE_F16    ? f16_to_f32(f16_from_f32(v))
           : t == DTYPE_BF16 ? bf16_to_f32(bf16_from_f32(v))
                             : v;
}

// Half a unit in the last place, relative.
static inline double twin_unit(enum dtype t) {
    return t == DTYPE_F16 ? 4.9e-4 : t == DTYPE_BF16 ? 3.91e-3 : 6e-8;
}

static inline float *twin_floats(const struct twin *w, int64_t n) {
    float *x = op_floats(n);
    for (int64_t i = 0; i < n; i++) x[i] = twin_round(w->t, x[i]);
    return x;
}

static inline void *twin_alloc(const struct twin *w, size_t bytes) {
    void *p = NULL;
    struct err err = {0};
    if (w->gpu->ops->mem_alloc(w->gpu, bytes, &p, &err) < 0) fail_msg("%s", err.text);
    return p;
}

// x as the GPU's activations; poisoned with NaN where x is NULL.
static inline void *twin_up(const struct twin *w, const float *x, int64_t n) {
    size_t bytes = (size_t)n * dtype_size(w->t);
    void *host = malloc(bytes), *p = twin_alloc(w, bytes);
    memset(host, 0xff, bytes);
    for (int64_t i = 0; x && i < n; i++) op_write(w->t, host, i, x[i]);
    assert_int_equal(w->gpu->ops->mem_write(w->gpu, p, host, bytes), 0);
    free(host);
    return p;
}

static inline void *twin_up_bytes(const struct twin *w, const void *x, size_t bytes) {
    void *p = twin_alloc(w, bytes);
    assert_int_equal(w->gpu->ops->mem_write(w->gpu, p, x, bytes), 0);
    return p;
}

static inline float *twin_down(const struct twin *w, const void *p, int64_t n, enum dtype t) {
    size_t bytes = (size_t)n * dtype_size(t);
    void *host = malloc(bytes);
    float *x = malloc((size_t)n * sizeof *x);
    assert_int_equal(w->gpu->ops->mem_read(w->gpu, host, p, bytes), 0);
    for (int64_t i = 0; i < n; i++) x[i] = (float)op_read(t, host, i);
    free(host);
    return x;
}

static inline void twin_free(const struct twin *w, void *p) {
    w->gpu->ops->mem_free(w->gpu, p);
}

// Both of the same values within `units` roundings of the value itself and `slack` besides.
static inline void twin_compare(const struct twin *w, const void *gpu, enum dtype t,
                                const float *want, int64_t n, double units, double slack,
                                const char *what) {
    float *got = twin_down(w, gpu, n, t);
    for (int64_t i = 0; i < n; i++)
        op_near(got[i], want[i], units * twin_unit(t) * fabs((double)want[i]) + slack, what, i);
    free(got);
}

// A step whose rows are `n` sequences of one token each, for ops that only look at the rows.
enum { TWIN_ROWS = 80 };
struct twin_rows {
    struct batch b;
    struct batch_seq seqs[TWIN_ROWS];
    int32_t block;
    struct kv_map map;
};
static inline void twin_rows_fill(struct twin_rows *r, int32_t n, const int32_t *ids,
                                  const int32_t *positions, const int32_t *logit_rows,
                                  int32_t n_logits) {
    assert_in_range(n, 1, TWIN_ROWS);
    r->map = (struct kv_map){&r->block, 0, 1, 8};
    for (int32_t i = 0; i < n; i++)
        r->seqs[i] = (struct batch_seq){.first_row = i,
                                        .n_rows = 1,
                                        .memory_len = 8,
                                        .maps = &r->map,
                                        .short_rope = i % 3 == 1};
    r->block = 0;
    r->b = (struct batch){.n_rows = n,
                          .n_seqs = n,
                          .n_logits = n_logits,
                          .ids = ids,
                          .positions = positions,
                          .logit_rows = logit_rows,
                          .seqs = r->seqs};
}

static inline const struct batch *twin_step(const struct twin *w, struct twin_rows *r, int32_t n,
                                            const int32_t *ids, const int32_t *positions,
                                            const int32_t *logit_rows, int32_t n_logits) {
    const struct batch *run;
    twin_rows_fill(r, n, ids, positions, logit_rows, n_logits);
    assert_int_equal(w->gpu->ops->step_begin(w->gpu, &r->b, &run), 0);
    return run;
}

// Runs body on a GPU for each dtype, or for the one that PARLEY_TEST_COMPUTE names (f32, bf16,
// f16), deterministic and not, or only deterministic with PARLEY_TEST_DETERMINISTIC=1.
static inline void twin_each(void (*body)(const struct twin *w)) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BF16, DTYPE_F16};
    if (backend_cuda_count() == 0) {
        print_message("no GPU here: not run\n");
        skip();
    }
    const char *only = getenv("PARLEY_TEST_COMPUTE");
    const char *deterministic = getenv("PARLEY_TEST_DETERMINISTIC");
    for (int i = 0; i < 6; i++) {
        if (only && strcmp(only, dtype_name(types[i / 2]))) continue;
        if (deterministic && i % 2 == 0) continue;
        struct backend_cuda_options o = {.compute = types[i / 2], .deterministic = i % 2};
        struct twin w = {.t = types[i / 2]};
        struct err err = {0};
        if (backend_cuda_open(&w.gpu, &o, &err) < 0) fail_msg("%s", err.text);
        assert_int_equal(backend_cpu_open(&w.cpu, 2, "auto", &err), 0);
        body(&w);
        w.gpu->ops->close(w.gpu);
        w.cpu->ops->close(w.cpu);
    }
}
