// Attention of single rows over the block ring: out (row, n_heads * head_dim) = softmax(scale q.k +
// alibi) v over what each row sees. bf16 and f16, head_dim a multiple of 8 up to 256; their caches
// or, head_dim a multiple of 16, those of 8 bits (attention_8bit.cuh).
//
// Bound by reading the cache once: bytes = visible keys * n_kv_heads * head_dim * 2 * sizeof(C) for
// each row (8 bits: and two scales); all query heads of a group share these reads. To expect: 80 to
// 90 % of the read ceiling where all rows together see more than about 50 MB. One short row takes 3
// microseconds of latency. With 8 bits about half of the ceiling (README.md).
//
//   - A row sees a list of runs of 16 keys at absolute multiples of 16: the runs of its sinks, then
//     those of its window, ascending. The list is divided into splits. An item is (row, kv head, up
//     to 16 of its query heads, split). A fixed number of blocks takes the items in turn, so the
//     grid is the same for all positions and a recorded graph serves all of them.
//   - The length of a split depends on the batch (attention_exact.cu is the kernel whose bits do
//     not). A full batch has longer splits. Where all rows together keep every block busy for long,
//     each block takes an equal share of all runs, so no block waits for another's last item.
//   - In an item, the 4 warps take runs in turn. Each has its own queue of asynchronous copies into
//     shared memory, so there is no barrier until the item's end. Eight neighbouring lanes copy 128
//     bytes of one key: with fewer bytes, requests to L2 are the bound. q is the tensor core's A
//     (mma.cuh), K is B without conversion; V's rows of two keys are interleaved in registers.
//     16-byte words are swizzled so that eight lanes read from all banks.
//   - Probabilities enter the product as two T, value and remainder: 16 bits of them, not 8.
//   - The warps' parts are merged in order, then the last block of a row merges the splits' parts
//     in order. A counter finds that block; the result does not depend on which block it is.
//   - Keys of earlier steps are fetched before the predecessor has ended (pdl.cuh).
#include "kernels/cuda/attention_item.cuh"

