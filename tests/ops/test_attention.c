// attention, kv_write, qkv_finish and the cache's blocks, against double precision over a plain list of
// keys and values: ragged batches, ring wrap, windows, sinks, ALiBi, head sizes, all cache types. The bits
// must not depend on chunks, batch, block size or number of threads.
#include "tests/ops/attention_world.h"

struct world {
    struct backend *be;
    struct shape s;
    struct kv_store kv;
    struct seq seqs[MAX_SEQS];
    float *stored[MAX_SEQS]; // (n, 2 n_kv_heads * head_dim): what the cache makes of k and v
    int n_seqs;
    float slopes[64];
};

static void world_init(struct world *w, struct backend *be, const struct shape *s,
                       const int32_t *lens, int n_seqs, int32_t slack) {
    struct err err = {0};
    *w = (struct world){.be = be, .s = *s, .n_seqs = n_seqs};
    w->s.slack = slack;
    int32_t n_blocks = seqs_init(w->seqs, n_seqs, &w->s, lens);
    op_seed(11);
    for (int i = 0; i < n_seqs; i++) {
        w->seqs[i].qkv = op_floats(lens[i] * row_width(s));
        w->stored[i] = stored_rows(s, &w->seqs[i]);
    }
    w->kv = store_of(s, n_blocks);
    if (be->ops->kv_store_init(be, &w->kv, &err) < 0) fail_msg("kv_store_init: %s", err.text);
    // NaN, so that a read of a value that was never written shows
    memset(w->kv.data, 0xff, w->kv.block_bytes * (size_t)n_blocks);
    slopes_init(w->slopes);
}

static void world_release(struct world *w) {
    seqs_release(w->seqs);
    for (int i = 0; i < w->n_seqs; i++) free(w->stored[i]);
    w->be->ops->kv_store_release(w->be, &w->kv);
}

// Below, among and above the scores.
static const float sink_logits[] = {-40, 0.5f, 60, 2};

// One step, in which sequence i of n_seqs advances by rows[i].
static void world_step(struct world *w, const int32_t *rows) {
    const struct shape *s = &w->s;
    struct step t;
    int32_t all[MAX_SEQS] = {0};
    memcpy(all, rows, (size_t)w->n_seqs * sizeof *rows);
    step_init(&t, s, w->seqs, all);
    struct attention_args args = args_of(s, w->slopes);
    if (s->sink_logits) args.sinks = sink_logits;
    assert_int_equal(w->be->ops->kv_write(w->be, &w->kv, s->layer, t.qkv, &t.batch, s->n_heads), 0);
    assert_int_equal(w->be->ops->attention(w->be, t.out, t.qkv, &w->kv, &t.batch, &args), 0);
    step_take(&t, s, w->seqs, all, t.out);
}

static bool sees(const struct shape *s, int64_t t, int64_t p) {
    return p <= t && (p < s->sink_len || p > t - (s->memory_len - s->sink_len)) &&
           (s->window == 0 || p > t - s->window);
}

static void check_row(const struct world *w, int index, int32_t t, int32_t head) {
    const struct shape *s = &w->s;
    const struct seq *q = &w->seqs[index];
    const int64_t width = 2 * s->n_kv_heads * s->head_dim; // of a stored row
    int32_t hd = s->head_dim, kv_head = head / (s->n_heads / s->n_kv_heads);
    double *p = malloc((size_t)(t + 1) * sizeof *p), max = -INFINITY, sum = 0;
    const float *query = q->qkv + t * row_width(s) + head * hd;
    for (int32_t i = 0; i <= t; i++) {
        const float *k = w->stored[index] + i * width + kv_head * hd;
        double dot = 0;
        for (int32_t d = 0; d < hd; d++) dot += (double)query[d] * k[d];
        p[i] = dot / sqrt(hd) + (s->alibi ? (double)w->slopes[head] * (i - t) : 0);
        if (!sees(s, t, i)) p[i] = -INFINITY;
        if (p[i] > max) max = p[i];
    }
    if (s->sink_logits && sink_logits[head] > max) max = sink_logits[head];
    if (s->sink_logits) sum = exp(sink_logits[head] - max);
    for (int32_t i = 0; i <= t; i++) sum += p[i] = exp(p[i] - max);
    for (int32_t d = 0; d < hd; d++) {
        double want = 0;
        for (int32_t i = 0; i <= t; i++)
            want += p[i] / sum * w->stored[index][i * width + (s->n_kv_heads + kv_head) * hd + d];
        op_near(q->out[t * out_width(s) + head * hd + d], want, 3e-6, "attention",
                t * out_width(s) + head * hd + d);
    }
    free(p);
}

