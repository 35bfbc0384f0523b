// Attention of a few decode rows, fused with qk_norm, rotation and the cache write. Its items are
// those of attention_decode.cu, but a block takes one item, and the code is as short as possible: a
// step of one session is bound by latency, and once a layer neither code nor data are in the
// caches.
#include "kernels/cuda/attention_fresh.h"
#include "kernels/cuda/attention_item.cuh"
#include <algorithm>

namespace {

// Where rows are divided, a warp has one run to compute, whose keys were requested before the wait: one
// that is requested later takes as long to come as everything else together. Rows of up to WHOLE_RUNS
// are not divided, because merging costs as much.
constexpr int LEAST_RUNS = WARPS, WHOLE_RUNS = 3 * WARPS;
// Blocks of a multiprocessor that splits may lead to. Few rows are latency alone, and more blocks find
// no room beside those of the linears around them.
constexpr int FEW_ROWS = 4, FEW_BLOCKS = 2, MANY_BLOCKS = 3;

// An item for each block. The grid has as many splits as a row may have; a row uses as many as its
// length needs. !SPLIT: there is one, and the code is shorter.
template <typename T, int WIDE, bool SPLIT>
__global__ void __launch_bounds__(THREADS, (shape<T, WIDE, 1>::blocks))
    fresh_kernel(const __grid_constant__ struct decode j) {
    extern __shared__ __align__(128) char shared[];
    pdl_trigger();
    const int unit = (int)blockIdx.x;
    struct item it;
    it.slot = (int)blockIdx.y;
    it.split = 0, it.n_splits = 1;
    it.v = view_of(j, j.a.b.decode_rows[it.slot]);
    it.kv_head = unit % j.a.kv.n_kv_heads;
    it.chunk = unit / j.a.kv.n_kv_heads;
    it.begin = 0, it.end = it.v.n_runs;
    if (SPLIT) {
        const int most = (int)gridDim.z, n = it.v.n_runs;
        const int length = n <= WHOLE_RUNS ? max(n, 1) : max((n + most - 1) / most, LEAST_RUNS);
        it.split = (int)blockIdx.z;
        it.n_splits = (n + length - 1) / length;
        it.begin = it.split * length;
        it.end = min(it.begin + length, n);
    }
    bool waited = false;
    if (it.begin < it.end) attend<T, T, WIDE, 1, true>(j, it, shared, waited);
    if (!waited) pdl_wait();
}

template <typename T, int WIDE> int launch_fresh(struct decode &j, cudaStream_t stream) {
    using S = shape<T, WIDE, 1>;
    const int group = j.a.n_heads / j.a.kv.n_kv_heads, dim = j.a.kv.head_dim;
    j.n_chunks = (group + S::heads - 1) / S::heads;
    j.heads_at = (int32_t)S::bytes;
    size_t bytes = S::bytes + (size_t)(std::min(group, S::heads) + 2) * (size_t)dim * sizeof(T) +
                   (size_t)WARPS * (size_t)(dim + j.fresh.rot_dim) * sizeof(float);
    if (!has_room(bytes)) return CUDA_UNSUPPORTED;
    // Blocks that are there at once, if they can.
    const int items = j.n_rows * j.a.kv.n_kv_heads * j.n_chunks;
    const int each = std::min(j.n_rows > FEW_ROWS ? MANY_BLOCKS : FEW_BLOCKS, S::blocks);
    int splits = std::max(1, cuda_current_device().multiprocessors * each / items);
    splits =
        std::min(splits, std::min(MAX_SPLITS, std::max(1, j.a.max_position / (LEAST_RUNS * RUN))));
    auto kernel = splits > 1 ? fresh_kernel<T, WIDE, true> : fresh_kernel<T, WIDE, false>;
    cuda_allow_shared((const void *)kernel, bytes);
    pdl_launch(
        kernel,
        dim3((unsigned)(j.a.kv.n_kv_heads * j.n_chunks), (unsigned)j.n_rows, (unsigned)splits),
        dim3(THREADS), bytes, stream, j);
    return cuda_launched("attention_fresh");
}

template <typename T> int launch_fresh_typed(struct decode &j, cudaStream_t stream) {
    const int dim = j.a.kv.head_dim;
    return dim <= 64    ? launch_fresh<T, 1>(j, stream)
           : dim <= 128 ? launch_fresh<T, 2>(j, stream)
                        : launch_fresh<T, 4>(j, stream);
}

} // namespace

int32_t cuda_attention_fresh_at_once(int32_t head_dim) {
    const int each = head_dim <= 64    ? shape<__half, 1, 1>::blocks
                     : head_dim <= 128 ? shape<__half, 2, 1>::blocks
                                       : shape<__half, 4, 1>::blocks;
    return cuda_current_device().multiprocessors * each;
}

int cuda_attention_fresh(const struct cuda_attention *a, const struct cuda_kv_write *fresh,
                         cudaStream_t stream) {
    struct decode j = {};
    if (describe(&j, a) != 0 || kv_is_8bit(a->kv.dtype) || fresh->rot_dim > 256 ||
        fresh->norm_late || a->n_heads / a->kv.n_kv_heads > 8)
        return CUDA_UNSUPPORTED;
    j.fresh = *fresh;
    return a->dtype == DTYPE_BF16 ? launch_fresh_typed<__nv_bfloat16>(j, stream)
                                  : launch_fresh_typed<__half>(j, stream);
}
