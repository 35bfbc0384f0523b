// Attention, decode and prefill: compared with double precision, then timed.
#pragma once
#include "kernels/cuda/attention_exact.h"
#include "kernels/cuda/attention_hopper.h"
#include "tests/bench/cuda_timing.cuh"

// The cache's type in what is timed; DTYPE_COUNT: the activations'.
static enum dtype timed_cache = DTYPE_COUNT;

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
        const size_t vectors = (size_t)2 * c.n_kv_heads * c.block_tokens;
        block_bytes = vectors * (timed_cache == DTYPE_COUNT ? 2 * c.head_dim : c.head_dim + 4);
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
    a.kv.dtype = timed_cache == DTYPE_COUNT ? c.dtype : timed_cache;
    a.kv.n_layers = s.n_layers, a.kv.n_kv_heads = c.n_kv_heads, a.kv.head_dim = c.head_dim;
    a.kv.block_tokens = c.block_tokens;
    a.b = b.get();
    a.n_heads = c.n_heads, a.row_heads = c.n_heads + 2 * c.n_kv_heads,
    a.scale = 1.0f / sqrtf((float)c.head_dim), a.window = c.window;
    a.alibi_slopes = slopes;
    a.n_decode = (int)s.decode_rows.size(), a.n_tiles = (int)s.tiles.size();
    a.max_position = s.max_position;
    a.work = work.p, a.work_bytes = work.n;
    return a;
}

