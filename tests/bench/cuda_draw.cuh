// Times draws as in a step: behind a kernel that reads 64 MB and writes the logits, as the head does.
#pragma once
#include "tests/bench/cuda_timing.cuh"

__global__ void __launch_bounds__(512)
    head_kernel(float *to, const float *logits, size_t n, const uint4 *weights, size_t n_weights) {
    pdl_trigger();
    uint32_t s = 0;
    const size_t first = blockIdx.x * (size_t)512 + threadIdx.x, step = gridDim.x * (size_t)512;
#pragma unroll 8
    for (size_t i = first; i < n_weights; i += step) s ^= __ldcs(weights + i).x;
    pdl_wait();
    for (size_t i = first; i < n; i += step) to[i] = s == 0x12345678 ? 0.0f : logits[i];
}

// Microseconds that a step's draws add, greedy and sampled.
static void time_draws(void) {
    const int vocab = 128256, count = 32;
    for (int n : {1, 8, 64}) {
        std::vector<float> x((size_t)n * vocab);
        for (auto &v :
             x) // a sum of four: most tokens are far from the best, as in a model's logits
            v = 3 * (uniform() + uniform() + uniform() + uniform());
        std::vector<uint8_t> host((size_t)n * sizeof(struct batch_draw));
        device_array<float> from(x), to(x.size());
        device_array<uint8_t> work(cuda_draw_work_bytes(n, vocab)), draws(host.size()),
            out((size_t)n * 2 * sizeof(struct batch_drawn));
        device_array<int32_t> slot(std::vector<int32_t>{0}), ids((size_t)n);
        const struct cuda_drawn to_host = {(struct batch_drawn *)out.p, slot.p, ids.p, n};
        auto seconds = [&](bool with) {
            return seconds_of([&] {
                for (int i = 0; i < count; i++) {
                    pdl_launch(head_kernel, dim3(264), dim3(512), 0, stream, to.p,
                               (const float *)from.p, x.size(),
                               (const uint4 *)(pool + (size_t)i * (64 << 20)),
                               (size_t)(64 << 20) / 16);
                    if (with && cuda_draw(&to_host, to.p, (const struct batch_draw *)draws.p, n,
                                          vocab, work.p, stream) != 0)
                        n_failed++;
                }
            });
        };
        const double alone = seconds(false);
        for (int kind = 0; kind < 4; kind++) {
            static const char *const names[] = {"greedy", "temperature 0.8",
                                                "temperature 0.8, top_p 0.95",
                                                "temperature 0.8, top_k 40"};
            std::vector<struct batch_draw> d((size_t)n);
            for (int i = 0; i < n; i++) {
                d[i].kind = kind ? DRAW_SAMPLE : DRAW_GREEDY;
                d[i].temperature = 0.8f, d[i].u = (float)(i % 7) / 8;
                d[i].top_p = kind == 2 ? 0.95f : 1.0f, d[i].top_k = kind == 3 ? 40 : 0;
            }
            MUST(cudaMemcpy(draws.p, d.data(), draws.n, cudaMemcpyHostToDevice));
            printf("draw %2d of %d, %-28s %8.2f us\n", n, vocab, names[kind],
                   (seconds(true) - alone) / count * 1e6);
        }
    }
}
