// Token and position embeddings: a block for each row, one row of the table read and one written.
#include "kernels/cuda/device.cuh"

// An id outside the table gives zeros: the host has refused it where it could see it.
template <typename T>
__global__ void embed_kernel(T *y, const int32_t *ids, const void *w, enum dtype w_dtype,
                             const float *scale_of_row, int32_t rows, int32_t cols, int32_t ld,
                             float scale) {
    int32_t id = ids[blockIdx.x];
    y += (int64_t)blockIdx.x * cols;
    bool known = id >= 0 && id < rows;
    if (known && scale_of_row) scale *= scale_of_row[id];
    for (int32_t i = threadIdx.x; i < cols; i += blockDim.x) {
        float v = known ? load_as_float(w, w_dtype, (int64_t)id * ld + i) * scale : 0.0f;
        y[i] = from_float<T>(v);
    }
}

template <typename T>
__global__ void embed_positions_kernel(T *y, const int32_t *positions, const float *table,
                                       int32_t cols, int32_t offset) {
    y += (int64_t)blockIdx.x * cols;
    table += ((int64_t)positions[blockIdx.x] + offset) * cols;
    for (int32_t i = threadIdx.x; i < cols; i += blockDim.x)
        y[i] = from_float<T>(to_float(y[i]) + table[i]);
}

int cuda_embed(void *y, enum dtype dtype, const int32_t *ids, int32_t n, const void *w,
               const float *scale_of_row, enum dtype w_dtype, int32_t rows, int32_t cols,
               int32_t ld, float scale, cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype, embed_kernel<T><<<n, 1024, 0, stream>>>((T *)y, ids, w, w_dtype, scale_of_row,
                                                            rows, cols, ld, scale));
    return cuda_launched("embed");
}

int cuda_embed_positions(void *y, enum dtype dtype, const int32_t *positions, int32_t n,
                         const float *table, int32_t cols, int32_t offset, cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype, embed_positions_kernel<T>
             <<<n, 256, 0, stream>>>((T *)y, positions, table, cols, offset));
    return cuda_launched("embed_positions");
}