static void check_world(const struct world *w) {
    for (int i = 0; i < w->n_seqs; i++)
        for (int32_t t = 0; t < w->seqs[i].done; t += 1 + t / 40)
            for (int32_t h = 0; h < w->s.n_heads; h++) check_row(w, i, t, h);
}

static void same_outputs(const struct world *a, const struct world *b, const char *what) {
    for (int i = 0; i < a->n_seqs; i++) {
        int32_t n = a->seqs[i].done < b->seqs[i].done ? a->seqs[i].done : b->seqs[i].done;
        op_same_bits(a->seqs[i].out, b->seqs[i].out, n * out_width(&a->s), what);
    }
}

// Computes all rows in two uneven chunks for each sequence, then one by one. Both must be correct and
// have the same bits.
static void check_shape(struct backend *be, struct shape s) {
    const int32_t lens[] = {150, 1, 77};
    struct world chunks, steps;
    world_init(&chunks, be, &s, lens, 3, 100);
    world_init(&steps, be, &s, lens, 3, 1);
    world_step(&chunks, (int32_t[]){100, 1, 3});
    world_step(&chunks, (int32_t[]){50, 0, 74});
    check_world(&chunks);
    for (int i = 0; i < 150; i++) {
        world_step(&steps, (int32_t[]){1, i == 3, i >= 60 && i < 137});
    }
    same_outputs(&chunks, &steps, "one token at a time");
    world_release(&chunks);
    world_release(&steps);
}

static const struct shape plain = {.kv_dtype = DTYPE_F32,
                                   .n_heads = 6,
                                   .n_kv_heads = 2,
                                   .head_dim = 64,
                                   .block_tokens = 16,
                                   .n_layers = 2,
                                   .layer = 1,
                                   .memory_len = 1024};

static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8, DTYPE_F8_E4M3};
enum { N_TYPES = sizeof types / sizeof *types };

static void shapes(struct backend *be) {
    for (int t = 0; t < N_TYPES; t++) {
        struct shape s = plain;
        s.kv_dtype = types[t];
        s.memory_len = 200;
        check_shape(be, s);
        s.block_tokens = 64;
        check_shape(be, s);
        s.memory_len = 40, s.sink_len = 4, s.block_tokens = 8; // wraps, with sinks
        check_shape(be, s);
    }
}

static void windows_of(struct backend *be, enum dtype t) {
    struct shape s = plain;
    s.kv_dtype = t, s.n_heads = 4, s.n_kv_heads = 4, s.head_dim = 24;
    s.memory_len = 32, s.sink_len = 0, s.block_tokens = 4;
    check_shape(be, s);
    s.sink_len = 7, s.block_tokens = 1;
    check_shape(be, s);
    s.block_tokens = 128, s.memory_len = 90, s.sink_len = 70; // sinks past a run
    check_shape(be, s);
    s.window = 20; // the model's own, stricter
    check_shape(be, s);
    s.sink_logits = true;
    check_shape(be, s);
    s.window = 0, s.sink_logits = false, s.alibi = true;
    check_shape(be, s);
    s.memory_len = 1, s.sink_len = 0, s.block_tokens = 2, s.alibi = false; // sees itself only
    check_shape(be, s);
}

static void windows(struct backend *be) {
    windows_of(be, DTYPE_F32);
    windows_of(be, DTYPE_I8);
    windows_of(be, DTYPE_F8_E4M3);
}

static void head_sizes(struct backend *be) {
    static const int32_t sizes[] = {1, 3, 8, 17, 40, 80, 128, 256};
    for (int i = 0; i < 8; i++) {
        struct shape s = plain;
        s.head_dim = sizes[i];
        s.n_heads = 2, s.n_kv_heads = 1;
        s.memory_len = 60, s.sink_len = 4, s.block_tokens = i % 2 ? 64 : 16;
        s.kv_dtype = i % 3 == 2 ? DTYPE_F16 : DTYPE_F32;
        check_shape(be, s);
        s.kv_dtype = i % 2 ? DTYPE_I8 : DTYPE_F8_E4M3;
        check_shape(be, s);
    }
    struct shape many = plain; // more heads in a group than a tile has rows
    many.n_heads = 61, many.n_kv_heads = 1, many.head_dim = 8, many.memory_len = 200;
    check_shape(be, many);
}

static void test_shapes(void **state) {
    op_each_backend(shapes);
}
static void test_windows(void **state) {
    op_each_backend(windows);
}
static void test_head_sizes(void **state) {
    op_each_backend(head_sizes);
}

