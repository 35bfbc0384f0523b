// Tools to measure the GPU's kernels: random data, comparisons that count failures, the median time of a
// graph's replays, and this card's read ceiling.
#pragma once
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

static int n_failed;

static void must(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    printf("FAILED %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}
#define MUST(call) must((call), #call)

// --- data ----------------------------------------------------------------------------------------
static uint64_t rng_state = 88172645463325252ull;
static float uniform(void) { // -1 .. 1
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return (float)(int32_t)(rng_state >> 32) * 4.656613e-10f;
}

__global__ void fill_kernel(uint16_t *p, size_t n, uint32_t seed, float scale, int f16) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u ^ seed ^ (uint32_t)(i >> 32) * 40503u;
        h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
        float v = (float)(int32_t)h * 4.656613e-10f * scale;
        p[i] = f16 ? __half_as_ushort(__float2half(v)) : __bfloat16_as_ushort(__float2bfloat16(v));
    }
}

// Everything runs in it: what the default stream is asked for, this one does not wait for.
static cudaStream_t stream;

template <typename E> struct device_array {
    E *p = nullptr;
    size_t n = 0;
    explicit device_array(size_t count) : n(count) { MUST(cudaMalloc(&p, n * sizeof(E) + 16)); }
    explicit device_array(const std::vector<E> &host) : device_array(host.size()) {
        MUST(cudaMemcpyAsync(p, host.data(), n * sizeof(E), cudaMemcpyHostToDevice, stream));
    }
    ~device_array() { cudaFree(p); }
    device_array(const device_array &) = delete;
    std::vector<E> host() const {
        std::vector<E> h(n);
        MUST(cudaMemcpyAsync(h.data(), p, n * sizeof(E), cudaMemcpyDeviceToHost, stream));
        MUST(cudaStreamSynchronize(stream));
        return h;
    }
};

static uint16_t narrow(float v, enum dtype t) {
    if (t == DTYPE_BF16) return bf16_from_f32(v);
    return __half_as_ushort(__float2half(v));
}
static float widened(uint16_t u, enum dtype t) {
    if (t == DTYPE_BF16) return bf16_to_f32(u);
    return __half2float(__ushort_as_half(u));
}
static const char *name_of(enum dtype t) {
    return t == DTYPE_BF16      ? "bf16"
           : t == DTYPE_F16     ? "f16"
           : t == DTYPE_I8      ? "int8"
           : t == DTYPE_F8_E4M3 ? "fp8"
                                : "f32";
}

// |out - ref| / |ref| over all elements; NaN counts as infinite.
struct difference {
    double d = 0, r = 0;
    void add(double out, double ref) {
        double e = out - ref;
        d += e == e ? e * e : INFINITY;
        r += ref * ref;
    }
    double value() const { return sqrt(d / (r > 0 ? r : 1)); }
};

static void report(const std::string &what, double error, double most, bool same_bits) {
    bool ok = error <= most && same_bits;
    if (!ok) n_failed++;
    printf("%-6s %-72s error %.1e%s\n", ok ? "ok" : "FAILED", what.c_str(), error,
           same_bits ? "" : "  BITS DIFFER");
}

// --- time ----------------------------------------------------------------------------------------

// Median seconds of one replay of what `record` launches.
static double seconds_of(const std::function<void()> &record, int replays = 7) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    record();
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    MUST(cudaEventCreate(&a));
    MUST(cudaEventCreate(&b));
    std::vector<float> ms;
    for (int i = 0; i < replays + 2; i++) {
        MUST(cudaEventRecord(a, stream));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaEventRecord(b, stream));
        MUST(cudaEventSynchronize(b));
        float t;
        MUST(cudaEventElapsedTime(&t, a, b));
        if (i >= 2) ms.push_back(t);
    }
    MUST(cudaGetLastError());
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2] * 1e-3;
}

template <int UNROLL>
__global__ void __launch_bounds__(512) read_kernel(const uint4 *p, size_t n, uint4 *sink) {
    uint4 s = make_uint4(0, 0, 0, 0);
    size_t each = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + (UNROLL - 1) * each < n; i += UNROLL * each) {
        uint4 v[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) v[k] = __ldcs(p + i + k * each);
#pragma unroll
        for (int k = 0; k < UNROLL; k++) s.x ^= v[k].x, s.y ^= v[k].y, s.z ^= v[k].z, s.w ^= v[k].w;
    }
    if (s.x == 0x12345678 && s.y == s.z) *sink = s;
}

static double ceiling; // bytes a second
static char *pool;     // weights and caches that are timed lie here
static const size_t pool_bytes = (size_t)28 << 30;

static void measure_ceiling(void) {
    device_array<uint4> sink(1);
    size_t bytes = (size_t)8 << 30;
    int blocks[] = {132 * 2, 132 * 4, 132 * 8};
    for (int b : blocks) {
        double t8 = seconds_of(
            [&] { read_kernel<8><<<b, 512, 0, stream>>>((uint4 *)pool, bytes / 16, sink.p); });
        double t4 = seconds_of(
            [&] { read_kernel<4><<<b, 512, 0, stream>>>((uint4 *)pool, bytes / 16, sink.p); });
        ceiling = std::max(ceiling, (double)bytes / std::min(t4, t8));
    }
    printf("read ceiling %.0f GB/s\n", ceiling * 1e-9);
}

static void print_rate(const std::string &what, double bytes, double seconds) {
    printf("%-68s %9.2f us  %6.0f GB/s  %5.1f %%\n", what.c_str(), seconds * 1e6,
           bytes / seconds * 1e-9, 100 * bytes / seconds / ceiling);
}
