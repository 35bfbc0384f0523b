// Attention for `deterministic`: its bits do not depend on the batch, the chunks or the history. It
// takes tiles and decode rows (attention_tiles.cuh); a decode row is a tile of one row. A row's sums
// are divided at absolute positions. How many blocks compute the parts changes the speed only.
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace {

constexpr int BLOCKS_WANTED = 1000; // of decode rows, before parts are no longer divided

// Of heads beyond 128, only 256: with heads of 192, the bits of some rows once depended on other
// rows (f16, blocks of 128). The cause is unknown.
bool covers(const struct cuda_attention *a) {
    return tiles_cover(a) && (a->kv.head_dim <= 128 || a->kv.head_dim == 256);
}

} // namespace

int cuda_attention_exact(const struct cuda_attention *a, cudaStream_t stream) {
    if (!covers(a)) return CUDA_UNSUPPORTED;
    for (int decode = 0; decode < 2; decode++) {
        if ((decode ? a->n_decode : a->n_tiles) == 0) continue;
        auto share = [&](int64_t units, int capacity, int at_once) {
            const int most = (a->max_position + PART_RUNS * KEYS - 1) / (PART_RUNS * KEYS);
            const int64_t splits =
                decode ? (BLOCKS_WANTED + units - 1) / units
                       : (int64_t)cuda_current_device().multiprocessors * at_once / units;
            return splits < 1 ? 1 : splits < most ? (int)splits : most;
        };
        launch_typed<true>(a, decode, share, stream);
    }
    return cuda_launched("attention_exact");
}
