// Attention of tiles of rows (attention_tiles.cuh) without `deterministic`, where
// attention_hopper.cu does not cover the device or the shape. 2,048 rows of Llama-8B run at about
// 220 TFLOP/s here, and at 270 on 30,000 earlier keys.
#include "kernels/cuda/attention_tiles.cuh"
#include <algorithm>

namespace {

constexpr int MAX_SPLITS = 8, SPLIT_POSITIONS = 512; // a part has at least so many

} // namespace

int cuda_attention_prefill(const struct cuda_attention *a, cudaStream_t stream) {
    if (a->n_tiles == 0) return 0;
    if (!tiles_cover(a)) return CUDA_UNSUPPORTED;
    auto share = [&](int64_t units, int capacity, int at_once) {
        const int most = std::min(a->max_position / SPLIT_POSITIONS, MAX_SPLITS);
        return parts_in_waves(units, (int64_t)cuda_current_device().multiprocessors * at_once,
                              std::min(most, capacity));
    };
    launch_typed<false>(a, false, share, stream);
    return cuda_launched("attention_prefill");
}