namespace {

constexpr int SHARE_LEAST = 40; // runs
constexpr int VIEWS = 64;       // that are kept in shared memory

// Runs of a split of a list of n runs, by the list alone. One split for short lists: merging would
// take longer.
__host__ __device__ __forceinline__ int split_runs(int n) {
    int runs = SPLIT_RUNS;
    if (n <= runs + 1) return runs + 1;
    while (runs * MAX_SPLITS < n) runs *= 2;
    return runs;
}

// Splits of all rows if none has fewer than `least` runs; for one warp.
__device__ __forceinline__ int count_splits(const struct decode &j, const int *runs, int least) {
    int n = 0;
    for (int i = (int)threadIdx.x; i < j.n_rows; i += 32) {
        int each = max(split_runs(runs[i]), least);
        n += (runs[i] + each - 1) / each;
    }
    for (int step = 16; step > 0; step /= 2) n += __shfl_xor_sync(0xffffffffu, n, step);
    return n;
}

// The least length of a split with which the items fill the blocks best: whole waves, but few of
// them, since each item costs some microseconds to begin and to end.
__device__ int fill(const struct decode &j, const int *runs, int units) {
    int total = 0, best = 1 << 20; // one split for each row
    for (int i = (int)threadIdx.x; i < j.n_rows; i += 32) total += runs[i];
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    float most = -INFINITY; // a lone row fills little and is split all the same
    for (int waves = 1; waves <= 6; waves++) {
        // So many items at most, since a row's last split may be short.
        int room = waves * (int)gridDim.x / units - j.n_rows;
        if (room <= 0) continue;
        int least = (total + room - 1) / room;
        float items = (float)count_splits(j, runs, least) * (float)units / (float)gridDim.x;
        float score = items / ceilf(items) - 0.15f * (float)waves;
        if (score > most) most = score, best = least;
    }
    return best;
}

// Every block's share of all rows' runs, or 0 where shares would be so short that merging them
// costs more than they even out. No row is in more blocks than it has splits.
__device__ int share_of(const struct decode &j, const int *runs, int units) {
    if (j.n_rows * units < (int)gridDim.x) return 0; // a few long rows: whole waves of equal splits
    int total = 0, most = 0;
    for (int i = (int)threadIdx.x; i < j.n_rows; i += 32)
        total += runs[i], most = max(most, runs[i]);
    for (int step = 16; step > 0; step /= 2) {
        total += __shfl_xor_sync(0xffffffffu, total, step);
        most = max(most, __shfl_xor_sync(0xffffffffu, most, step));
    }
    int share = (int)(((int64_t)total * units + gridDim.x - 1) / gridDim.x);
    share = max(share, (most + MAX_SPLITS - 3) / (MAX_SPLITS - 2));
    return share >= SHARE_LEAST ? share : 0;
}

template <typename T, typename C, int WIDE, int HALVES>
__global__ void __launch_bounds__(THREADS, (shape<C, WIDE, HALVES>::blocks))
    decode_kernel(const __grid_constant__ struct decode j) {
    extern __shared__ __align__(128) char shared[];
    using S = shape<C, WIDE, HALVES>;
    int *ends = (int *)(shared + S::bytes); // (n_rows) splits, or runs, of all rows up to each
    __shared__ struct view views[VIEWS];
    __shared__ int share;
    pdl_trigger();
    for (int i = (int)threadIdx.x; i < j.n_rows; i += THREADS) {
        struct view v = view_of(j, j.a.b.decode_rows[i]);
        ends[i] = v.n_runs;
        if (i < VIEWS) views[i] = v;
    }
    __syncthreads();
    const int units = j.a.kv.n_kv_heads * j.n_chunks;
    if (threadIdx.x < 32) { // the number of runs, then where each row's splits end
        int each = share_of(j, ends, units), least = each ? 0 : fill(j, ends, units);
        int carry = 0;
        for (int at = 0; at < j.n_rows; at += 32) {
            int i = at + (int)threadIdx.x, n = i < j.n_rows ? ends[i] : 0;
            if (!each) n = (n + max(split_runs(n), least) - 1) / max(split_runs(n), least);
            for (int step = 1; step < 32; step *= 2) {
                int other = __shfl_up_sync(0xffffffffu, n, step);
                if ((int)threadIdx.x >= step) n += other;
            }
            if (i < j.n_rows) ends[i] = carry + n;
            carry += __shfl_sync(0xffffffffu, n, 31);
        }
        if (threadIdx.x == 0) share = each;
    }
    __syncthreads();

    // Items, or runs: of all units of a row one after the other.
    const int each = share, all = ends[j.n_rows - 1] * units;
    const int stop = each ? min(((int)blockIdx.x + 1) * each, all) : all;
    bool waited = false;
    for (int at = (int)blockIdx.x * max(each, 1); at < stop;) {
        struct item it;
        int low = 0, high = j.n_rows - 1; // the row: the first with ends > at / units
        while (low < high) {
            int middle = (low + high) / 2;
            if (ends[middle] > at / units)
                high = middle;
            else
                low = middle + 1;
        }
        int before = low ? ends[low - 1] : 0, in_row = at - before * units, unit;
        it.slot = low;
        it.v = low < VIEWS ? views[low] : view_of(j, j.a.b.decode_rows[low]);
        if (each) {
            unit = in_row / it.v.n_runs;
            it.begin = in_row % it.v.n_runs;
            it.end = min(it.begin + stop - at, it.v.n_runs);
            int first = at - it.begin; // the unit's first run
            it.split = (int)blockIdx.x - first / each;
            it.n_splits = (first + it.v.n_runs - 1) / each - first / each + 1;
            at += it.end - it.begin;
        } else {
            it.n_splits = ends[low] - before;
            unit = in_row / it.n_splits;
            it.split = in_row % it.n_splits;
            int length = (it.v.n_runs + it.n_splits - 1) / it.n_splits;
            // With n = ceil(runs / most) splits of ceil(runs / n), none is empty.
            it.begin = it.split * length;
            it.end = min(it.begin + length, it.v.n_runs);
            at += (int)gridDim.x;
        }
        it.kv_head = unit / j.n_chunks;
        it.chunk = unit % j.n_chunks;
        attend<T, C, WIDE, HALVES, false>(j, it, shared, waited);
    }
    if (!waited) pdl_wait();
}

template <typename T, typename C, int WIDE, int HALVES>
int launch_decode(struct decode &j, cudaStream_t stream) {
    using S = shape<C, WIDE, HALVES>;
    auto kernel = decode_kernel<T, C, WIDE, HALVES>;
    int group = j.a.n_heads / j.a.kv.n_kv_heads;
    j.n_chunks = (group + S::heads - 1) / S::heads;
    size_t bytes = S::bytes + (size_t)j.n_rows * sizeof(int);
    if (!has_room(bytes + VIEWS * sizeof(struct view))) return CUDA_UNSUPPORTED;
    cuda_allow_shared((const void *)kernel, bytes);
    int64_t items = (int64_t)j.n_rows * j.a.kv.n_kv_heads * j.n_chunks *
                    (j.a.max_position <= SPLIT_RUNS * RUN ? 1 : MAX_SPLITS);
    int64_t blocks = (int64_t)cuda_current_device().multiprocessors * S::blocks;
    pdl_launch(kernel, dim3((unsigned)(items < blocks ? items : blocks)), dim3(THREADS), bytes,
               stream, j);
    return cuda_launched("attention_decode");
}

template <typename T, typename C, int WIDE> int launch_wide(struct decode &j, cudaStream_t stream) {
    return j.a.n_heads / j.a.kv.n_kv_heads <= 8 ? launch_decode<T, C, WIDE, 1>(j, stream)
                                                : launch_decode<T, C, WIDE, 2>(j, stream);
}

template <typename T, typename C> int launch_cached(struct decode &j, cudaStream_t stream) {
    constexpr int three = is_8bit<C> ? 4 : 3; // rare: 8 bits have no kernel of their own for it
    int wide = (j.a.kv.head_dim + 63) / 64;
    return wide <= 1   ? launch_wide<T, C, 1>(j, stream)
           : wide == 2 ? launch_wide<T, C, 2>(j, stream)
           : wide == 3 ? launch_wide<T, C, three>(j, stream)
                       : launch_wide<T, C, 4>(j, stream);
}

int launch_decode_typed(struct decode &j, cudaStream_t stream) {
    if (j.a.kv.dtype == DTYPE_I8) return launch_cached<__half, kv_i8>(j, stream);
    if (j.a.kv.dtype == DTYPE_F8_E4M3) return launch_cached<__half, kv_e4m3>(j, stream);
    if (j.a.dtype == DTYPE_BF16) return launch_cached<__nv_bfloat16, __nv_bfloat16>(j, stream);
    return launch_cached<__half, __half>(j, stream);
}

} // namespace

size_t cuda_attention_work_bytes(int32_t max_rows, int32_t n_heads, int32_t n_kv_heads,
                                 int32_t head_dim) {
    return (size_t)max_rows * row_bytes(n_heads, n_kv_heads, head_dim) + COUNTERS_BYTES;
}

int cuda_attention_decode(const struct cuda_attention *a, cudaStream_t stream) {
    struct decode j = {};
    if (describe(&j, a) != 0) return CUDA_UNSUPPORTED;
    return launch_decode_typed(j, stream);
}
