// The CUDA kernels that decide the speed, alone: each compared with double precision on the CPU
// (random data, poisoned outputs and unused cache, odd sizes, wraps of the ring, the same bits in
// any company), then timed beside this card's read ceiling, measured in the same run.
//
//     make bench-cuda ARGS="[check] [linear] [decode] [prefill] [step]"      without: all
//
// Exit 1 when a comparison fails. Times: graphs of many launches over buffers larger than L2
// together, the median of several replays.
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

static int n_failed;

static void must(cudaError_t e, const char *what) {
    if (e == cudaSuccess) return;
    printf("FAILED %s: %s\n", what, cudaGetErrorString(e));
    exit(1);
}
#define MUST(call) must((call), #call)

// --- data
// ------------------------------------------------------------------------------------------------
static uint64_t rng_state = 88172645463325252ull;
static float uniform(void) { // -1 .. 1
    rng_state ^= rng_state << 13, rng_state ^= rng_state >> 7, rng_state ^= rng_state << 17;
    return (float)(int32_t)(rng_state >> 32) * 4.656613e-10f;
}

__global__ void fill_kernel(uint16_t *p, size_t n, uint32_t seed, float scale, int f16) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        uint32_t h = (uint32_t)i * 2654435761u ^ seed ^ (uint32_t)(i >> 32) * 40503u;
        h ^= h >> 16, h *= 0x7feb352du, h ^= h >> 15, h *= 0x846ca68bu, h ^= h >> 16;
        float v = (float)(int32_t)h * 4.656613e-10f * scale;
        p[i] = f16 ? __half_as_ushort(__float2half(v)) : __bfloat16_as_ushort(__float2bfloat16(v));
    }
}

template <typename E> struct device_array {
    E *p = nullptr;
    size_t n = 0;
    explicit device_array(size_t count) : n(count) { MUST(cudaMalloc(&p, n * sizeof(E) + 16)); }
    explicit device_array(const std::vector<E> &host) : device_array(host.size()) {
        MUST(cudaMemcpy(p, host.data(), n * sizeof(E), cudaMemcpyHostToDevice));
    }
    ~device_array() { cudaFree(p); }
    device_array(const device_array &) = delete;
    std::vector<E> host() const {
        std::vector<E> h(n);
        MUST(cudaMemcpy(h.data(), p, n * sizeof(E), cudaMemcpyDeviceToHost));
        return h;
    }
};

static uint16_t narrow(float v, enum dtype t) {
    if (t == DTYPE_BF16) return bf16_from_f32(v);
    return __half_as_ushort(__float2half(v));
}
static float widened(uint16_t u, enum dtype t) {
    if (t == DTYPE_BF16) return bf16_to_f32(u);
    return __half2float(__ushort_as_half(u));
}
static const char *name_of(enum dtype t) {
    return t == DTYPE_BF16 ? "bf16" : t == DTYPE_F16 ? "f16" : t == DTYPE_I8 ? "int8" : "f32";
}

// |out - ref| / |ref| over all elements; NaN counts as infinite.
struct difference {
    double d = 0, r = 0;
    void add(double out, double ref) {
        double e = out - ref;
        d += e == e ? e * e : INFINITY;
        r += ref * ref;
    }
    double value() const { return sqrt(d / (r > 0 ? r : 1)); }
};

static void report(const std::string &what, double error, double most, bool same_bits) {
    bool ok = error <= most && same_bits;
    if (!ok) n_failed++;
    printf("%-6s %-72s error %.1e%s\n", ok ? "ok" : "FAILED", what.c_str(), error,
           same_bits ? "" : "  BITS DIFFER");
}

// --- time
// ------------------------------------------------------------------------------------------------
static cudaStream_t stream;

