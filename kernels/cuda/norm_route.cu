// A few rows on their way to experts: the norm, the router's linear and the route in one launch, because three launches
// would take longer than their work. sm_90a.
//
// A cluster of blocks takes a row. Each block norms all of it (norm_row.cuh) and computes its share of the logits; its rows
// of the router's matrix come to shared memory before x is there. The logits meet in the first block, whose first warp
// routes (route_row.cuh) while its others store the normed row.
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/norm_row.cuh"
#include "kernels/cuda/route_row.cuh"

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32, CLUSTER = 8;
constexpr int VECTORS = 2, MOST_COLS = VECTORS * THREADS * 8, MOST_ROWS = 16;
constexpr int MOST_SHARED = 160 << 10;

struct norm_route_job {
    struct cuda_linear linear; // x (n, cols); w, bias: the router's; norm
    struct route_args route;
    void *normed; // (n, cols)
    int32_t *ids;
    float *weights;
    int32_t each; // experts of a block
};

struct places { // bytes in shared memory
    int32_t x, logits, route, end;
};
__host__ __device__ inline struct places places_of(const struct norm_route_job &j) {
    struct places p = {};
    const int32_t row = j.linear.cols * 2, n = j.route.n_experts;
    p.x = j.each * row;
    p.logits = p.x + row;
    p.route = p.logits + CLUSTER * j.each * 4;
    p.end = p.route + 2 * n * 4;
    return p;
}

template <typename T, int EACH>
__global__ void __launch_bounds__(THREADS)
    norm_route_kernel(const __grid_constant__ struct norm_route_job j) {
#ifdef PARLEY_SM90A
    extern __shared__ __align__(128) char shared[];
    const struct cuda_linear &a = j.linear;
    const struct places at = places_of(j);
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    const int rank = (int)blockIdx.x, words = a.cols / 8;
    const int first = rank * j.each, n = min(j.each, j.route.n_experts - first);
    const int64_t row = blockIdx.y;
    cluster_meet(); // all blocks begin before the first logit is sent
    pdl_trigger();
    const uint4 *w = (const uint4 *)((const T *)a.w + (int64_t)first * a.ld);
    for (int i = (int)threadIdx.x; i < n * words; i += THREADS)
        copy_async(shared_address(shared) + (uint32_t)i * 16,
                   w + (int64_t)(i / words) * (a.ld / 8) + i % words, true);
    copy_commit();
    struct norm_constants<VECTORS> constants;
    norm_constants_load<VECTORS, THREADS>(constants, a);
    pdl_wait();
    T *x = (T *)(shared + at.x);
    norm_row<T, VECTORS, THREADS>(x, (const T *)a.x + row * a.cols, a, constants,
                                  []() { __syncthreads(); });
    copy_wait<0>();
    __syncthreads();
    cluster_wait();
    float *logits = (float *)(shared + at.logits);
    const uint32_t there = cluster_address(shared_address(logits), 0);
    for (int e = warp; e < n; e += WARPS) {
        const T *of = (const T *)shared + (int64_t)e * a.cols;
        float sum = 0.0f;
        for (int i = lane; i < words; i += 32) {
            const uint4 u = ((const uint4 *)x)[i], v = ((const uint4 *)of)[i];
#pragma unroll
            for (int k = 0; k < 8; k++)
                sum = fmaf(to_float(((const T *)&u)[k]), to_float(((const T *)&v)[k]), sum);
        }
        sum = warp_sum(sum) + (a.bias ? a.bias[first + e] : 0.0f);
        if (lane == 0) cluster_store(there + (uint32_t)(first + e) * 4, sum);
    }
    cluster_sync();
    if (rank != 0) return;
    if (warp == 0)
        route_row<EACH>(j.route, j.ids + row * j.route.n_chosen, j.weights + row * j.route.n_chosen,
                        logits, (float *)(shared + at.route), []() {});
    else
        for (int i = (int)threadIdx.x - 32; i < words; i += THREADS - 32)
            ((uint4 *)j.normed)[row * words + i] = ((const uint4 *)x)[i];
#endif
}

template <typename T> void launch(const struct norm_route_job &j, cudaStream_t stream) {
    route_each(j.route.n_experts, [&](auto each) {
        auto kernel = norm_route_kernel<T, decltype(each)::value>;
        const size_t bytes = (size_t)places_of(j).end;
        cuda_allow_shared((const void *)kernel, bytes);
        pdl_launch_cluster(kernel, dim3(CLUSTER, (unsigned)j.linear.n), dim3(THREADS), bytes,
                           CLUSTER, stream, j);
    });
}

} // namespace

int cuda_norm_route(int32_t *ids, float *weights, void *normed, const struct cuda_linear *a,
                    const struct route_args *args, cudaStream_t stream) {
    const struct norm_route_job j = {*a,  *args,   normed,
                                     ids, weights, (args->n_experts + CLUSTER - 1) / CLUSTER};
    if (a->n > MOST_ROWS || a->cols % 8 != 0 || a->cols > MOST_COLS || a->ld % 8 != 0 ||
        a->w_dtype != a->dtype || dtype_size(a->dtype) != 2 || places_of(j).end > MOST_SHARED ||
        !hopper_here())
        return CUDA_UNSUPPORTED;
    if (a->dtype == DTYPE_BF16)
        launch<__nv_bfloat16>(j, stream);
    else
        launch<__half>(j, stream);
    return cuda_launched("norm_route");
}
