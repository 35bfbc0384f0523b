// Attention of tiles of rows (attention_tiles.cuh) without `deterministic`. 2,048 rows of Llama-8B
// run at about 220 TFLOP/s, and at 270 on 30,000 earlier keys: a few percent of a prefill's time.
#include "kernels/cuda/attention_tiles.cuh"
#include <algorithm>

namespace {

constexpr int MAX_SPLITS = 8, SPLIT_POSITIONS = 512; // a part has at least so many

} // namespace

int cuda_attention_prefill(const struct cuda_attention *a, cudaStream_t stream) {
    if (a->n_tiles == 0) return 0;
    if (!tiles_cover(a)) return CUDA_NOT_MINE;
    // Blocks run in waves, as many at once as the device has room for. The number of parts with the
    // shortest waves in sum; a part costs about 2 % of a unit beside its keys. It depends on the
    // step, so `deterministic` does not use it.
    auto share = [&](int64_t units, int capacity, int at_once) {
        const int64_t room = (int64_t)cuda_device_here().multiprocessors * at_once;
        int bound = a->max_position / SPLIT_POSITIONS, best = 1;
        bound = std::min(bound, std::min(capacity, MAX_SPLITS));
        double least = INFINITY;
        for (int s = 1; s <= bound; s++) {
            const int64_t waves = (units * s + room - 1) / room;
            const double cost = (double)waves * (1.0 / s + 0.02);
            if (cost < least * 0.98) least = cost, best = s;
        }
        return best;
    };
    launch_typed<false>(a, false, share, stream);
    return cuda_launched("attention_prefill");
}
