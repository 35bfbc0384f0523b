// Attention of tiles of query rows by wgmma (hopper.cuh), for two or more heads on a kv head, heads
// of 64 or 128, a cache of the activations' dtype. sm_90a. Keys, softmax and shared rows as in
// attention_tiles.cuh, whose mma.sync is bound by reads of shared memory. Llama-8B on an H200: 350
// TFLOP/s for 2,048 rows, 510 with 30,000 earlier keys, 300 for 200 rows on 4,096.
//
//   - A block takes 128 (token, head of the group) pairs of a kv head, a warpgroup 64 of them. One
//     thread of a third warpgroup requests runs of 64 keys and values, a cache block's rows being a
//     tile of a tensor map over the whole cache.
//   - Q and the probabilities are A, from registers. V is B with its dimensions contiguous.
//   - A run's scores are under way while the run before is multiplied with its values, and the
//     softmax runs beside these products.
//   - Values that no row of the block sees may be stale (NaN): they are overwritten with zeros in
//     shared memory. Their keys' scores are masked.
//   - Blocks that share rows leave their sums where their threads hold them, and the last one's
//     threads each merge their own: by rows, as attention_tiles.cuh does, a unit's merge took 25 of
//     70 microseconds.
#include "kernels/cuda/attention_hopper.h"
#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/hopper.cuh"
#include <algorithm>

