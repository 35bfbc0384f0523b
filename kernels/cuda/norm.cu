// y = norm(x) or y += norm(x), a block for each row: RMS or layer norm, F32 sums in an order that depends on the
// width only. Bound by latency in a decode step (one row) and by bytes in a prefill: a row is read
// once and kept in registers where it fits. One row may be normed by the linear that reads it
// (gemv.cu), with the same bits (norm_row.cuh).
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

// Each thread keeps VEC neighbouring values. width is a multiple of VEC, at most VEC * blockDim.x.
template <typename T>
__global__ void norm_kernel(enum norm_kind kind, T *y, const T *x, int32_t width, int64_t y_row,
                            int64_t x_row, const float *weight, const float *bias, float eps,
                            bool add) {
    constexpr int VEC = 16 / (int)sizeof(T);
    int32_t at = (int32_t)threadIdx.x * VEC;
    bool mine = at < width;
    float v[VEC], w[VEC], b[VEC];
    pdl_trigger();
    for (int i = 0; i < VEC; i++) { // constants: before the wait
        w[i] = mine ? weight[at + i] : 0.0f;
        b[i] = mine && bias ? bias[at + i] : 0.0f;
    }
    pdl_wait();
    alignas(16) T raw[VEC], old[VEC];
    if (mine) *(uint4 *)raw = *(const uint4 *)(x + blockIdx.x * x_row + at);
    if (mine && add) *(uint4 *)old = *(const uint4 *)(y + blockIdx.x * y_row + at);
    float mean = 0.0f, sum = 0.0f;
    for (int i = 0; i < VEC; i++) v[i] = mine ? to_float(raw[i]) : 0.0f;
    if (kind == NORM_LAYER) {
        for (int i = 0; i < VEC; i++) sum += v[i];
        mean = block_sum(sum) / (float)width;
        sum = 0.0f;
    }
    for (int i = 0; i < VEC && mine; i++) sum = norm_square_added(sum, v[i], mean);
    float scale = norm_scale(block_sum(sum), width, eps);
    for (int i = 0; i < VEC; i++) {
        float r = norm_result(v[i], mean, scale, w[i]);
        raw[i] = from_float<T>(bias ? __fadd_rn(r, b[i]) : r);
        if (add) raw[i] = from_float<T>(to_float(old[i]) + to_float(raw[i]));
    }
    if (mine) *(uint4 *)(y + blockIdx.x * y_row + at) = *(const uint4 *)raw;
}

// Any width.
template <typename T>
__global__ void norm_any_kernel(enum norm_kind kind, T *y, const T *x, int32_t width, int64_t y_row,
                                int64_t x_row, const float *weight, const float *bias, float eps,
                                bool add) {
    x += blockIdx.x * x_row;
    y += blockIdx.x * y_row;
    float mean = 0.0f, sum = 0.0f;
    if (kind == NORM_LAYER) {
        for (int32_t i = threadIdx.x; i < width; i += blockDim.x) sum += to_float(x[i]);
        mean = block_sum(sum) / (float)width;
        sum = 0.0f;
    }
    for (int32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float d = to_float(x[i]) - mean;
        sum += d * d;
    }
    float scale = 1.0f / sqrtf(block_sum(sum) / (float)width + eps);
    for (int32_t i = threadIdx.x; i < width; i += blockDim.x) {
        float v = (to_float(x[i]) - mean) * scale * weight[i];
        const T normed = from_float<T>(bias ? v + bias[i] : v);
        y[i] = add ? from_float<T>(to_float(y[i]) + to_float(normed)) : normed;
    }
}

template <typename T>
void launch_norm(T *y, const T *x, int32_t n, int32_t width, int64_t y_row, int64_t x_row,
                 const struct norm_args *a, bool add, cudaStream_t stream) {
    constexpr int VEC = 16 / (int)sizeof(T);
    bool whole = width % VEC == 0 && y_row % VEC == 0 && x_row % VEC == 0 && width <= VEC * 1024 &&
                 (((uintptr_t)x | (uintptr_t)y) & 15) == 0;
    if (whole) {
        dim3 block((unsigned)((width / VEC + 31) / 32 * 32));
        pdl_launch(norm_kernel<T>, dim3((unsigned)n), block, 0, stream, a->kind, y, x, width, y_row,
                   x_row, a->weight, a->bias, a->eps, add);
        return;
    }
    int32_t threads = (width / 4 + 31) / 32 * 32;
    norm_any_kernel<T><<<n, threads<32 ? 32 : threads> 1024 ? 1024 : threads, 0, stream>>>(
        a->kind, y, x, width, y_row, x_row, a->weight, a->bias, a->eps, add);
}

} // namespace

int cuda_norm(void *y, const void *x, enum dtype dtype, int32_t n, int32_t width,
              const struct norm_args *args, cudaStream_t stream) {
    if (n == 0) return 0;
    const int64_t x_row = args->x_row ? args->x_row : width;
    DISPATCH(dtype,
             launch_norm<T>((T *)y, (const T *)x, n, width, width, x_row, args, false, stream));
    return cuda_launched("norm");
}

int cuda_norm_strided(void *x, enum dtype dtype, int32_t n, int32_t width, int64_t stride,
                      const struct norm_args *args, cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype,
             launch_norm<T>((T *)x, (const T *)x, n, width, stride, stride, args, false, stream));
    return cuda_launched("norm");
}

int cuda_norm_add(void *y, const void *x, enum dtype dtype, int32_t n, int32_t width,
                  const struct norm_args *args, cudaStream_t stream) {
    if (n == 0) return 0;
    DISPATCH(dtype,
             launch_norm<T>((T *)y, (const T *)x, n, width, width, width, args, true, stream));
    return cuda_launched("norm_add");
}
