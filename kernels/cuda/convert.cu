// Converts weights while loading: dtype, order, padding of rows. Also widens 8-bit weights.
#include "kernels/cuda/device.cuh"

// A tile of 32 x 32 goes through shared memory, so that reads run along src's unit stride and
// writes along dst's rows, whichever way src lies.
template <typename T>
__global__ void convert_kernel(T *dst, int64_t ld, const void *src, enum dtype src_dtype,
                               int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride) {
    __shared__ float tile[32][33];
    int64_t row0 = (int64_t)blockIdx.y * 32, col0 = (int64_t)blockIdx.x * 32;
    bool down = row_stride == 1; // src's unit stride runs down the rows
    for (int32_t j = threadIdx.y; j < 32; j += blockDim.y) {
        int32_t r = down ? threadIdx.x : j, c = down ? j : threadIdx.x;
        if (row0 + r < rows && col0 + c < cols)
            tile[r][c] =
                load_as_float(src, src_dtype, (row0 + r) * row_stride + (col0 + c) * col_stride);
    }
    __syncthreads();
    for (int32_t r = threadIdx.y; r < 32; r += blockDim.y)
        if (row0 + r < rows && col0 + threadIdx.x < cols)
            dst[(row0 + r) * ld + col0 + threadIdx.x] = from_float<T>(tile[r][threadIdx.x]);
}

// 8-bit weights widened for a product of many rows: 8 at a time, 3 bytes moved for each.
template <typename T>
__global__ void widen_kernel(T *dst, const __grid_constant__ struct cuda_linear w, int32_t row,
                             int32_t n_rows) {
    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 8;
    if (i >= (int64_t)n_rows * w.ld) return;
    int32_t from = row + (int32_t)(i / w.ld), col = (int32_t)(i % w.ld);
    int32_t block = w.block_k && col < w.cols ? col / w.block_k : 0;
    float s = w.scale[(int64_t)block * w.rows + from];
    alignas(8) uint8_t q[8];
    alignas(16) T wide[8];
    *(uint2 *)q = *(const uint2 *)((const uint8_t *)w.w + (int64_t)from * w.ld + col);
    bool int8 = w.w_dtype == DTYPE_I8;
    for (int j = 0; j < 8; j++)
        wide[j] = from_float<T>((int8 ? (float)(int8_t)q[j] : e4m3_as_float(q[j])) * s);
    for (size_t j = 0; j < sizeof wide / 16; j++)
        ((uint4 *)(dst + i))[j] = ((const uint4 *)wide)[j];
}

int cuda_widen(void *dst, const struct cuda_linear *w, int32_t row, int32_t n,
               cudaStream_t stream) {
    unsigned blocks = (unsigned)(((int64_t)n * w->ld / 8 + 255) / 256); // ld is a multiple of 16
    DISPATCH(w->dtype, widen_kernel<T><<<blocks, 256, 0, stream>>>((T *)dst, *w, row, n));
    return cuda_launched("widen");
}

int cuda_convert(void *dst, enum dtype dst_dtype, int64_t ld, const void *src, enum dtype src_dtype,
                 int64_t rows, int64_t cols, int64_t row_stride, int64_t col_stride,
                 cudaStream_t stream) {
    if (rows == 0 || cols == 0) return 0;
    const int64_t most = 65535 * 32; // rows of one launch
    for (int64_t r = 0; r < rows; r += most) {
        int64_t n = rows - r < most ? rows - r : most;
        dim3 grid((unsigned)((cols + 31) / 32), (unsigned)((n + 31) / 32)), block(32, 8);
        const void *from =
            (const char *)src + r * row_stride * (int64_t)(src_dtype == DTYPE_F32 ? 4 : 2);
        DISPATCH(dst_dtype, convert_kernel<T><<<grid, block, 0, stream>>>((T *)dst + r * ld, ld,
                                                                          from, src_dtype, n, cols,
                                                                          row_stride, col_stride));
    }
    return cuda_launched("convert");
}