// Median seconds of one replay of what `record` launches.
static double seconds_of(const std::function<void()> &record, int replays = 7) {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    record();
    MUST(cudaStreamEndCapture(stream, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    cudaEvent_t a, b;
    MUST(cudaEventCreate(&a));
    MUST(cudaEventCreate(&b));
    std::vector<float> ms;
    for (int i = 0; i < replays + 2; i++) {
        MUST(cudaEventRecord(a, stream));
        MUST(cudaGraphLaunch(exec, stream));
        MUST(cudaEventRecord(b, stream));
        MUST(cudaEventSynchronize(b));
        float t;
        MUST(cudaEventElapsedTime(&t, a, b));
        if (i >= 2) ms.push_back(t);
    }
    MUST(cudaGetLastError());
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    std::sort(ms.begin(), ms.end());
    return ms[ms.size() / 2] * 1e-3;
}

template <int UNROLL>
__global__ void __launch_bounds__(512) read_kernel(const uint4 *p, size_t n, uint4 *sink) {
    uint4 s = make_uint4(0, 0, 0, 0);
    size_t each = (size_t)gridDim.x * blockDim.x;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    for (; i + (UNROLL - 1) * each < n; i += UNROLL * each) {
        uint4 v[UNROLL];
#pragma unroll
        for (int k = 0; k < UNROLL; k++) v[k] = __ldcs(p + i + k * each);
#pragma unroll
        for (int k = 0; k < UNROLL; k++) s.x ^= v[k].x, s.y ^= v[k].y, s.z ^= v[k].z, s.w ^= v[k].w;
    }
    if (s.x == 0x12345678 && s.y == s.z) *sink = s;
}

static double ceiling; // bytes a second
static char *pool;     // weights and caches that are timed lie here
static const size_t pool_bytes = (size_t)20 << 30;

static void measure_ceiling(void) {
    device_array<uint4> sink(1);
    size_t bytes = (size_t)8 << 30;
    int blocks[] = {132 * 2, 132 * 4, 132 * 8};
    for (int b : blocks) {
        double t8 = seconds_of(
            [&] { read_kernel<8><<<b, 512, 0, stream>>>((uint4 *)pool, bytes / 16, sink.p); });
        double t4 = seconds_of(
            [&] { read_kernel<4><<<b, 512, 0, stream>>>((uint4 *)pool, bytes / 16, sink.p); });
        ceiling = std::max(ceiling, (double)bytes / std::min(t4, t8));
    }
    printf("read ceiling %.0f GB/s\n", ceiling * 1e-9);
}

static void print_rate(const std::string &what, double bytes, double seconds) {
    printf("%-58s %9.2f us  %6.0f GB/s  %5.1f %%\n", what.c_str(), seconds * 1e6,
           bytes / seconds * 1e-9, 100 * bytes / seconds / ceiling);
}

// --- linear
// ------------------------------------------------------------------------------------------------
struct linear_case {
    int rows, cols, n;
    enum dtype dtype, w_dtype;
    bool add, bias, gated, act, y_f32;
};

static double act_double(enum activation act, double x) {
    return act == ACT_SILU ? x / (1 + exp(-x)) : x;
}

static void check_linear(const struct linear_case &c) {
    int ld = (c.cols + 15) / 16 * 16, width = c.gated ? c.rows / 2 : c.rows;
    std::vector<float> wf((size_t)c.rows * c.cols), scale(c.rows), bias(c.rows);
    std::vector<uint16_t> w16((size_t)c.rows * ld, 0), x((size_t)c.n * c.cols);
    std::vector<int8_t> w8((size_t)c.rows * ld, 0);
    bool quantised = c.w_dtype == DTYPE_I8;
    for (int r = 0; r < c.rows; r++) {
        scale[r] = 0.01f + 0.005f * uniform();
        bias[r] = uniform();
        for (int k = 0; k < c.cols; k++) {
            float v = uniform();
            if (quantised) {
                int8_t q = (int8_t)lrintf(v * 127);
                if (k == r % c.cols) q = r % 2 ? -128 : 127;
                w8[(size_t)r * ld + k] = q;
                wf[(size_t)r * c.cols + k] = q * scale[r];
            } else {
                w16[(size_t)r * ld + k] = narrow(v, c.dtype);
                wf[(size_t)r * c.cols + k] = widened(w16[(size_t)r * ld + k], c.dtype);
            }
        }
    }
    for (auto &v : x) v = narrow(uniform(), c.dtype);
    device_array<uint16_t> dw16(w16), dx(x);
    device_array<int8_t> dw8(w8);
    device_array<float> dscale(scale), dbias(bias);
    size_t outputs = (size_t)c.n * width, guard = 64;
    std::vector<float> old(outputs);
    for (auto &v : old) v = widened(narrow(uniform(), c.dtype), c.dtype);
    auto run = [&](int first, int n) { // rows [first, first + n), their outputs as floats
        std::vector<uint16_t> poison(outputs + guard, 0xffff);
        std::vector<float> poison32(outputs + guard, NAN);
        if (c.add)
            for (int i = 0; i < n * width; i++) {
                poison[i] = narrow(old[(size_t)first * width + i], c.dtype);
                poison32[i] = old[(size_t)first * width + i];
            }
        device_array<uint16_t> y(poison);
        device_array<float> y32(poison32);
        struct cuda_linear a = {};
        a.y = c.y_f32 ? (void *)y32.p : (void *)y.p;
        a.x = dx.p + (size_t)first * c.cols;
        a.w = quantised ? (void *)dw8.p : (void *)dw16.p;
        a.scale = quantised ? dscale.p : NULL;
        a.bias = c.bias ? dbias.p : NULL;
        a.n = n, a.rows = c.rows, a.cols = c.cols, a.ld = ld;
        a.dtype = c.dtype, a.w_dtype = c.w_dtype, a.y_f32 = c.y_f32, a.add = c.add;
        a.activate = c.act || c.gated, a.gated = c.gated, a.act = ACT_SILU;
        int rc = cuda_gemv(&a, stream);
        if (rc != 0) printf("cuda_gemv returned %d\n", rc), n_failed++;
        MUST(cudaStreamSynchronize(stream));
        std::vector<float> out((size_t)n * width);
        std::vector<uint16_t> h = y.host();
        std::vector<float> h32 = y32.host();
        for (size_t i = 0; i < out.size(); i++) out[i] = c.y_f32 ? h32[i] : widened(h[i], c.dtype);
        for (size_t i = out.size(); i < out.size() + guard; i++)
            if (c.y_f32 ? !std::isnan(h32[i]) && i >= outputs : h[i] != 0xffff && i >= outputs)
                printf("wrote past the end\n"), n_failed++;
        return out;
    };
    std::vector<float> out = run(0, c.n);
    struct difference diff;
    for (int i = 0; i < c.n; i++) {
        std::vector<double> y(c.rows);
        for (int r = 0; r < c.rows; r++) {
            double s = 0;
            for (int k = 0; k < c.cols; k++)
                s += (double)wf[(size_t)r * c.cols + k] *
                     widened(x[(size_t)i * c.cols + k], c.dtype);
            y[r] = s + (c.bias ? bias[r] : 0);
        }
        for (int r = 0; r < width; r++) {
            double v = c.gated ? act_double(ACT_SILU, y[r]) * y[r + width]
                       : c.act ? act_double(ACT_SILU, y[r])
                               : y[r];
            if (c.add) v += old[(size_t)i * width + r];
            diff.add(out[(size_t)i * width + r], v);
        }
    }
    bool same = true;
    for (int first : {0, c.n / 2, c.n - 1})
        for (int n : {1, 3, 9}) {
            if (first + n > c.n || n == c.n) continue;
            std::vector<float> part = run(first, n);
            same &= memcmp(part.data(), out.data() + (size_t)first * width, part.size() * 4) == 0;
        }
    char what[160];
    snprintf(what, sizeof what, "linear %d x %d, n %d, %s weights %s%s%s%s%s%s", c.rows, c.cols,
             c.n, name_of(c.dtype), name_of(c.w_dtype), c.add ? ", add" : "",
             c.bias ? ", bias" : "", c.gated ? ", gated" : "", c.act ? ", act" : "",
             c.y_f32 ? ", f32 out" : "");
    report(what, diff.value(), c.y_f32 ? 1e-5 : c.dtype == DTYPE_F16 ? 1e-3 : 6e-3, same);
}

static void check_linears(void) {
    enum dtype B = DTYPE_BF16, H = DTYPE_F16, Q = DTYPE_I8;
    const struct linear_case cases[] = {
        {8, 8, 1, B, B, 0, 0, 0, 0, 0},        {1, 16, 2, B, B, 0, 1, 0, 0, 0},
        {1061, 1000, 1, B, B, 0, 0, 0, 0, 1},  {1061, 1000, 7, B, B, 0, 1, 0, 0, 1},
        {3072, 2048, 1, B, B, 0, 0, 0, 0, 0},  {3072, 2048, 16, B, B, 1, 0, 0, 0, 0},
        {6144, 520, 13, B, B, 1, 1, 0, 0, 1},  {4096, 1544, 32, B, B, 0, 0, 0, 0, 1},
        {9000, 264, 5, B, B, 0, 0, 0, 0, 1},   {1600, 6400, 4, H, H, 1, 1, 0, 0, 0},
        {4800, 1600, 17, H, H, 0, 1, 0, 0, 1}, {6400, 1600, 1, H, H, 0, 1, 0, 1, 0},
        {2816, 1024, 3, B, B, 0, 0, 1, 0, 0},  {9028, 512, 11, B, B, 0, 0, 1, 0, 0},
        {200, 72, 30, B, B, 0, 1, 1, 0, 0},    {1061, 1000, 7, B, Q, 0, 1, 0, 0, 1},
        {4096, 2048, 16, B, Q, 1, 0, 0, 0, 1}, {9028, 504, 11, B, Q, 0, 0, 1, 0, 0},
        {777, 3000, 1, H, Q, 0, 0, 0, 0, 1},   {64, 16, 32, H, Q, 0, 0, 0, 0, 1},
    };
    for (const struct linear_case &c : cases) check_linear(c);
}

// Launches linears of one shape over different weights, n times together at least 1 GB.
static void time_linear(const char *what, int rows, int cols, int n, enum dtype t, enum dtype w_t,
                        bool gated) {
    size_t w_bytes = (size_t)rows * cols * (w_t == DTYPE_I8 ? 1 : 2);
    int count = (int)std::max<size_t>(8, ((size_t)3 << 30) / w_bytes);
    device_array<uint16_t> x((size_t)n * cols), y((size_t)n * rows);
    device_array<float> scale(std::vector<float>(rows, 0.01f));
    fill_kernel<<<264, 256, 0, stream>>>(x.p, x.n, 7, 1.0f, t == DTYPE_F16);
    double s = seconds_of([&] {
        for (int i = 0; i < count; i++) {
            struct cuda_linear a = {};
            a.y = y.p, a.x = x.p, a.w = pool + (size_t)i * w_bytes % (pool_bytes - w_bytes);
            a.w = (const void *)((uintptr_t)a.w & ~(uintptr_t)255);
            a.scale = w_t == DTYPE_I8 ? scale.p : NULL;
            a.n = n, a.rows = rows, a.cols = cols, a.ld = cols, a.dtype = t, a.w_dtype = w_t;
            a.activate = a.gated = gated;
            if (cuda_gemv(&a, stream) != 0) printf("cuda_gemv refused\n"), n_failed++;
        }
    });
    char line[160];
    snprintf(line, sizeof line, "%s %d x %d, n %d, %s%s", what, rows, cols, n, name_of(w_t),
             gated ? ", gated" : "");
    print_rate(line, (double)w_bytes, s / count);
}

static void time_linears(void) {
    enum dtype B = DTYPE_BF16, H = DTYPE_F16, Q = DTYPE_I8;
    for (int n : {1, 8, 16, 32}) {
        time_linear("8B qkv", 6144, 4096, n, B, B, false);
        time_linear("8B o", 4096, 4096, n, B, B, false);
        time_linear("8B gate+up", 28672, 4096, n, B, B, true);
        time_linear("8B down", 4096, 14336, n, B, B, false);
        time_linear("8B head", 128256, 4096, n, B, B, false);
    }
    for (int n : {1, 8}) {
        time_linear("8B qkv", 6144, 4096, n, B, Q, false);
        time_linear("8B o", 4096, 4096, n, B, Q, false);
        time_linear("8B gate+up", 28672, 4096, n, B, Q, true);
        time_linear("8B down", 4096, 14336, n, B, Q, false);
        time_linear("8B head", 128256, 4096, n, B, Q, false);
    }
    time_linear("1B qkv", 3072, 2048, 1, B, B, false);
    time_linear("1B o", 2048, 2048, 1, B, B, false);
    time_linear("1B gate+up", 16384, 2048, 1, B, B, true);
    time_linear("1B down", 2048, 8192, 1, B, B, false);
    time_linear("GPT-J qkv", 12288, 4096, 1, B, B, false);
    time_linear("GPT-J fc1", 16384, 4096, 1, B, B, false);
    time_linear("GPT-J fc2", 4096, 16384, 1, B, B, false);
    time_linear("GPT-2 XL qkv", 4800, 1600, 1, H, H, false);
    time_linear("GPT-2 XL o", 1600, 1600, 1, H, H, false);
    time_linear("GPT-2 XL fc1", 6400, 1600, 1, H, H, false);
    time_linear("GPT-2 XL fc2", 1600, 6400, 1, H, H, false);
}

// --- attention
// ------------------------------------------------------------------------------------------------
struct seq_case {
    int first, n_rows; // positions [first, first + n_rows)
    int memory_len, sink_len;
};

struct attention_case {
    int n_heads, n_kv_heads, head_dim, block_tokens;
    enum dtype dtype;
    int window;
    bool alibi;
    std::vector<struct seq_case> seqs;
};

// A batch and its cache as the engine lays them out: blocks in random order, ring slots as kv_map.h
// says, everything that no row may see is NaN or -1.
struct attention_set {
    const attention_case &c;
    std::vector<int32_t> positions, row_seq, maps, decode_rows;
    std::vector<struct cuda_seq> seqs;
    std::vector<struct cuda_tile> tiles;
    int n_rows = 0, n_blocks = 0, n_layers, max_position = 1;
    size_t block_bytes, layer_bytes;

    attention_set(const attention_case &c_, int n_layers_) : c(c_), n_layers(n_layers_) {
        for (size_t s = 0; s < c.seqs.size(); s++) {
            const struct seq_case &q = c.seqs[s];
            struct cuda_seq seq = {};
            seq.first_row = n_rows, seq.n_rows = q.n_rows;
            seq.memory_len = q.memory_len, seq.sink_len = q.sink_len;
            seq.block_tokens = c.block_tokens;
            seq.n_sink_blocks = (q.sink_len + c.block_tokens - 1) / c.block_tokens;
            int keep = std::min(q.memory_len - q.sink_len + q.n_rows, q.first + q.n_rows);
            seq.n_ring_blocks = (keep + c.block_tokens - 1) / c.block_tokens + 1;
            seq.map = (int)maps.size();
            maps.resize(maps.size() + seq.n_sink_blocks + seq.n_ring_blocks, -1);
            for (int i = 0; i < q.n_rows; i++) {
                positions.push_back(q.first + i);
                row_seq.push_back((int)s);
            }
            if (q.n_rows == 1)
                decode_rows.push_back(n_rows);
            else
                for (int i = 0; i < q.n_rows; i += CUDA_TILE_ROWS)
                    tiles.push_back(
                        {(int)s, n_rows + i, std::min<int>(CUDA_TILE_ROWS, q.n_rows - i), 0});
            n_rows += q.n_rows;
            seqs.push_back(seq);
            while (max_position < q.first + q.n_rows) max_position *= 2;
            for (int i = 0; i < q.n_rows; i++)
                for_visible((int)s, q.first + i, [&](int p) { hold((int)s, p); });
        }
        std::vector<int32_t> order(n_blocks);
        for (int i = 0; i < n_blocks; i++) order[i] = i;
        for (int i = n_blocks - 1; i > 0; i--)
            std::swap(
                order[i],
                order[(uint32_t)(rng_state = rng_state * 6364136223846793005ull + 1) % (i + 1)]);
        for (auto &m : maps)
            if (m >= 0) m = order[m];
        block_bytes = (size_t)2 * c.n_kv_heads * c.block_tokens * c.head_dim * 2;
        layer_bytes = block_bytes * (size_t)n_blocks;
    }
    int slot(int s, int p) const {
        const struct cuda_seq &q = seqs[s];
        struct kv_map m = {NULL, q.n_sink_blocks, q.n_ring_blocks, q.block_tokens};
        return q.map + kv_map_slot(&m, p);
    }
    void hold(int s, int p) {
        int32_t &m = maps[slot(s, p)];
        if (m < 0) m = n_blocks++;
    }
    template <typename F> void for_visible(int s, int t, F f) const {
        struct kv_span v = kv_visible(t, c.seqs[s].memory_len, c.seqs[s].sink_len, c.window);
        for (int64_t p = v.sink_first; p < v.sink_end; p++) f((int)p);
        for (int64_t p = v.first; p <= t; p++) f((int)p);
    }
    // Element index in the cache of K's (value: V's) first dimension.
    size_t at(int layer, int s, int p, int kv_head, bool value) const {
        size_t block = (size_t)maps[slot(s, p)];
        size_t in = ((size_t)value * c.n_kv_heads + (size_t)kv_head) * c.block_tokens +
                    (size_t)(p % c.block_tokens);
        return (size_t)layer * (layer_bytes / 2) + block * (block_bytes / 2) + in * c.head_dim;
    }
};

struct device_batch {
    device_array<int32_t> positions, row_seq, maps, decode_rows;
    device_array<struct cuda_seq> seqs;
    device_array<struct cuda_tile> tiles;
    explicit device_batch(const attention_set &s)
        : positions(s.positions), row_seq(s.row_seq), maps(s.maps), decode_rows(s.decode_rows),
          seqs(s.seqs), tiles(s.tiles) {}
    struct cuda_batch get() const {
        struct cuda_batch b = {};
        b.positions = positions.p, b.row_seq = row_seq.p, b.maps = maps.p;
        b.decode_rows = decode_rows.p, b.seqs = seqs.p, b.tiles = tiles.p;
        return b;
    }
};

static struct cuda_attention attention_args_of(const attention_set &s, const device_batch &b,
                                               void *cache, void *qkv, void *out,
                                               const float *slopes, device_array<char> &work) {
    const attention_case &c = s.c;
    struct cuda_attention a = {};
    a.out = out, a.qkv = qkv, a.dtype = c.dtype;
    a.kv.data = cache, a.kv.block_bytes = s.block_bytes, a.kv.layer_bytes = s.layer_bytes,
    a.kv.dtype = c.dtype;
    a.kv.n_layers = s.n_layers, a.kv.n_kv_heads = c.n_kv_heads, a.kv.head_dim = c.head_dim;
    a.kv.block_tokens = c.block_tokens;
    a.b = b.get();
    a.n_heads = c.n_heads, a.scale = 1.0f / sqrtf((float)c.head_dim), a.window = c.window;
    a.alibi_slopes = slopes;
    a.n_decode = (int)s.decode_rows.size(), a.n_tiles = (int)s.tiles.size();
    a.max_position = s.max_position;
    a.work = work.p, a.work_bytes = work.n;
    return a;
}

static void check_attention(const attention_case &c) {
    const int layer = 1;
    attention_set s(c, 2);
    int width = (c.n_heads + 2 * c.n_kv_heads) * c.head_dim, group = c.n_heads / c.n_kv_heads;
    std::vector<uint16_t> cache(s.layer_bytes * (size_t)s.n_layers / 2, 0xffff);
    std::vector<uint16_t> qkv((size_t)s.n_rows * width);
    std::vector<float> slopes(c.n_heads);
    for (auto &v : slopes) v = 0.05f * (1.1f + uniform());
    for (auto &v : qkv) v = narrow(2 * uniform(), c.dtype);
    for (int r = 0; r < s.n_rows; r++)
        s.for_visible(s.row_seq[r], s.positions[r], [&](int p) {
            for (int h = 0; h < c.n_kv_heads; h++)
                for (int v = 0; v < 2; v++) {
                    size_t at = s.at(layer, s.row_seq[r], p, h, v);
                    if (cache[at] != 0xffff) continue;
                    for (int d = 0; d < c.head_dim; d++)
                        cache[at + d] = narrow(2 * uniform(), c.dtype);
                }
        });
    size_t outputs = (size_t)s.n_rows * c.n_heads * c.head_dim;
    device_array<uint16_t> dcache(cache), dqkv(qkv),
        dout(std::vector<uint16_t>(outputs + 64, 0xffff));
    device_array<float> dslopes(slopes);
    size_t work_bytes = cuda_attention_work_bytes(std::max(8, (int)s.decode_rows.size()), c.n_heads,
                                                  c.n_kv_heads, c.head_dim);
    device_array<char> work(work_bytes);
    MUST(cudaMemset(work.p, 0, work_bytes));
    device_batch b(s);
    struct cuda_attention a =
        attention_args_of(s, b, dcache.p, dqkv.p, dout.p, c.alibi ? dslopes.p : NULL, work);
    a.layer = layer;
    auto run = [&](bool deterministic) {
        MUST(cudaMemset(dout.p, 0xff, outputs * 2));
        a.deterministic = deterministic;
        int rc = a.n_decode ? cuda_attention_decode(&a, stream) : 0;
        if (rc == 0 && a.n_tiles) rc = cuda_attention_prefill(&a, stream);
        if (rc != 0) printf("attention returned %d\n", rc), n_failed++;
        MUST(cudaStreamSynchronize(stream));
        return dout.host();
    };
    std::vector<uint16_t> out = run(false), again = run(false), exact = run(true);
    struct difference diff, diff_exact;
    int n_checked = 0;
    for (int r = 0; r < s.n_rows; r++) {
        if (s.n_rows > 300 && r % 37 != 0 && r < s.n_rows - 3) continue;
        for (int h = 0; h < c.n_heads; h++) {
            std::vector<double> score, value(c.head_dim, 0.0);
            double top = -INFINITY, sum = 0;
            const uint16_t *q = &qkv[(size_t)r * width + (size_t)h * c.head_dim];
            s.for_visible(s.row_seq[r], s.positions[r], [&](int p) {
                const uint16_t *k = &cache[s.at(layer, s.row_seq[r], p, h / group, false)];
                double dot = 0;
                for (int d = 0; d < c.head_dim; d++)
                    dot += (double)widened(q[d], c.dtype) * widened(k[d], c.dtype);
                dot = dot * a.scale + (c.alibi ? slopes[h] * (double)(p - s.positions[r]) : 0);
                score.push_back(dot);
                top = std::max(top, dot);
            });
            size_t i = 0;
            s.for_visible(s.row_seq[r], s.positions[r], [&](int p) {
                double e = exp(score[i++] - top);
                const uint16_t *v = &cache[s.at(layer, s.row_seq[r], p, h / group, true)];
                sum += e;
                for (int d = 0; d < c.head_dim; d++) value[d] += e * widened(v[d], c.dtype);
            });
            for (int d = 0; d < c.head_dim; d++) {
                size_t at = ((size_t)r * c.n_heads + h) * c.head_dim + d;
                diff.add(widened(out[at], c.dtype), value[d] / sum);
                diff_exact.add(widened(exact[at], c.dtype), value[d] / sum);
            }
        }
        n_checked++;
    }
    bool same = memcmp(out.data(), again.data(), outputs * 2) == 0;
    // A row alone in its step gives the same bits as in company.
    if (a.n_decode > 1) {
        struct cuda_attention one = a;
        one.deterministic = true;
        for (int i : {0, a.n_decode - 1}) {
            MUST(cudaMemset(dout.p, 0xff, outputs * 2));
            one.b.decode_rows = b.decode_rows.p + i, one.n_decode = 1;
            if (cuda_attention_decode(&one, stream) != 0) n_failed++;
            MUST(cudaStreamSynchronize(stream));
            std::vector<uint16_t> alone = dout.host();
            size_t at = (size_t)s.decode_rows[i] * c.n_heads * c.head_dim;
            same &= memcmp(&alone[at], &exact[at], (size_t)c.n_heads * c.head_dim * 2) == 0;
        }
    }
    for (size_t i = outputs; i < outputs + 64; i++) same &= out[i] == 0xffff;
    char what[200];
    snprintf(what, sizeof what,
             "attention %d/%d heads of %d, blocks of %d, %s%s%s, %zu seqs, %d rows", c.n_heads,
             c.n_kv_heads, c.head_dim, c.block_tokens, name_of(c.dtype),
             c.window ? ", sliding" : "", c.alibi ? ", alibi" : "", c.seqs.size(), s.n_rows);
    double most = c.dtype == DTYPE_F16 ? 1.5e-3 : 8e-3;
    report(what, diff.value(), most, same);
    if (a.n_tiles) report("    deterministic", diff_exact.value(), most, true);
}

static void check_attentions(void) {
    enum dtype B = DTYPE_BF16, H = DTYPE_F16;
    const std::vector<attention_case> cases = {
        // decode: first tokens, one split, many, past the window, sinks
        {8,
         2,
         128,
         64,
         B,
         0,
         false,
         {{0, 1, 512, 4}, {5, 1, 512, 4}, {129, 1, 4096, 0}, {300, 1, 4096, 4}}},
        {32, 8, 128, 64, B, 0, false, {{1023, 1, 4096, 4}, {5000, 1, 1024, 4}, {777, 1, 256, 70}}},
        {4, 4, 64, 16, H, 0, false, {{40, 1, 33, 5}, {1000, 1, 2048, 0}, {1, 1, 64, 1}}},
        {12, 1, 80, 32, B, 0, true, {{600, 1, 4096, 4}, {20, 1, 4096, 4}}},
        {20, 1, 96, 64, H, 100, false, {{600, 1, 4096, 4}, {90, 1, 4096, 4}}},
        {4, 2, 256, 64, B, 0, true, {{700, 1, 300, 40}, {3, 1, 300, 4}}},
        {4, 2, 192, 128, B, 0, false, {{257, 1, 4096, 0}, {256, 1, 4096, 0}, {255, 1, 4096, 0}}},
        {8, 8, 32, 64, H, 0, false, {{9000, 1, 8192, 64}}},
        // prefill
        {8, 2, 128, 64, B, 0, false, {{0, 200, 4096, 4}}},
        {8,
         2,
         128,
         64,
         B,
         0,
         false,
         {{0, 64, 4096, 4}, {100, 37, 64, 4}, {1000, 130, 512, 4}, {50, 1, 512, 4}}},
        {4, 4, 64, 16, H, 0, true, {{0, 3, 64, 0}, {333, 100, 90, 33}}},
        {6, 2, 80, 32, B, 50, false, {{0, 90, 4096, 4}, {500, 70, 4096, 4}}},
        {4, 1, 256, 64, B, 0, false, {{130, 70, 100, 4}}},
        {2, 2, 192, 128, H, 0, false, {{10, 70, 300, 100}}},
        {14, 2, 64, 64, B, 0, false, {{2000, 130, 4096, 4}}},
        {4, 4, 32, 16, B, 0, true, {{100, 65, 512, 4}, {0, 2, 16, 1}}},
    };
    for (const attention_case &c : cases) check_attention(c);
}

struct timed_attention {
    attention_case c;
    attention_set s;
    device_batch b;
    device_array<uint16_t> qkv, out;
    device_array<char> work;
    timed_attention(const attention_case &c_, int n_layers)
        : c(c_), s(c, n_layers), b(s),
          qkv((size_t)s.n_rows * (c.n_heads + 2 * c.n_kv_heads) * c.head_dim),
          out((size_t)s.n_rows * c.n_heads * c.head_dim),
          work(cuda_attention_work_bytes(std::max<int>(1, (int)s.decode_rows.size()), c.n_heads,
                                         c.n_kv_heads, c.head_dim)) {
        fill_kernel<<<264, 256, 0, stream>>>(qkv.p, qkv.n, 3, 2.0f, c.dtype == DTYPE_F16);
        MUST(cudaMemset(work.p, 0, work.n));
        if (s.layer_bytes * (size_t)n_layers > pool_bytes)
            printf("cache too large for the pool\n"), exit(1);
    }
    struct cuda_attention args(int layer) {
        struct cuda_attention a = attention_args_of(s, b, pool, qkv.p, out.p, NULL, work);
        a.layer = layer;
        return a;
    }
};

static attention_case llama_8b(int n, int first, int n_rows) {
    return {
        32,         8, 128,   64,
        DTYPE_BF16, 0, false, std::vector<struct seq_case>((size_t)n, {first, n_rows, 131072, 4})};
}

static void time_decode(const char *what, const attention_case &c, int n_layers) {
    timed_attention t(c, n_layers);
    double s = seconds_of([&] {
        for (int l = 0; l < n_layers; l++) {
            struct cuda_attention a = t.args(l);
            if (cuda_attention_decode(&a, stream) != 0) n_failed++;
        }
    });
    double keys = 0;
    for (const struct seq_case &q : c.seqs) keys += std::min(q.first + 1, q.memory_len);
    print_rate(what, keys * c.n_kv_heads * c.head_dim * 4, s / n_layers);
}

static void time_decodes(void) {
    time_decode("8B decode 1 x 128", llama_8b(1, 127, 1), 32);
    time_decode("8B decode 1 x 1024", llama_8b(1, 1023, 1), 32);
    time_decode("8B decode 1 x 4096", llama_8b(1, 4095, 1), 32);
    time_decode("8B decode 1 x 32768", llama_8b(1, 32767, 1), 16);
    time_decode("8B decode 1 x 131072", llama_8b(1, 131071, 1), 16);
    time_decode("8B decode 8 x 1024", llama_8b(8, 1023, 1), 32);
    time_decode("8B decode 64 x 1024", llama_8b(64, 1023, 1), 32);
    time_decode("8B decode 64 x 2000", llama_8b(64, 1999, 1), 16);
    time_decode("GPT-J decode 1 x 128",
                {16, 16, 256, 64, DTYPE_BF16, 0, false, {{127, 1, 2048, 0}}}, 28);
    time_decode("GPT-2 XL decode 1 x 128",
                {25, 25, 64, 64, DTYPE_F16, 0, false, {{127, 1, 1024, 0}}}, 48);
    time_decode(
        "GPT-2 XL decode 32 x 900",
        {25, 25, 64, 64, DTYPE_F16, 0, false, std::vector<struct seq_case>(32, {899, 1, 1024, 0})},
        48);
}

static void time_prefill(const char *what, const attention_case &c, bool deterministic) {
    timed_attention t(c, 4);
    device_array<char> work(cuda_attention_work_bytes(64, c.n_heads, c.n_kv_heads, c.head_dim));
    MUST(cudaMemset(work.p, 0, work.n));
    double s = seconds_of([&] {
        for (int l = 0; l < 4; l++) {
            struct cuda_attention a = t.args(l);
            a.deterministic = deterministic;
            a.work = work.p, a.work_bytes = work.n;
            if (cuda_attention_prefill(&a, stream) != 0) n_failed++;
        }
    });
    double pairs = 0;
    for (const struct seq_case &q : c.seqs)
        for (int i = 0; i < q.n_rows; i++) pairs += std::min(q.first + i + 1, q.memory_len);
    double flops = pairs * c.n_heads * c.head_dim * 4;
    printf("%-58s %9.2f us  %6.0f TFLOP/s\n", what, s / 4 * 1e6, flops / (s / 4) * 1e-12);
}

static void time_prefills(void) {
    time_prefill("8B prefill 2048", llama_8b(1, 0, 2048), false);
    time_prefill("8B prefill 64 x 1024 (8 of them)", llama_8b(8, 0, 1024), false);
    time_prefill("8B prefill 200 after 4096", llama_8b(1, 4096, 200), false);
    time_prefill("8B prefill 2048 after 30000", llama_8b(1, 30000, 2048), false);
    time_prefill("GPT-J prefill 2048",
                 {16, 16, 256, 64, DTYPE_BF16, 0, false, {{0, 2048, 4096, 0}}}, false);
    time_prefill("GPT-2 XL prefill 1024",
                 {25, 25, 64, 64, DTYPE_F16, 0, false, {{0, 1024, 1024, 0}}}, false);
    time_prefill("8B prefill 2048, deterministic", llama_8b(1, 0, 2048), true);
}

// --- a decode step
// ------------------------------------------------------------------------------------------------
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

static void time_step(const step_shape &m, int n, int context, enum dtype w_t,
                      const char *leave_out) {
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
            if (cuda_gemv(&a, stream) != 0) n_failed++;
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
    snprintf(line, sizeof line, "%s %s, %d x %d%s%s: %.0f tokens/s", m.name, name_of(w_t), n,
             context, *leave_out ? ", without " : "", leave_out, n / s);
    print_rate(line, read, s);
}

static void time_steps(void) {
    const step_shape l8 = {"8B", 32, 4096, 32, 8, 128, 14336, 128256, true};
    const step_shape l1 = {"1B", 16, 2048, 32, 8, 64, 8192, 128256, true};
    const step_shape gj = {"GPT-J-6B (sequential)", 28, 4096, 16, 16, 256, 16384, 50400, false};
    time_step(l8, 1, 128, DTYPE_BF16, "");
    time_step(l8, 1, 128, DTYPE_BF16, "attention");
    time_step(l8, 1, 128, DTYPE_BF16, "attention, small");
    time_step(l8, 1, 128, DTYPE_I8, "");
    time_step(l8, 1, 128, DTYPE_I8, "attention, small");
    time_step(l8, 8, 1024, DTYPE_BF16, "");
    time_step(l8, 16, 512, DTYPE_BF16, "");
    time_step(l8, 8, 1024, DTYPE_I8, "");
    time_step(l1, 1, 128, DTYPE_BF16, "");
    time_step(l1, 1, 128, DTYPE_BF16, "attention, small");
    time_step(gj, 1, 128, DTYPE_BF16, "");
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
    if (wanted("linear")) time_linears();
    if (wanted("decode")) time_decodes();
    if (wanted("prefill")) time_prefills();
    if (wanted("step")) time_steps();
    MUST(cudaDeviceSynchronize());
    printf("%d failed\n", n_failed);
    return n_failed != 0;
}
