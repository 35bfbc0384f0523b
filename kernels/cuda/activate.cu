// The feed-forward's activation, gated or plain. Bound by moving 3 (plain: 2) values of T for each
// result. Where rows are multiples of 16 bytes, a thread computes 16 bytes of results: with one
// result each, 2,048 rows of Llama-8B took 187 microseconds, a tenth of a prefill.
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr int THREADS = 256;

template <typename T> struct alignas(16) word {
    static constexpr int n = 16 / (int)sizeof(T);
    T of[n];
};

// Block (row, part of its words).
template <typename T>
__global__ void __launch_bounds__(THREADS)
    activate_words(enum activation act, bool gated, T *y, const T *x, int32_t width) {
    using W = struct word<T>;
    const int32_t words = width / W::n, i = (int32_t)(blockIdx.y * THREADS + threadIdx.x);
    pdl_trigger();
    pdl_wait();
    if (i >= words) return;
    const W *from = (const W *)x + (int64_t)blockIdx.x * words * (gated ? 2 : 1);
    W a = from[i], b = a;
    if (gated) b = from[words + i];
#pragma unroll
    for (int e = 0; e < W::n; e++) {
        float v = activated(act, to_float(a.of[e]));
        a.of[e] = from_float<T>(gated ? v * to_float(b.of[e]) : v);
    }
    ((W *)y)[(int64_t)blockIdx.x * words + i] = a;
}

// Any width.
template <typename T>
__global__ void activate_values(enum activation act, bool gated, T *y, const T *x, int64_t n,
                                int32_t width) {
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    if (!gated) {
        y[i] = from_float<T>(activated(act, to_float(x[i])));
        return;
    }
    const T *gate = x + i / width * 2 * width + i % width;
    y[i] = from_float<T>(activated(act, to_float(gate[0])) * to_float(gate[width]));
}

template <typename T>
void launch_activate(enum activation act, bool gated, T *y, const T *x, int32_t n, int32_t width,
                     cudaStream_t stream) {
    constexpr int each = word<T>::n;
    if (width % each == 0 && (((uintptr_t)x | (uintptr_t)y) & 15) == 0) {
        dim3 grid((unsigned)n, (unsigned)((width / each + THREADS - 1) / THREADS));
        pdl_launch(activate_words<T>, grid, dim3(THREADS), 0, stream, act, gated, y, x, width);
        return;
    }
    int64_t total = (int64_t)n * width;
    activate_values<T><<<(unsigned)((total + THREADS - 1) / THREADS), THREADS, 0, stream>>>(
        act, gated, y, x, total, width);
}

} // namespace

int cuda_activate(enum activation act, bool gated, void *y, const void *x, enum dtype dtype,
                  int32_t n, int32_t width, cudaStream_t stream) {
    if (n == 0 || width == 0) return 0;
    DISPATCH(dtype, launch_activate<T>(act, gated, (T *)y, (const T *)x, n, width, stream));
    return cuda_launched("activate");
}
