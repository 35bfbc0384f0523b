// Which experts a row goes to, and with what weights (kernels/cpu/route.c), by a warp for each row. Nothing
// beside the experts themselves: bound by latency. Chosen are the largest scores one after the other,
// each by a reduction over the warp that prefers the lower id among equals. A row's bits depend on its
// logits alone.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"

namespace {

constexpr unsigned ALL = 0xffffffffu;

struct route_job {
    struct route_args a;
    const float *logits;
    int32_t *ids;
    float *weights;
};

// The place of the largest of n scores that is not taken, the first of equals; in every lane.
__device__ __forceinline__ int largest(const float *score, const bool *taken, int n) {
    float best = 0.0f;
    int at = -1;
    for (int i = (int)threadIdx.x; i < n; i += 32)
        if (!taken[i] && (at < 0 || score[i] > best)) best = score[i], at = i;
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(ALL, best, step);
        const int other_at = __shfl_xor_sync(ALL, at, step);
        if (other_at >= 0 && (at < 0 || other > best || (other == best && other_at < at)))
            best = other, at = other_at;
    }
    return at;
}

__device__ __forceinline__ void take(const float *score, int n, int k, bool *taken) {
    for (int i = (int)threadIdx.x; i < n; i += 32) taken[i] = false;
    __syncwarp();
    for (int i = 0; i < k; i++) {
        const int at = largest(score, taken, n);
        if (threadIdx.x == 0 && at >= 0) taken[at] = true;
        __syncwarp();
    }
}

// Scores of experts in groups that are not chosen become `out`.
__device__ void limit_groups(const struct route_args &a, float *score, bool *taken, float *group,
                             float out) {
    const int size = a.n_experts / a.n_groups, best = min(a.group_best, size);
    for (int g = (int)threadIdx.x; g < a.n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY; // group_best is 1 or 2
        for (int i = g * size; i < (g + 1) * size; i++) {
            if (score[i] > first)
                second = first, first = score[i];
            else
                second = fmaxf(second, score[i]);
        }
        group[g] = best > 1 ? first + second : first;
    }
    __syncwarp();
    take(group, a.n_groups, a.n_chosen_groups, taken);
    for (int e = (int)threadIdx.x; e < a.n_experts; e += 32)
        if (!taken[e / size]) score[e] = out;
    __syncwarp();
}

__global__ void __launch_bounds__(32) route_kernel(const __grid_constant__ struct route_job j) {
    extern __shared__ float scores[]; // score, weight, group (n_experts each); then taken
    const struct route_args &a = j.a;
    const int n = a.n_experts, k = a.n_chosen, lane = (int)threadIdx.x;
    float *score = scores, *weight = score + n, *group = weight + n;
    bool *taken = (bool *)(group + n);
    pdl_trigger();
    pdl_wait();
    const float *logit = j.logits + (int64_t)blockIdx.x * n;
    int32_t *ids = j.ids + (int64_t)blockIdx.x * k;
    float *weights = j.weights + (int64_t)blockIdx.x * k;
    float top = -INFINITY;
    bool broken = false;
    for (int e = lane; e < n; e += 32) {
        score[e] = logit[e];
        broken = broken || !isfinite(score[e]);
        top = fmaxf(top, score[e]);
    }
    if (__any_sync(ALL, broken)) {
        for (int i = lane; i < k; i += 32) ids[i] = i, weights[i] = __int_as_float(0x7fffffff);
        return;
    }
    const bool sigmoid = a.kind == ROUTER_SIGMOID;
    float sum = 0.0f;
    top = warp_max(top);
    for (int e = lane; e < n; e += 32) {
        weight[e] = sigmoid ? 1.0f / (1.0f + expf(-score[e])) : expf(score[e] - top);
        sum += weight[e];
    }
    sum = warp_sum(sum);
    // The softmax may make equals of logits that differ: without a bias these are compared themselves.
    const bool by_logit = !a.choice_bias && !sigmoid;
    for (int e = lane; e < n; e += 32) {
        if (a.kind == ROUTER_SOFTMAX_TOPK) weight[e] /= sum;
        if (!by_logit) score[e] = weight[e] + (a.choice_bias ? a.choice_bias[e] : 0.0f);
    }
    __syncwarp();
    if (a.n_groups > 1) limit_groups(a, score, taken, group, -INFINITY);
    take(score, n, k, taken);
    // The chosen, ascending.
    float chosen = 0.0f;
    for (int first = 0, at = 0; first < n; first += 32) {
        const int e = first + lane;
        const bool mine = e < n && taken[e];
        const unsigned all = __ballot_sync(ALL, mine);
        const int place = at + __popc(all & ((1u << lane) - 1));
        if (mine) ids[place] = e, group[place] = weight[e], chosen += weight[e];
        at += __popc(all);
    }
    chosen = warp_sum(chosen);
    __syncwarp();
    float by = 1.0f;
    if (a.kind == ROUTER_TOPK_SOFTMAX)
        by = chosen;
    else if (a.normalised)
        by = chosen + 1e-20f;
    for (int i = lane; i < k; i += 32) {
        float w = group[i] / by * a.factor;
        if (a.expert_scale) w *= a.expert_scale[ids[i]];
        weights[i] = w;
    }
}

} // namespace

int cuda_route(int32_t *ids, float *weights, const float *logits, int32_t n,
               const struct route_args *args, cudaStream_t stream) {
    if (n == 0) return 0;
    const struct route_job j = {*args, logits, ids, weights};
    const size_t shared = (size_t)args->n_experts * (3 * sizeof(float) + sizeof(bool));
    pdl_launch(route_kernel, dim3((unsigned)n), dim3(32), shared, stream, j);
    return cuda_launched("route");
}