// Long contexts, whose keys are split between the workers. The bits must be the same with one thread, in
// chunks, alone and with other sequences.
static void long_context(const char *isa, int32_t memory_len, int32_t sink_len, enum dtype dtype) {
    struct shape s = plain;
    s.n_heads = 3, s.n_kv_heads = 1, s.head_dim = 16, s.block_tokens = 32, s.n_layers = 1,
    s.layer = 0;
    s.memory_len = memory_len, s.sink_len = sink_len, s.kv_dtype = dtype;
    const int32_t lens[] = {2600, 30};
    struct world w[3];
    struct backend *be[3];
    if (backend_cpu_open(&be[0], 1, isa, NULL) < 0) return;
    assert_int_equal(backend_cpu_open(&be[1], 3, isa, NULL), 0);
    assert_int_equal(backend_cpu_open(&be[2], 8, isa, NULL), 0);
    for (int i = 0; i < 3; i++) world_init(&w[i], be[i], &s, lens, 2, 2600);
    world_step(&w[0], (int32_t[]){2590, 29});
    check_world(&w[0]);
    world_step(&w[1], (int32_t[]){2000, 0});
    world_step(&w[1], (int32_t[]){590, 0});
    world_step(&w[2], (int32_t[]){2581, 5}); // 19 more: 10, then one by one
    for (int i = 0; i < 10; i++) {
        world_step(&w[0], (int32_t[]){1, i == 7});
        world_step(&w[1], (int32_t[]){1, 0});
        world_step(&w[2], (int32_t[]){i == 0 ? 10 : 1, i == 1 ? 25 : 0});
    }
    same_outputs(&w[0], &w[1], "three threads");
    same_outputs(&w[0], &w[2], "eight threads");
    for (int i = 0; i < 3; i++) {
        world_release(&w[i]);
        be[i]->ops->close(be[i]);
    }
}

static void test_long_context(void **state) {
    for (int i = 0; i < OP_N_ISAS; i++) {
        long_context(op_isas[i], 4000, 0, DTYPE_F32);
        long_context(op_isas[i], 1500, 4, DTYPE_F32);
        long_context(op_isas[i], 1300, 600, DTYPE_F16);
        long_context(op_isas[i], 1500, 4, DTYPE_I8);
        long_context(op_isas[i], 1300, 600, DTYPE_F8_E4M3);
    }
}

// Copies of cache blocks must be equal.
static void block_copy(struct backend *be) {
    struct kv_store kv = {.dtype = DTYPE_F16,
                          .n_layers = 2,
                          .n_kv_heads = 3,
                          .head_dim = 5,
                          .block_tokens = 4,
                          .n_blocks = 3};
    size_t bytes = be->ops->kv_block_bytes(be, &kv);
    assert_true(bytes >= 2 * 3 * 5 * 4 * 2 * 2);
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), 0);
    assert_int_equal(kv.block_bytes, bytes);
    for (size_t i = 0; i < 3 * bytes; i++) ((uint8_t *)kv.data)[i] = (uint8_t)(i * 7);
    assert_int_equal(be->ops->kv_block_copy(be, &kv, 2, 0), 0);
    assert_memory_equal((char *)kv.data + 2 * bytes, kv.data, bytes);
    assert_int_equal(be->ops->kv_block_copy(be, &kv, 3, 0), E_INVAL);
    assert_int_equal(be->ops->kv_block_copy(be, &kv, 0, -1), E_INVAL);
    // To host memory, and back to other blocks.
    char *host = malloc(2 * bytes), *were = malloc(2 * bytes);
    assert_true(host && were);
    memcpy(were, (char *)kv.data + bytes, 2 * bytes);
    void *places[] = {host, host + bytes};
    static const int32_t from[] = {1, 2}, to[] = {2, 0}, wrong[] = {0, 3};
    assert_int_equal(be->ops->kv_blocks_save(be, &kv, places, from, 2), 0);
    assert_memory_equal(host, were, 2 * bytes);
    memset(kv.data, 0xee, 3 * bytes);
    assert_int_equal(be->ops->kv_blocks_load(be, &kv, to, places, 2), 0);
    assert_memory_equal((char *)kv.data + 2 * bytes, were, bytes);
    assert_memory_equal(kv.data, were + bytes, bytes);
    assert_int_equal(be->ops->kv_blocks_load(be, &kv, wrong, places, 2), E_INVAL);
    free(were);
    free(host);
    be->ops->kv_store_release(be, &kv);
    kv.dtype = DTYPE_I32;
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), E_UNSUPPORTED);
    kv.dtype = DTYPE_F32, kv.block_tokens = 3;
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), E_INVAL);
}

