// Weights on the device: row-major, rows padded with zeros to 16 bytes, in the dtype that the model computes in
// (staging.c copies them), or of few bits (groups.c).
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/groups.h"
#include "kernels/fp8.h"
#include "kernels/weight_parts.h"
#include <stdlib.h>

struct cuda_linear cuda_linear_of(const struct cuda_backend *cuda, const struct weight *w) {
    return (struct cuda_linear){.w = w->data,
                                .scale = w->scales,
                                .rows = w->rows,
                                .cols = w->cols,
                                .ld = w->layout,
                                .dtype = cuda->base.act_dtype,
                                .w_dtype = w->dtype,
                                .block_k = w->block_k};
}

static void note_shape(struct cuda_backend *cuda, const struct weight *w) {
    for (int i = 0; i < cuda->n_shapes; i++)
        if (cuda->shapes[i].rows == w->rows && cuda->shapes[i].cols == w->cols &&
            cuda->shapes[i].w_dtype == w->dtype)
            return;
    bool fp8 = cuda->fp8.on && w->dtype == DTYPE_F8_E4M3;
    // cuBLASLt multiplies few bits when they are widened, other weights as they are.
    if (w->dtype == DTYPE_U8 && cuda_groups_tall(w->rows, w->cols)) return;
    if (w->dtype != cuda->base.act_dtype && w->dtype != DTYPE_U8 && !fp8) return;
    if (cuda->n_shapes == CUDA_MAX_SHAPES) return;
    cuda->shapes[cuda->n_shapes] = cuda_linear_of(cuda, w);
    cuda->shapes[cuda->n_shapes++].x_8bit = fp8;
}

static void forget_shape(struct cuda_backend *cuda, const struct weight *w) {
    for (int i = 0; i < cuda->n_shapes; i++)
        if (cuda->shapes[i].w == w->data) cuda->shapes[i] = cuda->shapes[--cuda->n_shapes];
}

// Copies scales to the device: (rows), or, with blocks, transposed to (blocks, rows), because a
// kernel needs neighbouring rows' scales at the same time.
static int send_scales(struct cuda_backend *cuda, struct weight *w, const struct tensor_view *parts,
                       int n_parts, struct err *err) {
    const int32_t n_blocks = fp8_blocks(w->cols, w->block_k);
    const size_t n = (size_t)n_blocks * (size_t)w->rows;
    float *turned = malloc(n * sizeof *turned);
    if (!turned) return err_set(err, E_NOMEM, "no memory for %zu scales", n);
    for (int64_t i = 0, row = 0; i < n_parts; i++)
        for (int64_t r = 0; r < parts[i].rows; r++, row++)
            for (int32_t b = 0; b < n_blocks; b++)
                turned[b * w->rows + row] = parts[i].scales[r * n_blocks + b];
    int rc = cuda_alloc((void **)&w->scales, n * sizeof *turned, err);
    if (rc == 0)
        rc = cuda_check(cudaMemcpyAsync(w->scales, turned, n * sizeof *turned,
                                        cudaMemcpyHostToDevice, cuda->stream),
                        "cudaMemcpyAsync");
    if (rc == 0) rc = cuda_check(cudaStreamSynchronize(cuda->stream), "cudaStreamSynchronize");
    free(turned);
    return rc;
}

// Data, and of 8-bit weights the scales.
static int fill(struct cuda_backend *cuda, struct weight *w, const struct tensor_view *parts,
                int n_parts, struct err *err) {
    TRY(cuda_alloc(&w->data, w->bytes, err));
    if (parts[0].scales) TRY(send_scales(cuda, w, parts, n_parts, err));
    if (w->layout != w->cols) CUDA_TRY(cudaMemsetAsync(w->data, 0, w->bytes, cuda->stream));
    for (int64_t i = 0, row = 0; i < n_parts; row += parts[i++].rows)
        TRY(cuda_send_view(cuda, w, &parts[i], row));
    return 0;
}

int cuda_weight_init(struct backend *be, struct weight *w, const struct tensor_view *parts,
                     int n_parts, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    struct err why = {0};
    int64_t rows = 0;
    *w = (struct weight){0};
    TRY(weight_parts_check(parts, n_parts, INT32_MAX / 64, "the GPU", &rows, err));
    TRY(cuda_staging_init(cuda, err));
    const bool groups = parts[0].dtype == DTYPE_U8;
    w->dtype = dtype_size(parts[0].dtype) == 1 ? parts[0].dtype : be->act_dtype;
    w->block_k = parts[0].block_k;
    w->rows = (int32_t)rows;
    w->cols = (int32_t)parts[0].cols;
    int32_t unit = (int32_t)(16 / dtype_size(w->dtype));
    w->layout = (w->cols + unit - 1) / unit * unit; // from row to row
    w->bytes = (size_t)rows * (size_t)w->layout * dtype_size(w->dtype);
    int rc = groups ? cuda_groups_fill(cuda, w, parts, n_parts, &why)
                    : fill(cuda, w, parts, n_parts, &why);
    if (rc < 0) {
        cudaStreamSynchronize(cuda->stream);
        cudaFree(w->data);
        cudaFree(w->scales);
        *w = (struct weight){0};
        return err_set(err, rc, "%s", why.code ? why.text : "the GPU took no weight");
    }
    cuda->weights_8bit = cuda->weights_8bit || (dtype_size(w->dtype) == 1 && !groups);
    note_shape(cuda, w);
    return 0;
}

void cuda_weight_release(struct backend *be, struct weight *w) {
    if (w->data) forget_shape(cuda_of(be), w);
    cudaFree(w->data);
    cudaFree(w->scales);
    *w = (struct weight){0};
}
