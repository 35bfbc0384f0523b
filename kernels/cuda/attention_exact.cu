// Attention whose bits do not depend on the batch, the chunks and the history (`deterministic`), of
// tiles and decode rows alike (attention_tiles.cuh): a decode row is a tile of one row. The parts
// in which a row's sums are taken follow from absolute positions; that several blocks compute them
// changes its speed, not its bits.
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace {

constexpr int BLOCKS_WANTED = 1000; // of decode rows, before parts are no longer divided

// Of heads beyond 128, those of 256 alone: with 192 rows were seen whose bits depended on their
// company (f16, blocks of 128), and why is not known.
bool covers(const struct cuda_attention *a) {
    return tiles_cover(a) && (a->kv.head_dim <= 128 || a->kv.head_dim == 256);
}

} // namespace

int cuda_attention_exact(const struct cuda_attention *a, cudaStream_t stream) {
    if (!covers(a)) return CUDA_NOT_MINE;
    for (int decode = 0; decode < 2; decode++) {
        if ((decode ? a->n_decode : a->n_tiles) == 0) continue;
        auto share = [&](int64_t units, int capacity, int at_once) {
            const int most = (a->max_position + PART_RUNS * KEYS - 1) / (PART_RUNS * KEYS);
            const int64_t splits =
                decode ? (BLOCKS_WANTED + units - 1) / units
                       : (int64_t)cuda_device_here().multiprocessors * at_once / units;
            return splits < 1 ? 1 : splits < most ? (int)splits : most;
        };
        launch_typed<true>(a, decode, share, stream);
    }
    return cuda_launched("attention_exact");
}