static void test_block_copy(void **state) {
    op_each_backend(block_copy);
}

// A row without a block is refused before anything is written.
static void unmapped(struct backend *be) {
    struct kv_store kv = {.dtype = DTYPE_F32,
                          .n_layers = 1,
                          .n_kv_heads = 1,
                          .head_dim = 8,
                          .block_tokens = 4,
                          .n_blocks = 1};
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), 0);
    int32_t blocks[] = {0, -1}, positions[] = {3, 4};
    float qkv[2 * 24] = {1, 2, 3};
    const struct kv_map map = {blocks, 0, 2, 4};
    struct batch_seq seq = {.n_rows = 2, .memory_len = 100, .maps = &map};
    struct batch b = {.n_rows = 2, .n_seqs = 1, .positions = positions, .seqs = &seq};
    assert_int_equal(be->ops->kv_write(be, &kv, 0, qkv, &b, 1), E_INVAL);
    be->ops->kv_store_release(be, &kv);
}

static void test_unmapped(void **state) {
    op_each_backend(unmapped);
}

// The fused op gives the bits of qk_norm, rope and kv_write.
static void finish(struct backend *be) {
    enum { N = 21, HEADS = 6, KV = 2, DIM = 40, ROT = 24, WIDTH = (HEADS + 2 * KV) * DIM };
    if (!be->ops->qkv_finish) return;
    op_seed(3);
    float *a = op_floats(N * WIDTH), *b = malloc(N * WIDTH * sizeof(float));
    memcpy(b, a, N * WIDTH * sizeof(float));
    float *qw = op_floats(DIM), *kw = op_floats(DIM), *freq = op_floats(ROT / 2), angles[N * ROT];
    int32_t blocks[] = {1, 0}, positions[N];
    for (int i = 0; i < N; i++) positions[i] = i + 5;
    const struct kv_map map = {blocks, 0, 2, 16};
    struct batch_seq seq = {.n_rows = N, .memory_len = 100, .maps = &map};
    struct batch batch = {.n_rows = N, .n_seqs = 1, .positions = positions, .seqs = &seq};
    be->ops->rope_angles(be, angles, &batch, freq, NULL, ROT, 1.0f);
    const struct qkv_shape shape = {HEADS, KV, DIM};
    for (int style = 0; style < 2; style++)
        for (int norm = 0; norm < 2; norm++)
            for (int t = 0; t < N_TYPES; t++) {
                struct kv_store kv[2];
                for (int i = 0; i < 2; i++) {
                    kv[i] = (struct kv_store){.dtype = types[t],
                                              .n_layers = 3,
                                              .n_kv_heads = KV,
                                              .head_dim = DIM,
                                              .block_tokens = 16,
                                              .n_blocks = 2};
                    assert_int_equal(be->ops->kv_store_init(be, &kv[i], NULL), 0);
                }
                const struct qkv_args qa = {.style = (enum rope_style)style,
                                            .rot_dim = ROT,
                                            .cos_sin = angles,
                                            .q_weight = norm ? qw : NULL,
                                            .k_weight = norm ? kw : NULL,
                                            .eps = 1e-6f};
                if (norm) be->ops->qk_norm(be, a, N, &shape, &qa);
                be->ops->rope(be, a, N, &shape, &qa);
                be->ops->kv_write(be, &kv[0], 2, a, &batch, HEADS);
                be->ops->qkv_finish(be, b, &kv[1], &batch, 2, HEADS, &qa);
                op_same_bits(a, b, N * WIDTH, "qkv_finish");
                assert_memory_equal(kv[0].data, kv[1].data, 2 * kv[0].block_bytes);
                for (int i = 0; i < 2; i++) be->ops->kv_store_release(be, &kv[i]);
            }
    free(a), free(b), free(qw), free(kw), free(freq);
}

static void test_finish(void **state) {
    op_each_backend(finish);
}

// An 8-bit cache takes one byte for each value and four bytes for each head's scale, and nothing else.
static void block_bytes(struct backend *be) {
    struct kv_store kv = {
        .n_layers = 3, .n_kv_heads = 4, .head_dim = 64, .block_tokens = 16, .n_blocks = 1};
    const size_t vectors = 3 * 4 * 2 * 16;
    for (int t = 0; t < N_TYPES; t++) {
        bool eight = types[t] == DTYPE_I8 || types[t] == DTYPE_F8_E4M3;
        kv.dtype = types[t];
        size_t want = vectors * (64 * dtype_size(types[t]) + (eight ? sizeof(float) : 0));
        assert_int_equal(be->ops->kv_block_bytes(be, &kv), want);
    }
}

