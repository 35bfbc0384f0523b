// The CUDA kernels that decide the speed, one by one: each is compared with double precision on the CPU
// (random data, poisoned outputs and unused cache, odd sizes, wraps of the ring, the same bits beside any
// other rows), then timed beside this card's read ceiling, measured in the same run.
//
//     make bench-cuda ARGS="[check] [linear] [8bit] [wide] [decode] [prefill] [step] [seams] [draw]"
//
// Without arguments it runs all.
//
// Exits with 1 when a comparison fails. A time is the median of several replays of a graph, whose many
// launches run over buffers that together are larger than L2.
#include "tests/bench/cuda_attention.cuh"
#include "tests/bench/cuda_draw.cuh"
#include "tests/bench/cuda_linear.cuh"

// --- a decode step -------------------------------------------------------------------------------

// Stands for the step's small kernels (norm; rotation and cache write): as much latency, no sense.
__global__ void __launch_bounds__(256)
    small_kernel(__nv_bfloat16 *y, const __nv_bfloat16 *x, int width) {
    pdl_trigger();
    pdl_wait();
    x += (size_t)blockIdx.x * width, y += (size_t)blockIdx.x * width;
    float s = 0;
    for (int i = threadIdx.x; i < width; i += 256) s += to_float(x[i]) * to_float(x[i]);
    s = rsqrtf(block_sum(s) / width + 1e-5f);
    for (int i = threadIdx.x; i < width; i += 256)
        y[i] = from_float<__nv_bfloat16>(to_float(x[i]) * s);
}

struct step_shape {
    const char *name;
    int layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    bool gated;
};

static void time_step(const struct linear_kernel &kernel, const step_shape &m, int n, int context,
                      enum dtype w_t, const char *leave_out) {
    enum dtype t = DTYPE_BF16;
    int q_rows = (m.heads + 2 * m.kv_heads) * m.head_dim, attn = m.heads * m.head_dim;
    attention_case c = {
        m.heads,    m.kv_heads,
        m.head_dim, 64,
        t,          0,
        false,      std::vector<struct seq_case>((size_t)n, {context - 1, 1, 131072, 4})};
    timed_attention ta(c, m.layers);
    size_t element = w_t == DTYPE_I8 ? 1 : 2, cache = ta.s.layer_bytes * (size_t)m.layers;
    size_t weights = ((size_t)q_rows * m.hidden + (size_t)m.hidden * attn +
                      (size_t)m.ffn * m.hidden * (m.gated ? 3 : 2)) *
                         element * m.layers +
                     (size_t)m.vocab * m.hidden * 2;
    cache = (cache + 255) / 256 * 256;
    if (cache + weights > pool_bytes) {
        printf("%s does not fit the pool\n", m.name);
        return;
    }
    device_array<uint16_t> x((size_t)n * m.hidden), h((size_t)n * m.hidden), f((size_t)n * m.ffn);
    device_array<float> logits((size_t)n * m.vocab),
        scale(std::vector<float>((size_t)m.vocab, 0.001f));
    fill_kernel<<<264, 256, 0, stream>>>(x.p, x.n, 5, 1.0f, 0);
    bool no_attention = strstr(leave_out, "attention"), no_small = strstr(leave_out, "small");
    double s = seconds_of([&] {
        char *at = pool + cache;
        auto linear = [&](void *y, void *in, int rows, int cols, bool add, bool gated, bool f32,
                          enum dtype w) {
            struct cuda_linear a = {};
            a.y = y, a.x = in, a.w = at, a.n = n, a.rows = rows, a.cols = cols, a.ld = cols;
            a.scale = w == DTYPE_I8 ? scale.p : NULL;
            a.dtype = t, a.w_dtype = w, a.add = add, a.y_f32 = f32, a.activate = a.gated = gated;
            // One row of 8 bits has a kernel of its own, as in linear.c.
            int rc = n == 1 && w == DTYPE_I8 ? cuda_gemv_8bit(&a, stream) : kernel.run(&a, stream);
            if (rc != 0) n_failed++;
            at += (size_t)rows * cols * (w == DTYPE_I8 ? 1 : 2);
        };
        auto small = [&](void *y, void *in, int width) {
            if (!no_small)
                pdl_launch(small_kernel, dim3((unsigned)n), dim3(256), 0, stream,
                           (__nv_bfloat16 *)y, (const __nv_bfloat16 *)in, width);
        };
        for (int l = 0; l < m.layers; l++) {
            small(h.p, x.p, m.hidden);
            linear(ta.qkv.p, h.p, q_rows, m.hidden, false, false, false, w_t);
            small(ta.qkv.p, ta.qkv.p, attn);
            struct cuda_attention a = ta.args(l);
            if (!no_attention && cuda_attention_decode(&a, stream) != 0) n_failed++;
            linear(x.p, ta.out.p, m.hidden, attn, true, false, false, w_t);
            small(h.p, x.p, m.hidden);
            linear(f.p, h.p, m.ffn * (m.gated ? 2 : 1), m.hidden, false, m.gated, false, w_t);
            linear(x.p, f.p, m.hidden, m.ffn, true, false, false, w_t);
        }
        small(h.p, x.p, m.hidden);
        linear(logits.p, h.p, m.vocab, m.hidden, false, false, true, DTYPE_BF16);
    });
    double read = (double)weights +
                  (no_attention ? 0 : (double)n * context * m.kv_heads * m.head_dim * 4 * m.layers);
    char line[160];
    snprintf(line, sizeof line, "%s %s by %s, %d x %d%s%s: %.0f tokens/s", m.name, name_of(w_t),
             kernel.name, n, context, *leave_out ? ", without " : "", leave_out, n / s);
    print_rate(line, read, s);
}

