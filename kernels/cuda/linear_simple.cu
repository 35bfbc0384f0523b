// y = x W^T for any shape and dtype: the reference for the fast ones, and the one whose bits depend
// on nothing but the row and the weights. A block makes 64 x 64 results, a thread 4 x 4 of them; K
// runs in steps of 16 through shared memory, and each result's sum is one chain of fused
// multiply-adds over ascending K, whatever n is.
#include "kernels/cuda/device.cuh"

enum { TILE = 64, STEP = 16, EACH = 4 };

template <typename T>
__global__ void linear_simple_kernel(const __grid_constant__ struct cuda_linear a) {
    __shared__ float xs[STEP][TILE + 4], ws[STEP][TILE + 4];
    int32_t row0 = blockIdx.y * TILE, out0 = blockIdx.x * TILE;
    int32_t tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const T *x = (const T *)a.x;
    float sum[EACH][EACH] = {}, blocks[EACH][EACH] = {}; // blocks: those before, times their scales
    for (int32_t k0 = 0; k0 < a.cols; k0 += STEP) {
        for (int32_t i = threadIdx.x; i < TILE * STEP; i += blockDim.x) {
            int32_t r = i / STEP, k = i % STEP, at = k0 + k;
            bool in_k = at < a.cols;
            xs[k][r] =
                in_k && row0 + r < a.n ? to_float(x[(int64_t)(row0 + r) * a.cols + at]) : 0.0f;
            ws[k][r] = in_k && out0 + r < a.rows
                           ? load_as_float(a.w, a.w_dtype, (int64_t)(out0 + r) * a.ld + at)
                           : 0.0f;
        }
        __syncthreads();
        for (int32_t k = 0; k < STEP; k++)
            for (int32_t i = 0; i < EACH; i++)
                for (int32_t j = 0; j < EACH; j++)
                    sum[i][j] = fmaf(xs[k][ty * EACH + i], ws[k][tx + 16 * j], sum[i][j]);
        __syncthreads();
        if (!a.block_k || ((k0 + STEP) % a.block_k != 0 && k0 + STEP < a.cols)) continue;
        const float *scale = a.scale + (int64_t)(k0 / a.block_k) * a.rows;
        for (int32_t j = 0; j < EACH; j++) {
            float s = scale[min(out0 + tx + 16 * j, a.rows - 1)];
            for (int32_t i = 0; i < EACH; i++) {
                blocks[i][j] = fmaf(sum[i][j], s, blocks[i][j]);
                sum[i][j] = 0.0f;
            }
        }
    }
    for (int32_t i = 0; i < EACH; i++)
        for (int32_t j = 0; j < EACH; j++) {
            int32_t r = row0 + ty * EACH + i, o = out0 + tx + 16 * j;
            if (r >= a.n || o >= a.rows) continue;
            int64_t at = (int64_t)r * a.rows + o;
            enum dtype t = a.y_f32 ? DTYPE_F32 : a.dtype;
            float v = a.block_k ? blocks[i][j] : sum[i][j];
            if (a.scale && !a.block_k) v *= a.scale[o];
            if (a.bias) v += a.bias[o];
            if (a.add) v += load_as_float(a.y, t, at);
            store_from_float(a.y, t, at, v);
        }
}

int cuda_linear_simple(const struct cuda_linear *a, cudaStream_t stream) {
    if (a->norm_weight || a->activate) return CUDA_UNSUPPORTED;
    if (a->n == 0) return 0;
    dim3 grid((unsigned)((a->rows + TILE - 1) / TILE), (unsigned)((a->n + TILE - 1) / TILE));
    DISPATCH(a->dtype, linear_simple_kernel<T><<<grid, 256, 0, stream>>>(*a));
    return cuda_launched("linear");
}