static void test_block_bytes(void **state) {
    op_each_backend(block_bytes);
}

// A store with one block that holds these rows of one head.
static struct kv_store written(struct backend *be, enum dtype t, const float *qkv, int32_t n,
                               int32_t hd) {
    struct kv_store kv = {.dtype = t,
                          .n_layers = 1,
                          .n_kv_heads = 1,
                          .head_dim = hd,
                          .block_tokens = 32,
                          .n_blocks = 1};
    static const int32_t block = 0;
    int32_t positions[32];
    for (int i = 0; i < n; i++) positions[i] = i;
    const struct kv_map map = {&block, 0, 1, 32};
    struct batch_seq seq = {.n_rows = n, .memory_len = 100, .maps = &map};
    struct batch b = {.n_rows = n, .n_seqs = 1, .positions = positions, .seqs = &seq};
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), 0);
    memset(kv.data, 0, kv.block_bytes);
    assert_int_equal(be->ops->kv_write(be, &kv, 0, qkv, &b, 1), 0);
    return kv;
}

// All instruction sets must write the same bytes, also for vectors that are large, tiny, zero, or halfway
// between two 8-bit numbers.
static void test_8bit_bytes_are_the_same_on_all_sets(void **state) {
    enum { N = 32, HD = 37 };
    op_seed(5);
    float *qkv = op_floats(N * 3 * HD);
    for (int r = 0; r < N; r++)
        for (int i = 0; i < 3 * HD; i++) {
            float *x = &qkv[r * 3 * HD + i];
            if (r % 8 == 1) *x *= 1e30f;
            if (r % 8 == 2) *x *= 1e-28f;
            if (r % 8 == 3) *x *= 1e-35f; // too small for a scale: zero
            if (r % 8 == 4) *x = 0;
            if (r % 8 == 5) *x = (float)(i % 255 - 127) / 2;
            if (r % 8 == 6) *x = ldexpf((float)(i % 17 - 8) / 8, -(i % 23));
        }
    for (int t = 3; t < N_TYPES; t++) {
        struct backend *first, *be;
        assert_int_equal(backend_cpu_open(&first, 1, "portable", NULL), 0);
        struct kv_store want = written(first, types[t], qkv, N, HD);
        for (int i = 1; i < OP_N_ISAS; i++) {
            if (backend_cpu_open(&be, 2, op_isas[i], NULL) < 0) continue;
            struct kv_store got = written(be, types[t], qkv, N, HD);
            assert_memory_equal(got.data, want.data, want.block_bytes);
            be->ops->kv_store_release(be, &got);
            be->ops->close(be);
        }
        first->ops->kv_store_release(first, &want);
        first->ops->close(first);
    }
    free(qkv);
}

// A row that sees a NaN key or value gets NaN, as with a cache of floats. A NaN key changes no other
// row.
static void no_number(struct backend *be) {
    struct shape s = plain;
    s.memory_len = 8, s.n_heads = s.n_kv_heads = 1, s.head_dim = 32;
    const int32_t lens[] = {20};
    for (int t = 3; t < N_TYPES; t++)
        for (int key = 0; key < 2; key++) {
            struct world w;
            s.kv_dtype = types[t];
            world_init(&w, be, &s, lens, 1, 20);
            w.seqs[0].qkv[5 * row_width(&s) + (key ? 32 : 64) + 7] = key ? NAN : -INFINITY;
            world_step(&w, (int32_t[]){20});
            for (int r = 0; r < 20; r++)
                for (int d = 0; d < 32; d++) {
                    bool is_nan = isnan(w.seqs[0].out[r * 32 + d]) != 0, sees = r >= 5 && r < 13;
                    if (key || sees) assert_int_equal(is_nan, sees);
                }
            world_release(&w);
        }
}

static void test_no_number(void **state) {
    op_each_backend(no_number);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_windows),
        cmocka_unit_test(test_head_sizes),
        cmocka_unit_test(test_long_context),
        cmocka_unit_test(test_block_copy),
        cmocka_unit_test(test_unmapped),
        cmocka_unit_test(test_finish),
        cmocka_unit_test(test_block_bytes),
        cmocka_unit_test(test_8bit_bytes_are_the_same_on_all_sets),
        cmocka_unit_test(test_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