static void time_steps(void) {
    const step_shape l8 = {"8B", 32, 4096, 32, 8, 128, 14336, 128256, true};
    const step_shape l1 = {"1B", 16, 2048, 32, 8, 64, 8192, 128256, true};
    const step_shape gj = {"GPT-J-6B (sequential)", 28, 4096, 16, 16, 256, 16384, 50400, false};
    for (const struct linear_kernel *k : {&gemv, &streamed}) {
        time_step(*k, l8, 1, 128, DTYPE_BF16, "");
        time_step(*k, l8, 1, 128, DTYPE_I8, "");
        time_step(*k, l8, 8, 1024, DTYPE_BF16, "");
        time_step(*k, l8, 8, 1024, DTYPE_BF16, "attention, small");
        for (int n : {2, 4}) time_step(*k, l8, n, 1024, DTYPE_BF16, "");
        time_step(*k, l8, 16, 512, DTYPE_BF16, "");
        time_step(*k, l8, 8, 1024, DTYPE_I8, "");
        time_step(*k, l1, 1, 128, DTYPE_BF16, "");
        time_step(*k, l1, 8, 128, DTYPE_BF16, "");
    }
    time_step(gemv, l8, 1, 128, DTYPE_BF16, "attention, small");
    time_step(gemv, gj, 1, 128, DTYPE_BF16, "");
    time_step(streamed, l8, 64, 1024, DTYPE_BF16, "");
    time_step(streamed, l8, 64, 1024, DTYPE_BF16, "attention");
    time_step(streamed, l8, 64, 1024, DTYPE_BF16, "attention, small");
    time_step(streamed, l8, 64, 1024, DTYPE_I8, "");
}