namespace {

constexpr int WARPGROUPS = 2, PAIRS = WARPGROUPS * 64;         // rows of a block
constexpr int WORKERS = WARPGROUPS * 128, ALL = WORKERS + 128; // threads
constexpr int STAGES = 4;
constexpr int MAX_SPLITS = 8, SPLIT_POSITIONS = 512; // a part has at least so many

template <int DIM> struct ring {
    static constexpr int bytes = KEYS * DIM * 2; // of a run's keys, or values
    static constexpr int shared = 2 * STAGES * (bytes + 16) + 1024;
};

#ifdef PARLEY_SM90A

constexpr int SWIZZLED_BOX = KEYS * SWIZZLED_ROW; // bytes of 64 dimensions of a run

// Of V's tile: 64 dimensions in 128 bytes, eight keys each 1024; the next 64 dimensions a box on.
__device__ __forceinline__ uint64_t values_descriptor(uint32_t address) {
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(SWIZZLED_BOX >> 4) << 16 |
           (uint64_t)(8 * SWIZZLED_ROW >> 4) << 32 | 1ull << 62;
}

#endif

template <typename T, int DIM>
__global__ void __launch_bounds__(ALL, 1)
    hopper_kernel(const __grid_constant__ CUtensorMap cache,
                  const __grid_constant__ struct cuda_attention a, int m_blocks,
                  const __grid_constant__ struct sharing by) {
#ifdef PARLEY_SM90A
    using R = ring<DIM>;
    extern __shared__ char shared[];
    __shared__ bool last[WARPGROUPS];
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32, g = lane / 4,
              t = lane % 4;
    const int group = a.n_heads / a.kv.n_kv_heads;
    pdl_trigger();
    // Order of the blocks as in attention_tiles.cuh.
    const int n_units = (int)gridDim.x / by.splits, block = (int)blockIdx.x % n_units;
    const int split = (int)blockIdx.x / n_units;
    const int kv_head = block % a.kv.n_kv_heads, at = block / a.kv.n_kv_heads;
    const int m_block = m_blocks - 1 - at % m_blocks;
    const struct cuda_tile tile = a.b.tiles[a.n_tiles - 1 - at / m_blocks];
    const int n_rows = tile.n_rows * group; // query rows of this kv head
    const struct block_rows rows = {m_block * PAIRS, min(PAIRS, n_rows - m_block * PAIRS), tile.row,
                                    kv_head * group, group};
    const uint32_t keys = (shared_address(shared) + 1023) & ~1023u;
    const uint32_t values = keys + STAGES * R::bytes, bars = values + STAGES * R::bytes;
    auto full_keys = [&](int i) { return bars + (uint32_t)(i % STAGES * 32); };
    auto full_values = [&](int i) { return full_keys(i) + 8; };
    auto free_keys = [&](int i) { return full_keys(i) + 16; };
    auto free_values = [&](int i) { return full_keys(i) + 24; };
    if (threadIdx.x == 0) {
        const int readers = rows.n_rows > 64 ? 8 : 4; // warps
        for (int i = 0; i < STAGES; i++) {
            mbarrier_init(full_keys(i), 1), mbarrier_init(full_values(i), 1);
            mbarrier_init(free_keys(i), readers), mbarrier_init(free_values(i), readers);
        }
        mbarrier_init_done();
    }
    __syncthreads();
    const struct cuda_seq seq = a.b.seqs[tile.seq];
    const int first_position = a.b.positions[tile.row];
    const struct sight oldest = sight_of(seq, first_position + rows.first / group, a.window);
    const struct sight newest =
        sight_of(seq, first_position + (rows.first + rows.n_rows - 1) / group, a.window);
    const struct runs runs = runs_of(oldest, newest);
    const int n_sinks = runs.sinks.end - runs.sinks.begin;
    const int n_runs = n_sinks + runs.window.end - runs.window.begin;
    int begin = 0, end = n_runs, blocks = 1; // this block's runs; blocks that share
    if (by.splits > 1) {
        const struct parts parts = even_parts(n_runs, by.splits);
        if (parts.n > 1 && parts.n <= by.capacity) blocks = parts.n;
        if (blocks > 1)
            begin = part_begin(parts, runs, split), end = part_begin(parts, runs, split + 1);
    }
    const int n = end - begin;
    if (rows.n_rows <= 0 || split >= blocks) {
        pdl_wait();
        return;
    }
    // Position of the i-th run's first key.
    auto position_of = [&](int i) {
        i += begin;
        return (i < n_sinks ? runs.sinks.begin + i : runs.window.begin + i - n_sinks) * KEYS;
    };

    if (warp >= WORKERS / 32) {
        setmaxnreg_dec<24>();
        if (warp == WORKERS / 32 && lane == 0) {
            const int row_bytes = DIM * 2, apart = a.kv.n_kv_heads * a.kv.block_tokens;
            const int64_t layer = a.layer * (int64_t)a.kv.layer_bytes;
            pdl_wait();
            for (int i = 0; i < n; i++) {
                const int p = position_of(i), bt = a.kv.block_tokens;
                const int64_t from = layer + kv_block(a.b, seq, p) * (int64_t)a.kv.block_bytes;
                const int row = (int)(from / row_bytes) + kv_head * bt + p % bt;
                const uint32_t to = (uint32_t)(i % STAGES * R::bytes);
                const int again = (i / STAGES - 1) & 1;
                if (i >= STAGES) mbarrier_wait(free_keys(i), again);
                mbarrier_expect(full_keys(i), R::bytes);
#pragma unroll
                for (int d = 0; d < DIM / 64; d++)
                    tma_load(keys + to + (uint32_t)(d * SWIZZLED_BOX), &cache, d * 64, row,
                             full_keys(i), READ_PLAIN);
                if (i >= STAGES) mbarrier_wait(free_values(i), again);
                mbarrier_expect(full_values(i), R::bytes);
#pragma unroll
                for (int d = 0; d < DIM / 64; d++)
                    tma_load(values + to + (uint32_t)(d * SWIZZLED_BOX), &cache, d * 64,
                             row + apart, full_values(i), READ_PLAIN);
            }
        }
        __syncwarp();
        pdl_wait();
    } else {
        setmaxnreg_inc<240>();
        pdl_wait();
        const int mine_first = warp / 4 * 64; // the warpgroup's first row
        if (mine_first < rows.n_rows) {
            // This lane's two rows.
            struct sight mine[2];
            float slope[2];
            const T *q_from[2];
#pragma unroll
            for (int h = 0; h < 2; h++) {
                const int row = rows.first + min(warp * 16 + h * 8 + g, rows.n_rows - 1);
                const int token = row / group, head = kv_head * group + row % group;
                mine[h] = sight_of(seq, first_position + token, a.window);
                slope[h] = a.alibi_slopes ? a.alibi_slopes[head] * LOG2E : 0.0f;
                q_from[h] =
                    (const T *)a.qkv + ((int64_t)(tile.row + token) * a.row_heads + head) * DIM;
            }
            uint32_t q[DIM / 16][4], p[KEYS / 16][4];
#pragma unroll
            for (int c = 0; c < DIM / 16; c++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    q[c][i] = *(const uint32_t *)(q_from[i % 2] + c * 16 + i / 2 * 8 + 2 * t);
            }
            float out[DIM / 2], score[KEYS / 2];
            float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f}, factor[2];
            const float unit = a.alibi_slopes || a.soft_cap != 0.0f ? 1.0f : a.scale * LOG2E;
            const float inverse_cap = a.soft_cap != 0.0f ? a.scale / a.soft_cap : 0.0f;
            auto multiply_keys = [&](int i) {
                mbarrier_wait(full_keys(i), i / STAGES & 1);
                const uint32_t from = keys + (uint32_t)(i % STAGES * R::bytes);
                wgmma_fence();
#pragma unroll
                for (int c = 0; c < DIM / 16; c++)
                    wgmma<KEYS>::rs(score, q[c],
                                    tile_descriptor(from + (uint32_t)(c / 4 * SWIZZLED_BOX)) +
                                        (uint64_t)(c % 4 * 2),
                                    c > 0, T());
                wgmma_commit();
            };
            // Rows of V that no row of the block sees, to zeros.
            auto clear_values = [&](int i, uint32_t from) {
                const int p0 = position_of(i), r = (int)threadIdx.x % 128 / 2, p = p0 + r;
                if ((p0 >= oldest.first && p0 + KEYS - 1 <= newest.position) ||
                    (p0 >= oldest.sink_first && p0 + KEYS <= newest.sink_end))
                    return;
                const bool held = (p >= oldest.sink_first && p < newest.sink_end) ||
                                  (p >= oldest.first && p <= newest.position);
                from += (uint32_t)(r * SWIZZLED_ROW + (int)threadIdx.x % 2 * 64);
#pragma unroll
                for (int d = 0; d < DIM / 64; d++) {
#pragma unroll
                    for (int w = 0; w < 4; w++)
                        if (!held)
                            store_shared(from + (uint32_t)(d * SWIZZLED_BOX + w * 16),
                                         make_uint4(0, 0, 0, 0));
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                named_barrier(2 + warp / 4, 128);
            };
            auto multiply_values = [&](int i) {
                mbarrier_wait(full_values(i), i / STAGES & 1);
                const uint32_t from = values + (uint32_t)(i % STAGES * R::bytes);
                clear_values(i, from);
                wgmma_fence();
#pragma unroll
                for (int c = 0; c < KEYS / 16; c++)
                    wgmma<DIM>::rs_transposed(
                        out, p[c], values_descriptor(from) + (uint64_t)(c * 16 * SWIZZLED_ROW >> 4),
                        i > 0 || c > 0, T());
                wgmma_commit();
            };
            auto release = [&](uint32_t bar) {
                __syncwarp();
                if (lane == 0) mbarrier_arrive(bar);
            };
            // The scores become probabilities times 2^-top.
            auto softmax = [&](int i) {
                const int p0 = position_of(i);
                const bool all_seen = (p0 >= newest.first && p0 + KEYS - 1 <= oldest.position) ||
                                      (p0 >= newest.sink_first && p0 + KEYS <= oldest.sink_end);
                if (a.soft_cap != 0.0f) {
#pragma unroll
                    for (int e = 0; e < KEYS / 2; e++)
                        score[e] = soft_capped(score[e], a.soft_cap * LOG2E, inverse_cap);
                }
                if (a.alibi_slopes) {
                    const float before = a.soft_cap != 0.0f ? 1.0f : a.scale * LOG2E;
#pragma unroll
                    for (int e = 0; e < KEYS / 2; e++) {
                        const int key = p0 + e / 4 * 8 + 2 * t + e % 2;
                        score[e] = score[e] * before +
                                   slope[e / 2 % 2] * (float)(key - mine[e / 2 % 2].position);
                    }
                }
                if (!all_seen) {
#pragma unroll
                    for (int e = 0; e < KEYS / 2; e++)
                        if (!sees(mine[e / 2 % 2], p0 + e / 4 * 8 + 2 * t + e % 2))
                            score[e] = -INFINITY;
                }
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    float high = top[h], part = 0.0f;
#pragma unroll
                    for (int c = 0; c < KEYS / 8; c++)
                        high = fmaxf(high, fmaxf(score[4 * c + 2 * h], score[4 * c + 2 * h + 1]));
                    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 1));
                    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, 2));
                    // A row may see nothing of its first runs.
                    const float from = high == -INFINITY ? 0.0f : high * unit;
                    factor[h] = power_of_two(top[h] * unit - from);
                    top[h] = high;
#pragma unroll
                    for (int c = 0; c < KEYS / 8; c++) {
#pragma unroll
                        for (int e = 4 * c + 2 * h; e < 4 * c + 2 * h + 2; e++) {
                            score[e] = power_of_two(__fmaf_rn(score[e], unit, -from));
                            part += score[e];
                        }
                    }
                    sum[h] = sum[h] * factor[h] + part;
                }
            };
            auto pack = [&] {
#pragma unroll
                for (int c = 0; c < KEYS / 16; c++) {
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        p[c][i] = pack2<T>(score[8 * c + 2 * i], score[8 * c + 2 * i + 1]);
                }
            };
            multiply_keys(0);
            wgmma_wait<0>();
            wgmma_fence_results(score);
            release(free_keys(0));
            softmax(0);
            pack();
            for (int i = 1; i < n; i++) {
                multiply_keys(i);
                multiply_values(i - 1);
                wgmma_wait<1>();
                wgmma_fence_results(score);
                release(free_keys(i));
                softmax(i);
                wgmma_wait<0>();
                wgmma_fence_results(out);
                wgmma_fence_operand(p);
                release(free_values(i - 1));
#pragma unroll
                for (int e = 0; e < DIM / 2; e++) out[e] *= factor[e / 2 % 2];
                pack();
            }
            multiply_values(n - 1);
            wgmma_wait<0>();
            wgmma_fence_results(out);
            wgmma_fence_operand(p);

            // Of this lane's rows: the sums over all keys, which the lanes of a row add up.
            auto store_parts = [&](float(&all)[2], const float(&highest)[2]) {
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = warp * 16 + h * 8 + g;
                    all[h] += __shfl_xor_sync(0xffffffffu, all[h], 1);
                    all[h] += __shfl_xor_sync(0xffffffffu, all[h], 2);
                    if (row >= rows.n_rows) continue;
                    T *to = (T *)a.out + output_of(a, rows, row) + 2 * t;
                    const float inverse =
                        1.0f / (all[h] + sink_of(a, rows, row, highest[h] * unit));
#pragma unroll
                    for (int c = 0; c < DIM / 8; c++)
                        *(uint32_t *)(to + c * 8) = pack2<T>(out[4 * c + 2 * h] * inverse,
                                                             out[4 * c + 2 * h + 1] * inverse);
                }
            };
            if (blocks == 1) {
                store_parts(sum, top);
                return;
            }
            // Each warpgroup leaves its part, and the last of the unit's merges them in their order.
            constexpr int pitch = part_pitch<DIM>, apart = PAIRS * pitch; // floats
            float *held = by.held + (int64_t)block * by.capacity * apart + (warp * 16 + g) * pitch;
            float *to = held + (int64_t)split * apart;
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int c = 0; c < DIM / 8; c++)
                    __stcg((float2 *)(to + h * 8 * pitch + c * 8 + 2 * t),
                           make_float2(out[4 * c + 2 * h], out[4 * c + 2 * h + 1]));
                __stcg((float2 *)(to + h * 8 * pitch + DIM + 2 * t), make_float2(top[h], sum[h]));
            }
            __threadfence();
            named_barrier(2 + warp / 4, 128);
            int32_t *counter = by.counters + block * WARPGROUPS + warp / 4;
            if (threadIdx.x % 128 == 0) {
                last[warp / 4] = atomicAdd(counter, 1) == blocks - 1;
                if (last[warp / 4]) *counter = 0;
            }
            named_barrier(2 + warp / 4, 128);
            if (!last[warp / 4]) return;
            __threadfence();
            float total[2] = {0.0f, 0.0f}, high[2] = {-INFINITY, -INFINITY};
