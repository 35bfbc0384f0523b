// Shared by the kernels of experts (experts*.cu): a product of pairs (row, expert) with a matrix of their expert.
//
// No count comes to the host: grids are bounds, and blocks find their part by the ids alone. The matrices'
// addresses are launch arguments, so nothing is allocated and a recorded step holds them.
#pragma once
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/pdl.cuh"

// The matrices of all experts.
template <int MOST> struct experts_table {
    const void *w[MOST];
    const float *scale[MOST]; // 8 bits and fewer
};

// One product: `up` makes hidden values of x, `down` results of hidden values.
struct experts_product {
    bool down, gated;
    enum activation act;
    float limit;
    enum dtype dtype, w_dtype;
    int32_t rows, cols, ld, block_k; // of a matrix; ld: few bits' layout (groups.h)
    int32_t width;                   // of a hidden row
    const float *bias;               // (n_experts, rows) or NULL
    const void *x;                   // (n, cols); down: hidden (pairs, cols)
    void *hidden;                    // (pairs, width); up's result
    float *result;                   // (pairs, rows); down's result
    const int32_t *ids;              // (pairs)
    int32_t pairs, n_chosen, n_experts;
    // The last of a row's pairs is the last expert's, with weight 1, and not in ids (*_stay.cu).
    bool shared;
    bool hidden_in_codes; // hidden rows in the order of few bits' codes (groups.h): few rows alone
    // Sorted by expert: order[first[e]] .. are the pairs of expert e. Not of few rows.
    const int32_t *first, *order;
};

// The gate's value and the other half's become a hidden value.
__device__ __forceinline__ float gated_value(const struct experts_product &p, float gate,
                                             float other) {
    if (p.limit > 0.0f) {
        gate = fminf(gate, p.limit);
        other = fminf(fmaxf(other, -p.limit), p.limit) + 1.0f;
    }
    return activated(p.act, gate) * other;
}

// Launches of the kinds; the table has `n_experts` of MOST entries. All but `few` take sorted pairs.
int experts_few(const struct experts_product *p, const struct weight *w, cudaStream_t stream);
int experts_many(const struct experts_product *p, const struct weight *w, cudaStream_t stream);
int experts_any(const struct experts_product *p, const struct weight *w, cudaStream_t stream);
// Both products of sorted pairs with weights of 16 bits, where experts_hopper_covers. work: experts_hopper_bytes() bytes of device
// memory, aligned to 256 bytes.
int experts_hopper(const struct experts_product *up, const struct experts_product *down,
                   const struct weight *up_w, const struct weight *down_w, void *work,
                   cudaStream_t stream);
bool experts_hopper_covers(const struct experts_product *up, const struct experts_product *down);
// The same with weights of few bits, where experts_hopper_groups_covers.
int experts_hopper_groups(const struct experts_product *up, const struct experts_product *down,
                          const struct weight *up_w, const struct weight *down_w, void *work,
                          cudaStream_t stream);
bool experts_hopper_groups_covers(const struct experts_product *up,
                                  const struct experts_product *down);
size_t experts_hopper_bytes(int32_t pairs, const struct experts_args *args, enum dtype dtype);
// Weights of few bits, for few rows or many.
int experts_groups(const struct experts_product *p, const struct weight *w, bool few,
                   cudaStream_t stream);
// For those of few rows: rows of up->x in the order of the codes, unless `permuted` is NULL; zeros behind the columns of
// hidden rows that come in that order.
int experts_permute(void *permuted, const struct experts_product *up, int32_t n,
                    cudaStream_t stream);
// Weights of 8 bits with scales, for few rows or many.
int experts_8bit(const struct experts_product *p, const struct weight *w, bool few,
                 cudaStream_t stream);
// Both products and the sum, of one row. These two take the shared expert along. CUDA_UNSUPPORTED: more rows, no room in shared memory, no place to meet.
int experts_stay(const struct experts_product *up, const struct experts_product *down,
                 const struct cuda_experts *a, cudaStream_t stream);
// Results of both products, of one row and weights of few bits. CUDA_UNSUPPORTED likewise, or for other kinds.
int experts_groups_stay(const struct experts_product *up, const struct experts_product *down,
                        const struct cuda_experts *a, cudaStream_t stream);
// Whether the fast two of 16 bits cover this product.
bool experts_covered(const struct experts_product *p);
// Whether experts_8bit covers it.
bool experts_covered_8bit(const struct experts_product *p);

template <int MOST>
static inline void experts_fill(struct experts_table<MOST> *t, const struct weight *w, int32_t n) {
    for (int32_t e = 0; e < n; e++) t->w[e] = w[e].data, t->scale[e] = w[e].scales;
}

// call<MOST>() with the least of a few sizes that holds n experts.
#define EXPERTS_SIZED(n_, ...)                                                                     \
    do {                                                                                           \
        if ((n_) <= 128) {                                                                         \
            constexpr int MOST = 128;                                                              \
            __VA_ARGS__;                                                                           \
        } else if ((n_) <= 512) {                                                                  \
            constexpr int MOST = 512;                                                              \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            constexpr int MOST = 1024;                                                             \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

// Of one row: the expert of its pair i < n_chosen.
__device__ __forceinline__ int chosen_expert(const struct experts_product &p, int i) {
    const uint32_t last = (uint32_t)p.n_experts - 1;
    return (int)(p.shared && i == p.n_chosen - 1 ? last : min((uint32_t)p.ids[i], last));
}
__device__ __forceinline__ float chosen_weight(const struct experts_product &p,
                                               const float *weights, int i) {
    return p.shared && i == p.n_chosen - 1 ? 1.0f : weights[i];
}

// The row of x that a pair multiplies: hidden values lie by pair.
__device__ __forceinline__ int64_t row_of_pair(const struct experts_product &p, int pair) {
    return p.down ? pair : pair / p.n_chosen;
}

// Tiles of `size` pairs of one expert: which one is `tile`. n 0: there is no such tile. Called by all
// threads of a block.
struct expert_tile {
    int expert, first, n;
};
__device__ __forceinline__ struct expert_tile find_tile(const int32_t *first, int n_experts,
                                                        int tile, int size) {
    __shared__ struct expert_tile found;
    if (threadIdx.x < 32) {
        const int lane = (int)threadIdx.x;
        int before = 0;
        if (lane == 0) found.n = 0;
        __syncwarp();
        for (int at = 0; at < n_experts && before <= tile; at += 32) {
            const int e = at + lane;
            const int begin = e < n_experts ? first[e] : 0, end = e < n_experts ? first[e + 1] : 0;
            const int mine = (end - begin + size - 1) / size;
            int sum = mine;
            for (int step = 1; step < 32; step *= 2) {
                const int other = __shfl_up_sync(0xffffffffu, sum, step);
                if (lane >= step) sum += other;
            }
            const int from = before + sum - mine;
            if (tile >= from && tile < from + mine) {
                const int place = begin + (tile - from) * size;
                found.expert = e, found.first = place, found.n = min(size, end - place);
            }
            before += __shfl_sync(0xffffffffu, sum, 31);
        }
    }
    __syncthreads();
    return found;
}
