// Which experts a row goes to, and with what weights (kernels/cpu/route.c), by a warp. A lane holds its scores in
// registers. Chosen are the largest one after the other, each by two reductions over the warp: the score, then the lower
// id among equals. A row's bits depend on its logits alone.
#pragma once
#include "kernels/cuda/device.cuh"
#include <limits.h>
#include <type_traits>

// launch(std::integral_constant<int, EACH>()) with so many scores of a lane as n_experts needs.
template <typename Launch> static inline void route_each(int32_t n_experts, Launch launch) {
    if (n_experts <= 32)
        launch(std::integral_constant<int, 1>());
    else if (n_experts <= 128)
        launch(std::integral_constant<int, 4>());
    else if (n_experts <= 512)
        launch(std::integral_constant<int, 16>());
    else
        launch(std::integral_constant<int, 32>());
}

namespace {

constexpr unsigned ALL = 0xffffffffu;

// A word whose order is the number's; above 0. Equal numbers have equal words: -0 counts as 0.
__device__ __forceinline__ uint32_t ordered(float v) {
    const uint32_t bits = __float_as_uint(v + 0.0f);
    return isnan(v) ? 1 : bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The k largest of this warp's n scores, the first of equals; bit i of a lane's result: score[i], that of element
// lane + 32 i, is one of them.
template <int EACH>
__device__ __forceinline__ uint32_t largest(const float (&score)[EACH], int n, int k) {
    const int lane = (int)threadIdx.x % 32;
    uint32_t key[EACH], taken = 0;
#pragma unroll
    for (int i = 0; i < EACH; i++) key[i] = lane + 32 * i < n ? ordered(score[i]) : 0;
    for (; k > 0; k--) {
        uint32_t best = 0;
        int at = 0;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (key[i] > best) best = key[i], at = i;
        const uint32_t most = __reduce_max_sync(ALL, best);
        const int mine = best == most ? lane + 32 * at : INT_MAX;
        if (most == 0 || __reduce_min_sync(ALL, mine) != mine) continue;
        taken |= 1u << at;
#pragma unroll
        for (int i = 0; i < EACH; i++)
            if (i == at) key[i] = 0;
    }
    return taken;
}

// Scores (lane + 32 i) of experts in groups that are not chosen become -inf. at: shared memory (2 n_experts).
template <int EACH>
__device__ void limit_groups(const struct route_args &a, float (&score)[EACH], float *at) {
    const int size = a.n_experts / a.n_groups, best = min(a.group_best, size);
    const int lane = (int)threadIdx.x % 32;
    float *group = at + a.n_experts;
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < a.n_experts) at[lane + 32 * i] = score[i];
    __syncwarp();
    for (int g = lane; g < a.n_groups; g += 32) {
        float first = -INFINITY, second = -INFINITY; // group_best is 1 or 2
        for (int i = g * size; i < (g + 1) * size; i++) {
            if (at[i] > first)
                second = first, first = at[i];
            else
                second = fmaxf(second, at[i]);
        }
        group[g] = best > 1 ? first + second : first;
    }
    __syncwarp();
    float sums[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        sums[i] = lane + 32 * i < a.n_groups ? group[lane + 32 * i] : 0.0f;
    const uint32_t taken = largest(sums, a.n_groups, a.n_chosen_groups);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < a.n_groups) group[lane + 32 * i] = (float)(taken >> i & 1);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i++)
        if (lane + 32 * i < a.n_experts && group[(lane + 32 * i) / size] == 0.0f)
            score[i] = -INFINITY;
}

// By a warp: ids and weights (n_chosen) of one row by its logits (n_experts), which are there after wait(). EACH of a lane:
// experts lane, lane + 32, .. shared (2 n_experts): of groups; then the weights of the chosen.
template <int EACH, typename Wait>
__device__ __forceinline__ void route_row(const struct route_args &a, int32_t *ids, float *weights,
                                          const float *logit, float *shared, Wait wait) {
    const int n = a.n_experts, k = a.n_chosen, lane = (int)threadIdx.x % 32;
    float bias[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++)
        bias[i] = a.choice_bias && lane + 32 * i < n ? a.choice_bias[lane + 32 * i] : 0.0f;
    wait();
    float score[EACH], weight[EACH], top = -INFINITY;
    bool broken = false;
#pragma unroll
    for (int i = 0; i < EACH; i++) score[i] = lane + 32 * i < n ? logit[lane + 32 * i] : -INFINITY;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        broken = broken || (lane + 32 * i < n && !isfinite(score[i]));
        top = fmaxf(top, score[i]);
    }
    if (__any_sync(ALL, broken)) {
        for (int i = lane; i < k; i += 32) ids[i] = i, weights[i] = __int_as_float(0x7fffffff);
        return;
    }
    const bool sigmoid = a.kind == ROUTER_SIGMOID;
    float sum = 0.0f;
    top = warp_max(top);
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        weight[i] = sigmoid ? 1.0f / (1.0f + expf(-score[i])) : expf(score[i] - top);
        if (lane + 32 * i < n) sum += weight[i];
    }
    sum = warp_sum(sum);
    // The softmax may make equals of logits that differ: without a bias these are compared themselves.
    const bool by_logit = !a.choice_bias && !sigmoid;
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        if (a.kind == ROUTER_SOFTMAX_TOPK) weight[i] /= sum;
        if (!by_logit) score[i] = weight[i] + bias[i];
    }
    if (a.n_groups > 1) limit_groups(a, score, shared);
    const uint32_t taken = largest(score, n, k);
    // The chosen, ascending.
    float chosen = 0.0f;
    __syncwarp();
#pragma unroll
    for (int i = 0, at = 0; i < EACH; i++) {
        const bool mine = taken >> i & 1;
        const unsigned all = __ballot_sync(ALL, mine);
        const int place = at + __popc(all & ((1u << lane) - 1));
        if (mine) ids[place] = lane + 32 * i, shared[place] = weight[i], chosen += weight[i];
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
        float w = shared[i] / by * a.factor;
        if (a.expert_scale) w *= a.expert_scale[ids[i]];
        weights[i] = w;
    }
}

} // namespace
