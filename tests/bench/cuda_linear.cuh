// Linear layers by each kernel: compared with double precision, then timed beside cuBLASLt.
#pragma once
#include "kernels/cuda/linear_wide.h"
#include "kernels/fp8.h"
#include "tests/bench/cuda_timing.cuh"
extern "C" {
#include "kernels/cuda/cublas.h"
}

static struct cublas blas; // opened where it is timed

static int by_cublas(const struct cuda_linear *a, cudaStream_t s) {
    return cublas_linear(&blas, a, s);
}

struct linear_kernel {
    const char *name;
    int (*run)(const struct cuda_linear *, cudaStream_t);
    int most; // rows of x
};
static const struct linear_kernel gemv = {"gemv", cuda_gemv, 32};
static const struct linear_kernel gemv_8bit = {"gemv8", cuda_gemv_8bit, 1};
static const struct linear_kernel streamed = {"stream", cuda_linear_stream, CUDA_STREAM_ROWS};
static const struct linear_kernel tiles = {"tiles", cuda_linear_tiles, 1 << 20};
static const struct linear_kernel library = {"cublas", by_cublas, 1 << 20};

struct linear_case {
    int rows, cols, n;
    enum dtype dtype, w_dtype;
    bool add, bias, gated, act, y_f32;
    int block_k = 0;
};

static double act_double(enum activation act, double x) {
    return act == ACT_SILU ? x / (1 + exp(-x)) : x;
}

