// Which experts rows go to, a warp for each (route_row.cuh). Nothing beside the experts themselves: bound by latency. A
// few rows are normed, scored and routed by one launch (norm_route.cu).
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/route_row.cuh"

namespace {

struct route_job {
    struct route_args a;
    const float *logits;
    int32_t *ids;
    float *weights;
};

template <int EACH>
__global__ void __launch_bounds__(32) route_kernel(const __grid_constant__ struct route_job j) {
    extern __shared__ float shared[]; // (2 n_experts)
    const int64_t row = blockIdx.x, k = j.a.n_chosen;
    pdl_trigger();
    route_row<EACH>(j.a, j.ids + row * k, j.weights + row * k, j.logits + row * j.a.n_experts,
                    shared, []() { pdl_wait(); });
}

} // namespace

int cuda_route(int32_t *ids, float *weights, const float *logits, int32_t n,
               const struct route_args *args, cudaStream_t stream) {
    if (n == 0) return 0;
    const struct route_job j = {*args, logits, ids, weights};
    const size_t shared = (size_t)args->n_experts * 2 * sizeof(float);
    route_each(args->n_experts, [&](auto each) {
        pdl_launch(route_kernel<decltype(each)::value>, dim3((unsigned)n), dim3(32), shared, stream,
                   j);
    });
    return cuda_launched("route");
}
