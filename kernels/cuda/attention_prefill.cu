// Attention of tiles of rows (attention_tiles.cuh), as fast as it gets. 2,048 rows of Llama-8B take
// the tensor cores at some 220 TFLOP/s, 30,000 keys before them at 270: a few percent of a
// prefill's time.
#include "kernels/cuda/attention_tiles.cuh"

namespace {

constexpr int MAX_SPLITS = 8, SPLIT_POSITIONS = 512; // a part has at least so many

} // namespace

int cuda_attention_prefill(const struct cuda_attention *a, cudaStream_t stream) {
    if (a->n_tiles == 0) return 0;
    if (!tiles_cover(a)) return CUDA_NOT_MINE;
    // As many parts as there is room for blocks, on the device and in the work space: how many
    // depends on the step, so not where the same bits are asked for.
    auto share = [&](int64_t units, int capacity, int at_once) {
        int64_t splits = (int64_t)multiprocessors() * at_once / units;
        const int most[] = {capacity, MAX_SPLITS, a->max_position / SPLIT_POSITIONS};
        for (int m : most)
            if (splits > m) splits = m;
        return splits < 2 ? 1 : (int)splits;
    };
    launch_typed<false>(a, false, share, stream);
    return cuda_launched("attention_prefill");
}