// As attention.c chooses.
static int attend_tiles(const struct cuda_attention *a) {
    const int rc = cuda_attention_hopper(a, stream);
    return rc == CUDA_UNSUPPORTED ? cuda_attention_prefill(a, stream) : rc;
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
    // One for all kernels: whatever they leave there, their counters are zeros again.
    device_array<char> work(work_bytes);
    MUST(cudaMemsetAsync(work.p, 0, work_bytes, stream));
    device_batch b(s);
    struct cuda_attention a =
        attention_args_of(s, b, dcache.p, dqkv.p, dout.p, c.alibi ? dslopes.p : NULL, work);
    a.layer = layer;
    bool covered = true;
    auto run = [&](struct cuda_attention with, bool exactly) {
        MUST(
            cudaMemsetAsync(dout.p, 0xff, outputs * 2, stream)); // another stream's would come late
        int rc = 0;
        if (exactly) {
            rc = cuda_attention_exact(&with, stream);
        } else {
            if (with.n_decode) rc = cuda_attention_decode(&with, stream);
            if (rc == 0 && with.n_tiles) rc = attend_tiles(&with);
        }
        if (exactly && rc == CUDA_UNSUPPORTED)
            covered = false; // the simple kernel's
        else if (rc != 0)
            printf("attention returned %d\n", rc), n_failed++;
        MUST(cudaStreamSynchronize(stream));
        return dout.host();
    };
    std::vector<uint16_t> out = run(a, false), again = run(a, false), exact = run(a, true);
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
    // One order of each sum: every row as a decode row, with or without company, and as a tile of
    // its own.
    bool same_exact = true;
    auto equal = [&](const std::vector<uint16_t> &got, int first, int n) {
        size_t row = (size_t)c.n_heads * c.head_dim;
        return memcmp(&got[first * row], &exact[first * row], n * row * 2) == 0;
    };
    std::vector<int32_t> all(s.n_rows);
    std::vector<struct cuda_tile> alone(s.n_rows);
    for (int i = 0; i < s.n_rows; i++) all[i] = i, alone[i] = {s.row_seq[i], i, 1, 0};
    device_array<int32_t> rows(all);
    device_array<struct cuda_tile> ones(alone);
    struct cuda_attention other = a;
    other.b.decode_rows = rows.p, other.n_decode = s.n_rows, other.n_tiles = 0;
    same_exact &= equal(run(other, true), 0, s.n_rows);
    for (int i : {0, s.n_rows / 2, s.n_rows - 1}) {
        other.b.decode_rows = rows.p + i, other.n_decode = 1;
        same_exact &= equal(run(other, true), i, 1);
    }
    other.b.tiles = ones.p, other.n_tiles = s.n_rows, other.n_decode = 0;
    same_exact &= equal(run(other, true), 0, s.n_rows);
    for (size_t i = outputs; i < outputs + 64; i++) same &= out[i] == 0xffff;
    char what[200];
    snprintf(what, sizeof what,
             "attention %d/%d heads of %d, blocks of %d, %s%s%s, %zu seqs, %d rows", c.n_heads,
             c.n_kv_heads, c.head_dim, c.block_tokens, name_of(c.dtype),
             c.window ? ", sliding" : "", c.alibi ? ", alibi" : "", c.seqs.size(), s.n_rows);
    double most = c.dtype == DTYPE_F16 ? 1.5e-3 : 8e-3;
    report(what, diff.value(), most, same);
    if (covered) report("    deterministic", diff_exact.value(), most, same_exact);
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
        // by products of warpgroups: later turns, sinks, wraps, windows, slopes, blocks of 128
        {32, 8, 128, 64, B, 0, false, {{4096, 200, 131072, 4}}},
        {8, 2, 128, 64, H, 0, true, {{1500, 70, 900, 70}, {0, 129, 4096, 0}}},
        {6, 2, 64, 128, H, 300, false, {{800, 200, 4096, 4}, {0, 2, 128, 1}}},
        {16, 1, 64, 64, B, 0, false, {{3000, 33, 600, 130}, {63, 65, 64, 3}}},
        {4, 2, 128, 64, B, 0, false, {{0, 1100, 512, 4}}},
    };
    for (const attention_case &c : cases) check_attention(c);
    // Decode rows enough that blocks take equal shares of all runs, of lengths that suit no share.
    for (bool wide : {false, true}) {
        attention_case c = {
            wide ? 32 : 16, wide ? 8 : 16, wide ? 128 : 64, 64, wide ? B : H, 0, false, {}};
        for (int i = 0; i < (wide ? 56 : 36); i++)
            c.seqs.push_back({i * 337 % 1500, 1, i % 5 ? 4096 : 700, i % 3 * 35});
        c.seqs.push_back({0, 1, 64, 4});
        c.seqs.push_back({9000, 1, 16384, 4});
        check_attention(c);
    }
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
          work(std::max<size_t>(
              cuda_attention_work_bytes(std::max<int>(1, (int)s.decode_rows.size()), c.n_heads,
                                        c.n_kv_heads, c.head_dim),
              (size_t)64 << 20)) {
        fill_kernel<<<264, 256, 0, stream>>>(qkv.p, qkv.n, 3, 2.0f, c.dtype == DTYPE_F16);
        MUST(cudaMemsetAsync(work.p, 0, work.n, stream));
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

static void time_decode(const char *what, const attention_case &c, int n_layers,
                        bool deterministic = false) {
    timed_attention t(c, n_layers);
    double s = seconds_of([&] {
        for (int l = 0; l < n_layers; l++) {
            struct cuda_attention a = t.args(l);
            if ((deterministic ? cuda_attention_exact(&a, stream)
                               : cuda_attention_decode(&a, stream)) != 0)
                n_failed++;
        }
    });
    double keys = 0;
    for (const struct seq_case &q : c.seqs) keys += std::min(q.first + 1, q.memory_len);
    double vector = timed_cache == DTYPE_COUNT ? 2 * c.head_dim : c.head_dim + 4; // bytes
    print_rate(what, keys * c.n_kv_heads * 2 * vector, s / n_layers);
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
    time_decode("8B decode 1 x 128, deterministic", llama_8b(1, 127, 1), 32, true);
    time_decode("8B decode 1 x 4096, deterministic", llama_8b(1, 4095, 1), 32, true);
    time_decode("8B decode 1 x 32768, deterministic", llama_8b(1, 32767, 1), 16, true);
    time_decode("8B decode 8 x 1024, deterministic", llama_8b(8, 1023, 1), 32, true);
    time_decode("8B decode 64 x 1024, deterministic", llama_8b(64, 1023, 1), 32, true);
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
    MUST(cudaMemsetAsync(work.p, 0, work.n, stream));
    double s = seconds_of([&] {
        for (int l = 0; l < 4; l++) {
            struct cuda_attention a = t.args(l);
            a.work = work.p, a.work_bytes = work.n;
            if ((deterministic ? cuda_attention_exact(&a, stream) : attend_tiles(&a)) != 0)
                n_failed++;
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
    time_prefill("8B prefill 200 after 4096, deterministic", llama_8b(1, 4096, 200), true);
}