static void check_linear(const struct linear_kernel &k, const struct linear_case &c) {
    int ld = (c.cols + 15) / 16 * 16, width = c.gated ? c.rows / 2 : c.rows;
    int n_blocks = fp8_blocks(c.cols, c.block_k);
    std::vector<float> wf((size_t)c.rows * c.cols), scale((size_t)c.rows * n_blocks), bias(c.rows);
    for (auto &v : scale) v = 0.01f + 0.005f * uniform();
    std::vector<uint16_t> w16((size_t)c.rows * ld, 0), x((size_t)c.n * c.cols);
    std::vector<int8_t> w8((size_t)c.rows * ld, 0);
    bool quantised = dtype_size(c.w_dtype) == 1;
    for (int r = 0; r < c.rows; r++) {
        bias[r] = uniform();
        for (int i = 0; i < c.cols; i++) {
            float v = uniform();
            if (c.w_dtype == DTYPE_F8_E4M3) {
                uint8_t q = e4m3_from_f32(i == r % c.cols ? 448 : v * exp2f(8 * uniform()));
                w8[(size_t)r * ld + i] = (int8_t)q;
                int block = c.block_k ? i / c.block_k : 0; // scales lie block by block
                wf[(size_t)r * c.cols + i] = e4m3_to_f32(q) * scale[(size_t)block * c.rows + r];
            } else if (quantised) {
                int8_t q = (int8_t)lrintf(v * 127);
                if (i == r % c.cols) q = r % 2 ? -128 : 127;
                w8[(size_t)r * ld + i] = q;
                wf[(size_t)r * c.cols + i] = q * scale[r];
            } else {
                w16[(size_t)r * ld + i] = narrow(v, c.dtype);
                wf[(size_t)r * c.cols + i] = widened(w16[(size_t)r * ld + i], c.dtype);
            }
        }
    }
    for (auto &v :
         x) // some rows of bf16 have the range of real ones, and a few much larger numbers
        v = narrow(uniform() * (c.rows % 2 ? exp2f(rint(6 * uniform())) : 1), c.dtype);
    if (c.rows % 2) x[c.cols / 2] = narrow(3000, c.dtype);
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
        a.block_k = c.block_k;
        a.activate = c.act || c.gated, a.gated = c.gated, a.act = ACT_SILU;
        int rc = k.run(&a, stream);
        if (rc != 0) printf("%s returned %d\n", k.name, rc), n_failed++;
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
    int every = std::max(1, c.n / 40); // rows of x that are compared
    for (int i = 0; i < c.n; i += every) {
        std::vector<double> y(c.rows);
        for (int r = 0; r < c.rows; r++) {
            double s = 0;
            for (int e = 0; e < c.cols; e++)
                s += (double)wf[(size_t)r * c.cols + e] *
                     widened(x[(size_t)i * c.cols + e], c.dtype);
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
    snprintf(what, sizeof what, "%s %d x %d, n %d, %s weights %s%s%s%s%s%s%s", k.name, c.rows,
             c.cols, c.n, name_of(c.dtype), name_of(c.w_dtype), c.block_k ? ", blocks" : "",
             c.add ? ", add" : "", c.bias ? ", bias" : "", c.gated ? ", gated" : "",
             c.act ? ", act" : "", c.y_f32 ? ", f32 out" : "");
    report(what, diff.value(), c.y_f32 ? 1e-5 : c.dtype == DTYPE_F16 ? 1e-3 : 6e-3, same);
}

static void check_linears(void) {
    enum dtype B = DTYPE_BF16, H = DTYPE_F16, Q = DTYPE_I8, F = DTYPE_F8_E4M3;
    const struct linear_case in_8bit[] = {
        {8, 8, 1, B, Q, 0, 0, 0, 0, 0},
        {1, 16, 1, B, F, 0, 1, 0, 0, 0},
        {1061, 1000, 1, B, Q, 0, 1, 0, 0, 1},
        {1061, 1000, 1, H, F, 1, 0, 0, 0, 1},
        {4096, 4096, 1, B, Q, 1, 0, 0, 0, 0},
        {515, 14336, 1, B, Q, 1, 1, 0, 1, 0},
        {515, 14336, 1, B, F, 0, 0, 0, 0, 1},
        {9028, 504, 1, B, Q, 0, 1, 1, 0, 0},
        {9028, 504, 1, H, F, 0, 0, 1, 0, 0},
        {777, 3000, 1, H, Q, 0, 0, 0, 0, 1},
        {516, 4096, 1, B, F, 1, 0, 0, 0, 0, 128},
        {392, 9000, 1, B, F, 0, 1, 1, 0, 0, 128},
        {7000, 2048, 1, H, F, 0, 0, 0, 0, 1, 128},
    };
    for (const struct linear_case &c : in_8bit) check_linear(gemv_8bit, c), check_linear(gemv, c);
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
    const struct linear_case wide[] = {
        {4096, 1544, 64, B, B, 1, 1, 0, 0, 0}, {1061, 1000, 65, B, B, 0, 1, 0, 0, 1},
        {9028, 512, 128, B, B, 0, 0, 1, 0, 0}, {640, 2048, 100, H, H, 0, 0, 0, 1, 0},
        {640, 2048, 47, B, Q, 1, 0, 0, 0, 0},  {1026, 776, 128, H, Q, 0, 1, 1, 0, 0},
        {8192, 4096, 32, B, B, 1, 0, 0, 0, 0},
    };
    const struct linear_case wider[] = {
        {1061, 1000, 129, B, B, 0, 1, 0, 0, 1}, {4096, 1544, 333, B, B, 1, 1, 0, 0, 0},
        {9028, 512, 260, B, B, 0, 0, 1, 0, 0},  {640, 2048, 1000, H, H, 0, 0, 0, 1, 0},
        {515, 1000, 300, B, B, 1, 1, 0, 0, 0},
    };
    for (const struct linear_case &c : cases) check_linear(gemv, c);
    for (const struct linear_case &c : cases) check_linear(streamed, c);
    for (const struct linear_case &c : wide) check_linear(streamed, c);
    auto by_tiles = [](const struct linear_case &c) { return !c.gated && !c.act; };
    for (const struct linear_case &c : cases)
        if (c.w_dtype == c.dtype && by_tiles(c)) check_linear(tiles, c);
    for (const struct linear_case &c : wide)
        if (c.w_dtype == c.dtype && by_tiles(c)) check_linear(tiles, c);
    for (const struct linear_case &c : wider)
        if (by_tiles(c)) check_linear(tiles, c);
}

// Launches linears of one shape over different weights, n times together at least 1 GB.
static void time_linear(const struct linear_kernel &k, const char *what, int rows, int cols, int n,
                        enum dtype t, enum dtype w_t, bool gated, int block_k = 0) {
    if (n > k.most) return;
    size_t w_bytes = (size_t)rows * cols * dtype_size(w_t);
    int count = (int)std::max<size_t>(8, ((size_t)3 << 30) / w_bytes);
    device_array<uint16_t> x((size_t)n * cols), y((size_t)n * rows);
    device_array<float> scale(std::vector<float>((size_t)rows * fp8_blocks(cols, block_k), 0.01f));
    fill_kernel<<<264, 256, 0, stream>>>(x.p, x.n, 7, 1.0f, t == DTYPE_F16);
    double s = seconds_of([&] {
        for (int i = 0; i < count; i++) {
            struct cuda_linear a = {};
            a.y = y.p, a.x = x.p, a.w = pool + (size_t)i * w_bytes % (pool_bytes - w_bytes);
            a.w = (const void *)((uintptr_t)a.w & ~(uintptr_t)255);
            a.scale = dtype_size(w_t) == 1 ? scale.p : NULL, a.block_k = block_k;
            a.n = n, a.rows = rows, a.cols = cols, a.ld = cols, a.dtype = t, a.w_dtype = w_t;
            a.activate = a.gated = gated && k.run != by_cublas;
            if (k.run(&a, stream) != 0) printf("%s refused\n", k.name), n_failed++;
        }
    });
    char line[160];
    snprintf(line, sizeof line, "%-7s n %4d %s %d x %d, %s%s%s: %.0f TFLOP/s", k.name, n, what,
             rows, cols, name_of(w_t), block_k ? ", blocks" : "", gated ? ", gated" : "",
             2e-12 * rows * cols * n * count / s);
    print_rate(line, (double)w_bytes, s / count);
}

struct linear_shape {
    const char *what;
    int rows, cols;
    bool gated;
};
static const struct linear_shape shapes_8b[] = {{"8B qkv", 6144, 4096, false},
                                                {"8B o", 4096, 4096, false},
                                                {"8B gate+up", 28672, 4096, true},
                                                {"8B down", 4096, 14336, false},
                                                {"8B head", 128256, 4096, false}};
static const struct linear_shape shapes_1b[] = {{"1B qkv", 3072, 2048, false},
                                                {"1B o", 2048, 2048, false},
                                                {"1B gate+up", 16384, 2048, true},
                                                {"1B down", 2048, 8192, false}};

// As the engine does once for a model.
static void open_library(int max_rows) {
    struct err err = {};
    std::vector<struct cuda_linear> shapes;
    for (int i = 0; i < 9; i++) {
        const struct linear_shape &s = i < 5 ? shapes_8b[i] : shapes_1b[i - 5];
        struct cuda_linear a = {};
        a.w = pool, a.rows = s.rows, a.cols = a.ld = s.cols;
        a.dtype = a.w_dtype = DTYPE_BF16;
        shapes.push_back(a);
    }
    if (cublas_open(&blas, "bench", &err) < 0 || !blas.lib) printf("no cuBLASLt: %s\n", err.text);
    struct step_limits limits = {};
    limits.max_rows = max_rows;
    limits.max_seqs = 64;
    if (cublas_tune(&blas, shapes.data(), (int)shapes.size(), &limits, stream, &err) < 0)
        printf("cuBLASLt: %s\n", err.text);
}

// One row, weights of 8 bits: each matrix of Llama-8B, then all of them in the order of a step.
static void time_narrow_8bit(const struct linear_kernel &k, enum dtype w_t, int block_k) {
    for (const struct linear_shape &s : shapes_8b)
        time_linear(k, s.what, s.rows, s.cols, 1, DTYPE_BF16, w_t, s.gated, block_k);
    device_array<uint16_t> x(28672), y(128256);
    device_array<float> scale(std::vector<float>((size_t)28672 * 128, 0.01f));
    fill_kernel<<<264, 256, 0, stream>>>(x.p, x.n, 7, 1.0f, 0);
    size_t bytes = 0;
    double s = seconds_of([&] {
        bytes = 0;
        for (int i = 0; i < 32 * 4 + 1; i++) {
            const struct linear_shape &m = shapes_8b[i == 32 * 4 ? 4 : i % 4];
            struct cuda_linear a = {};
            a.y = y.p, a.x = x.p, a.w = pool + bytes, a.scale = scale.p, a.block_k = block_k;
            a.n = 1, a.rows = m.rows, a.cols = a.ld = m.cols, a.dtype = DTYPE_BF16;
            a.w_dtype = w_t, a.activate = a.gated = m.gated;
            if (k.run(&a, stream) != 0) n_failed++;
            bytes += (size_t)m.rows * m.cols;
        }
    });
    char line[160];
    snprintf(line, sizeof line, "%-7s all matrices of Llama-8B, %s%s", k.name, name_of(w_t),
             block_k ? ", blocks" : "");
    print_rate(line, (double)bytes, s);
}
static void time_8bits(void) {
    for (const struct linear_kernel *k : {&gemv, &gemv_8bit}) {
        time_narrow_8bit(*k, DTYPE_I8, 0);
        time_narrow_8bit(*k, DTYPE_F8_E4M3, 0);
        time_narrow_8bit(*k, DTYPE_F8_E4M3, FP8_BLOCK);
        for (const struct linear_shape &s : shapes_1b)
            time_linear(*k, s.what, s.rows, s.cols, 1, DTYPE_BF16, DTYPE_I8, s.gated);
    }
}

static void time_linears(void) {
    enum dtype B = DTYPE_BF16, H = DTYPE_F16, Q = DTYPE_I8;
    open_library(2048);
    for (int n : {1, 8, 16, 32, 64, 128, 2048})
        for (const struct linear_shape &s : shapes_8b) {
            if (n > 128 && s.rows > 100000) continue;
            for (const struct linear_kernel *k : {&gemv, &streamed, &library})
                time_linear(*k, s.what, s.rows, s.cols, n, B, B, s.gated);
            if (n > 64) time_linear(tiles, s.what, s.rows, s.cols, n, B, B, false);
        }
    for (int n : {1, 8, 64})
        for (const struct linear_shape &s : shapes_1b)
            for (const struct linear_kernel *k : {&gemv, &streamed, &library})
                time_linear(*k, s.what, s.rows, s.cols, n, B, B, s.gated);
    for (int n : {1, 8, 64})
        for (const struct linear_shape &s : shapes_8b)
            for (const struct linear_kernel *k : {&gemv, &streamed})
                time_linear(*k, s.what, s.rows, s.cols, n, B, Q, s.gated);
    time_linear(gemv, "GPT-J qkv", 12288, 4096, 1, B, B, false);
    time_linear(gemv, "GPT-J fc1", 16384, 4096, 1, B, B, false);
    time_linear(gemv, "GPT-J fc2", 4096, 16384, 1, B, B, false);
    for (const struct linear_kernel *k : {&gemv, &streamed}) {
        time_linear(*k, "GPT-2 XL qkv", 4800, 1600, 1, H, H, false);
        time_linear(*k, "GPT-2 XL o", 1600, 1600, 1, H, H, false);
        time_linear(*k, "GPT-2 XL fc1", 6400, 1600, 1, H, H, false);
        time_linear(*k, "GPT-2 XL fc2", 1600, 6400, 1, H, H, false);
    }
}

// The kernels of wide batches alone.
static void time_wide(void) {
    for (int n : {1, 8, 64, 128})
        for (const struct linear_shape &s : shapes_8b)
            time_linear(streamed, s.what, s.rows, s.cols, n, DTYPE_BF16, DTYPE_BF16, s.gated);
    for (int n : {200, 2048})
        for (const struct linear_shape &s : shapes_8b) {
            if (s.rows > 100000) continue;
            time_linear(tiles, s.what, s.rows, s.cols, n, DTYPE_BF16, DTYPE_BF16, false);
        }
}
