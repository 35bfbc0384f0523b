// A backend in plain memory for tests of loading: matrices are dense f32 (rows, cols), every
// allocation is counted, and the n-th can be made to fail.
#pragma once
#include "kernels/backend.h"
#include <stdlib.h>

struct fake_backend {
    struct backend be; // first member
    int n_live, n_calls;
    int fail_at; // the call (1, 2 ...) that fails; 0: none
};

static inline void *fake_take(struct fake_backend *f, size_t bytes) {
    if (++f->n_calls == f->fail_at) return NULL;
    void *p = malloc(bytes ? bytes : 1);
    if (p) f->n_live++;
    return p;
}

static inline int fake_mem_alloc(struct backend *be, size_t bytes, void **out, struct err *err) {
    *out = fake_take((struct fake_backend *)be, bytes);
    return *out ? 0 : err_set(err, E_NOMEM, "the fake has no %zu bytes", bytes);
}

static inline void fake_mem_free(struct backend *be, void *p) {
    ((struct fake_backend *)be)->n_live--;
    free(p);
}

static inline int fake_mem_write(struct backend *be, void *dst, const void *src, size_t bytes) {
    struct fake_backend *f = (struct fake_backend *)be;
    if (++f->n_calls == f->fail_at) return E_DEVICE;
    memcpy(dst, src, bytes);
    return 0;
}

static inline float fake_element(const struct tensor_view *v, int64_t r, int64_t c) {
    int64_t i = r * v->row_stride + c * v->col_stride;
    if (v->dtype == DTYPE_F32) return ((const float *)v->data)[i];
    if (v->dtype == DTYPE_F8_E4M3)
        return v->scales[r * (v->block_k ? (v->cols + v->block_k - 1) / v->block_k : 1) +
                         (v->block_k ? c / v->block_k : 0)] *
               e4m3_to_f32(((const uint8_t *)v->data)[i]);
    if (v->dtype == DTYPE_I8) return v->scales[r] * (float)((const int8_t *)v->data)[i];
    uint16_t half = ((const uint16_t *)v->data)[i];
    return v->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static inline int fake_weight_init(struct backend *be, struct weight *w,
                                   const struct tensor_view *parts, int n_parts, struct err *err) {
    int64_t rows = 0, cols = parts[0].cols;
    for (int i = 0; i < n_parts; i++) rows += parts[i].rows;
    float *to = fake_take((struct fake_backend *)be, (size_t)(rows * cols) * sizeof *to);
    if (!to) return err_set(err, E_NOMEM, "the fake has no room for a matrix");
    *w = (struct weight){.data = to,
                         .bytes = (size_t)(rows * cols) * sizeof *to,
                         .dtype = parts[0].dtype,
                         .rows = (int32_t)rows,
                         .cols = (int32_t)cols};
    for (int i = 0; i < n_parts; i++)
        for (int64_t r = 0; r < parts[i].rows; r++)
            for (int64_t c = 0; c < cols; c++) *to++ = fake_element(&parts[i], r, c);
    return 0;
}

static inline void fake_weight_release(struct backend *be, struct weight *w) {
    fake_mem_free(be, w->data);
    w->data = NULL;
}

static const struct backend_ops fake_ops = {
    .name = "fake",
    .mem_alloc = fake_mem_alloc,
    .mem_free = fake_mem_free,
    .mem_write = fake_mem_write,
    .weight_init = fake_weight_init,
    .weight_release = fake_weight_release,
};

static inline struct fake_backend fake_backend(void) {
    return (struct fake_backend){.be = {.ops = &fake_ops, .act_dtype = DTYPE_F32, .n_threads = 1}};
}