// Attention of many sessions beside its neighbours in a step: a layer's time with some of its
// launches only, so that differences show what a neighbour costs. In a part's name: n and k a small
// kernel (norm; rotation and cache write), q, o, g, d the linears, a attention. cuBLASLt's g has no
// activation.
static void time_seams(void) {
    const int n = 64, context = 1024, layers = 32, hidden = 4096;
    timed_attention ta(llama_8b(n, context - 1, 1), layers);
    size_t cache = (ta.s.layer_bytes * (size_t)layers + 255) / 256 * 256;
    device_array<uint16_t> x((size_t)n * 14336), y((size_t)n * 28672);
    fill_kernel<<<264, 256, 0, stream>>>(x.p, x.n, 5, 1.0f, 0);
    open_library(64);
    static const char *const parts[] = {"a",   "ka",   "q",     "o",     "qo",      "qa",
                                        "qka", "ao",   "kao",   "qkao",  "nqkao",   "gd",
                                        "ngd", "aogd", "kaogd", "naogd", "nqkaongd"};
    for (const struct linear_kernel *k : {&library, &streamed})
        for (const char *part : parts) {
            double s = seconds_of([&] {
                char *at = pool + cache;
                auto linear = [&](int rows, int cols, bool add, bool gated) {
                    struct cuda_linear a = {};
                    a.y = y.p, a.x = x.p, a.w = at, a.n = n, a.rows = rows, a.cols = a.ld = cols;
                    a.dtype = a.w_dtype = DTYPE_BF16, a.add = add;
                    a.activate = a.gated = gated && k != &library;
                    if (k->run(&a, stream) != 0) n_failed++;
                    at += (size_t)rows * cols * 2;
                };
                auto small = [&](int width) {
                    pdl_launch(small_kernel, dim3((unsigned)n), dim3(256), 0, stream,
                               (__nv_bfloat16 *)y.p, (const __nv_bfloat16 *)x.p, width);
                };
                for (int l = 0; l < layers; l++)
                    for (const char *p = part; *p; p++) {
                        struct cuda_attention a = ta.args(l);
                        if (*p == 'a' && cuda_attention_decode(&a, stream) != 0) n_failed++;
                        if (*p == 'k' || *p == 'n') small(hidden);
                        if (*p == 'q') linear(6144, hidden, false, false);
                        if (*p == 'o') linear(hidden, hidden, true, false);
                        if (*p == 'g') linear(28672, hidden, false, true);
                        if (*p == 'd') linear(hidden, 14336, true, false);
                    }
            });
            printf("%s 64 x 1024, a layer's %-10s %8.2f us\n", k->name, part, s / layers * 1e6);
        }
}

int main(int argc, char **argv) {
    auto wanted = [&](const char *part) {
        for (int i = 1; i < argc; i++)
            if (!strcmp(argv[i], part)) return true;
        return argc == 1;
    };
    cudaDeviceProp prop;
    MUST(cudaGetDeviceProperties(&prop, 0));
    printf("%s, %d multiprocessors, L2 %d MB\n", prop.name, prop.multiProcessorCount,
           prop.l2CacheSize >> 20);
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    if (wanted("check")) {
        check_linears();
        check_attentions();
    }
    MUST(cudaMalloc(&pool, pool_bytes));
    fill_kernel<<<1056, 256, 0, stream>>>((uint16_t *)pool, pool_bytes / 2, 1, 0.05f, 0);
    MUST(cudaStreamSynchronize(stream));
    measure_ceiling();
    for (int i = 1; i < argc; i++) { // the cache's type for the parts below
        if (!strcmp(argv[i], "kv=int8")) timed_cache = DTYPE_I8;
        if (!strcmp(argv[i], "kv=fp8")) timed_cache = DTYPE_F8_E4M3;
    }
    if (wanted("linear")) time_linears();
    if (wanted("8bit")) time_8bits();
    if (wanted("wide")) time_wide();
    if (wanted("decode")) time_decodes();
    if (wanted("prefill")) time_prefills();
    if (wanted("step")) time_steps();
    if (wanted("seams")) time_seams();
    if (wanted("draw")) time_draws();
    if (wanted("wide")) {
        const step_shape l8 = {"8B", 32, 4096, 32, 8, 128, 14336, 128256, true};
        time_step(streamed, l8, 8, 1024, DTYPE_BF16, "");
        time_step(streamed, l8, 64, 1024, DTYPE_BF16, "");
        time_step(streamed, l8, 64, 1024, DTYPE_BF16, "attention");
    }
    MUST(cudaDeviceSynchronize());
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