#pragma unroll
            for (int e = 0; e < DIM / 2; e++) out[e] = 0.0f;
            for (int part = 0; part < blocks; part++) {
                const float *from = held + (int64_t)part * apart;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                    const float2 s = __ldcg((const float2 *)(from + h * 8 * pitch + DIM + 2 * t));
                    const struct merging m = merging_of(high[h], s.x, unit);
                    high[h] = m.top, total[h] = merged(m, total[h], s.y);
#pragma unroll
                    for (int c = 0; c < DIM / 8; c++) {
                        const float2 v =
                            __ldcg((const float2 *)(from + h * 8 * pitch + c * 8 + 2 * t));
                        float *mine_to = out + 4 * c + 2 * h;
                        mine_to[0] = merged(m, mine_to[0], v.x);
                        mine_to[1] = merged(m, mine_to[1], v.y);
                    }
                }
            }
            store_parts(total, high);
        }
    }
#endif
}

template <typename T, int DIM>
int launch_hopper(const struct cuda_attention *a, cudaStream_t stream) {
    auto kernel = hopper_kernel<T, DIM>;
    const int group = a->n_heads / a->kv.n_kv_heads;
    const int m_blocks = (CUDA_TILE_ROWS * group + PAIRS - 1) / PAIRS;
    const int64_t units = (int64_t)a->n_tiles * a->kv.n_kv_heads * m_blocks;
    const int64_t cache_rows = (int64_t)a->kv.bytes / (DIM * 2);
    CUtensorMap cache;
    if (cache_rows > INT32_MAX || a->kv.block_bytes % (DIM * 2) != 0 ||
        !tensor_map_of(&cache, a->kv.data, a->kv.dtype, cache_rows, DIM, DIM, KEYS))
        return CUDA_UNSUPPORTED;
    const size_t counters = CUDA_TILE_COUNTERS * sizeof(int32_t);
    const size_t room = parts_room(a);
    const size_t each = (size_t)PAIRS * part_pitch<DIM> * sizeof(float);
    struct sharing by = {1, 0, (float *)a->work, NULL};
    if (room > 0 && units * WARPGROUPS <= CUDA_TILE_COUNTERS) {
        by.capacity = (int32_t)std::min<size_t>(room / ((size_t)units * each), MAX_SPLITS);
        by.counters = (int32_t *)((char *)a->work + (a->work_bytes - counters) / 4 * 4);
        by.splits = parts_in_waves(units, cuda_current_device().multiprocessors,
                                   std::min(a->max_position / SPLIT_POSITIONS, by.capacity));
    }
    cuda_allow_shared((const void *)kernel, ring<DIM>::shared);
    pdl_launch(kernel, dim3((unsigned)(units * by.splits)), dim3(ALL), (size_t)ring<DIM>::shared,
               stream, cache, *a, m_blocks, by);
    return cuda_launched("attention_hopper");
}

} // namespace

int cuda_attention_hopper(const struct cuda_attention *a, cudaStream_t stream) {
    const int dim = a->kv.head_dim;
    if ((a->dtype != DTYPE_BF16 && a->dtype != DTYPE_F16) || a->kv.dtype != a->dtype ||
        (dim != 64 && dim != 128) || a->kv.block_tokens % KEYS != 0 ||
        a->n_heads % a->kv.n_kv_heads != 0 || a->n_heads < 2 * a->kv.n_kv_heads || !hopper_here())
        return CUDA_UNSUPPORTED;
    if (a->dtype == DTYPE_BF16)
        return dim == 64 ? launch_hopper<__nv_bfloat16, 64>(a, stream)
                         : launch_hopper<__nv_bfloat16, 128>(a, stream);
    return dim == 64 ? launch_hopper<__half, 64>(a, stream) : launch_hopper<__half, 128>(a, stream);
}
