// Token and position embeddings: a block for each row, one row of the table read and one written.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/pdl.cuh"

// An id outside the table gives zeros; the host refuses such ids before. An id that the step before has
// drawn is complete: the copy of this step's description is between the two.
template <typename T>
__global__ void embed_kernel(const int32_t *ids, const int32_t *drawn,
                             const __grid_constant__ struct cuda_linear w, float scale) {
    pdl_trigger();
    int32_t id = ids[blockIdx.x];
    if (id < 0 && drawn) id = drawn[BATCH_DRAWN(id)];
    T *y = (T *)w.y + (int64_t)blockIdx.x * w.cols;
    bool known = id >= 0 && id < w.rows;
    if (known && w.scale && !w.block_k) scale *= w.scale[id];
    pdl_wait();
    for (int32_t i = threadIdx.x; i < w.cols; i += blockDim.x) {
        float v = known ? load_as_float(w.w, w.w_dtype, (int64_t)id * w.ld + i) * scale : 0.0f;
        if (known && w.block_k) v *= w.scale[(int64_t)(i / w.block_k) * w.rows + id];
        y[i] = from_float<T>(v);
    }
}

template <typename T>
__global__ void embed_positions_kernel(T *y, const int32_t *positions, const float *table,
                                       int32_t cols, int32_t offset) {
    y += (int64_t)blockIdx.x * cols;
    pdl_trigger();
    table += ((int64_t)positions[blockIdx.x] + offset) * cols;
    pdl_wait();
    for (int32_t i = threadIdx.x; i < cols; i += blockDim.x)
        y[i] = from_float<T>(to_float(y[i]) + table[i]);
}

int cuda_embed(void *y, const int32_t *ids, const int32_t *drawn, int32_t n,
               const struct cuda_linear *w, float scale, cudaStream_t stream) {
    struct cuda_linear a = *w;
    a.y = y;
    if (n == 0) return 0;
    if (w->w_dtype == DTYPE_U8) return cuda_groups_embed(y, ids, drawn, n, w, scale, stream);
    DISPATCH(a.dtype, pdl_launch(embed_kernel<T>, dim3((unsigned)n), dim3(1024), 0, stream, ids,
                                 drawn, a, scale));
    return cuda_launched("embed");
}

int cuda_embed_positions(void *y, enum dtype dtype, const int32_t *positions, int32_t n,
                         const float *table, int32_t cols, int32_t offset, cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype, pdl_launch(embed_positions_kernel<T>, dim3((unsigned)n), dim3(256), 0, stream,
                               (T *)y, positions, table, cols, offset));
    return cuda_launched("embed_positions");
}
