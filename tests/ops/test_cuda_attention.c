// CUDA's attention and cache against the CPU's: ragged batches of prompts and single tokens, rings that
// wrap, windows, sinks, ALiBi, head sizes, cache types. With `deterministic`, the bits must not depend on
// the chunks.
#include "tests/ops/attention_twin.h"

static struct shape plain(const struct twin *w) {
    return (struct shape){.kv_dtype = w->t,
                          .n_heads = 6,
                          .n_kv_heads = 2,
                          .head_dim = 64,
                          .block_tokens = 16,
                          .n_layers = 2,
                          .layer = 1,
                          .memory_len = 1024};
}

static void shapes(const struct twin *w) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8, DTYPE_F8_E4M3};
    for (int t = 0; t < 5; t++) {
        struct shape s = plain(w);
        s.kv_dtype = types[t];
        s.memory_len = 300;
        check_shape(w, s);
        s.memory_len = 40, s.sink_len = 4, s.block_tokens = 8; // wraps, with sinks
        check_shape(w, s);
    }
    struct shape s = plain(w);
    s.block_tokens = 64, s.head_dim = 128, s.n_heads = 8, s.n_kv_heads = 2;
    check_shape(w, s);
    s.n_heads = 4, s.n_kv_heads = 4, s.memory_len = 100, s.sink_len = 4;
    check_shape(w, s);
}

// 8-bit caches in the special cases of their kernels: widths of shared memory, more than eight heads in a
// group, head sizes that do not fill a width, blocks smaller than a run, windows.
static void eight_bits(const struct twin *w) {
    static const int32_t sizes[] = {16, 64, 80, 128, 192, 256, 24};
    for (int i = 0; i < 7; i++) {
        struct shape s = plain(w);
        s.kv_dtype = i % 2 ? DTYPE_I8 : DTYPE_F8_E4M3;
        s.head_dim = sizes[i], s.n_heads = i % 3 ? 4 : 18, s.n_kv_heads = i % 3 ? 4 : 2;
        s.memory_len = i % 3 ? 150 : 500, s.sink_len = 4, s.block_tokens = i % 2 ? 64 : 16;
        check_shape(w, s);
    }
    for (int fp8 = 0; fp8 < 2; fp8++) {
        struct shape s = plain(w);
        s.kv_dtype = fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, s.head_dim = 128;
        s.memory_len = 90, s.sink_len = 7, s.block_tokens = fp8 ? 1 : 4;
        check_shape(w, s);
        s.block_tokens = 128, s.sink_len = 70, s.window = 20;
        check_shape(w, s);
        s.window = 0, s.alibi = true;
        check_shape(w, s);
    }
}

static void windows(const struct twin *w) {
    struct shape s = plain(w);
    s.n_heads = 4, s.n_kv_heads = 4, s.head_dim = 32;
    s.memory_len = 32, s.block_tokens = 8;
    check_shape(w, s);
    s.sink_len = 7, s.block_tokens = 1;
    check_shape(w, s);
    s.block_tokens = 128, s.memory_len = 90, s.sink_len = 70;
    check_shape(w, s);
    s.window = 20; // the model's own, stricter
    check_shape(w, s);
    s.window = 0, s.alibi = true;
    check_shape(w, s);
    s.head_dim = 128, s.block_tokens = 64, s.memory_len = 150, s.sink_len = 4;
    check_shape(w, s);
    s.memory_len = 1, s.sink_len = 0, s.block_tokens = 2, s.alibi = false; // sees itself only
    check_shape(w, s);
}

// Scores that are bent and heads with a sink: one row and many, shared long rows, all widths, 8 bits.
static void capped(const struct twin *w) {
    static const int32_t sizes[] = {64, 128, 256, 80, 40, 512};
    for (int i = 0; i < 12; i++) {
        struct shape s = plain(w);
        s.head_dim = sizes[i % 6], s.block_tokens = 64, s.memory_len = i % 2 ? 300 : 150;
        s.n_heads = 8, s.n_kv_heads = i % 4 ? 2 : 1, s.sink_len = i % 3;
        s.soft_cap = i % 3 != 1 ? 0.5f : 0, s.sink_logits = i % 3 != 2;
        s.window = i % 5 ? 0 : 70, s.alibi = i == 9;
        if (i > 7 && sizes[i % 6] % 16 == 0) s.kv_dtype = i % 2 ? DTYPE_I8 : DTYPE_F8_E4M3;
        check_shape(w, s);
    }
    struct shape s = plain(w);
    s.n_heads = 8, s.head_dim = 128, s.block_tokens = 64, s.n_layers = 1, s.layer = 0;
    s.memory_len = 4000, s.slack = 400, s.soft_cap = 2, s.sink_logits = true;
    const int32_t lens[] = {test_scaled(2000)};
    struct world o;
    world_init(&o, w, &s, lens, 1);
    while (o.seqs[0].done < lens[0] - 24) {
        const int32_t left = lens[0] - 24 - o.seqs[0].done;
        world_step(&o, (int32_t[]){left < 400 ? left : 400, 0, 0, 0});
    }
    world_step(&o, (int32_t[]){20, 0, 0, 0});
    for (int j = 0; j < 4; j++) world_step(&o, (int32_t[]){1, 0, 0, 0});
    world_release(&o);
}

static void head_sizes(const struct twin *w) {
    static const int32_t sizes[] = {1, 3, 8, 17, 40, 64, 80, 96, 128, 256, 300, 512};
    for (int i = 0; i < 12; i++) {
        struct shape s = plain(w);
        s.head_dim = sizes[i];
        s.n_heads = i % 2 ? 2 : 5, s.n_kv_heads = 1;
        s.memory_len = i % 3 ? 60 : 500, s.sink_len = 4, s.block_tokens = i % 2 ? 64 : 16;
        check_shape(w, s);
    }
    struct shape many = plain(w); // more heads in a group than any kernel's tile
    many.n_heads = 61, many.n_kv_heads = 1, many.head_dim = 32, many.memory_len = 200;
    check_shape(w, many);
}

// Long contexts: keys are split between blocks of a launch.
static void long_context(const struct twin *w) {
    struct shape s = plain(w);
    s.n_heads = 4, s.n_kv_heads = 2, s.block_tokens = 64, s.n_layers = 1, s.layer = 0;
    s.slack = 400;
    for (int i = 0; i < 5; i++) {
        const int32_t lens[] = {test_scaled(2600), test_scaled(900)}, most = test_scaled(400);
        const int32_t last = lens[0] - 50;
        struct world o;
        s.memory_len = i == 0 ? 4000 : 1300;
        s.sink_len = i == 2 ? 600 : 4;
        s.kv_dtype = i < 3 ? w->t : i == 3 ? DTYPE_I8 : DTYPE_F8_E4M3;
        world_init(&o, w, &s, lens, 2);
        while (o.seqs[0].done < last) {
            int32_t left = last - o.seqs[0].done, chunk = left < most ? left : most;
            world_step(&o, (int32_t[]){chunk, o.seqs[0].done < 2 * most ? most / 4 : 0, 0, 0});
        }
        // The few rows of a later turn, which several blocks share.
        for (int j = 0; j < 2; j++) world_step(&o, (int32_t[]){20, 7, 0, 0});
        for (int j = 0; j < 10; j++) world_step(&o, (int32_t[]){1, 1, 0, 0});
        world_release(&o);
    }
}

// Single rows with so many heads that every block of a launch takes an equal share of all keys, so shares
// end anywhere within a head's keys. The last case has the longest parts that the memory must hold.
static void equal_shares(const struct twin *w) {
    if (w->t == DTYPE_F32 || strstr(w->gpu->description, "deterministic")) return; // other kernels
    struct shape s = plain(w);
    s.n_heads = s.n_kv_heads = 132, s.block_tokens = 64;
    s.n_layers = 1, s.layer = 0, s.memory_len = 760, s.sink_len = 4, s.slack = 120;
    const enum dtype kept[] = {w->t, DTYPE_I8, DTYPE_F8_E4M3, DTYPE_I8};
    static const int32_t all[2][4] = {{860, 740, 620, 757}, {170, 150, 165, 155}};
    for (int i = 0; i < 4; i++) {
        const int32_t *most = all[i == 3];
        const int32_t lens[] = {test_scaled(most[0]), test_scaled(most[1]), test_scaled(most[2]),
                                test_scaled(most[3])};
        s.head_dim = i == 3 ? 144 : 16;
        struct world o;
        s.kv_dtype = kept[i];
        world_init(&o, w, &s, lens, 4);
        o.s.window = 1; // until then only the cache matters
        for (bool more = true; more;) {
            int32_t rows[4];
            more = false;
            for (int j = 0; j < 4; j++) {
                int32_t left = lens[j] - 3 - o.seqs[j].done;
                rows[j] = left < 120 ? left : 120;
                more |= left > 0;
            }
            world_step(&o, rows);
        }
        o.s.window = 0;
        for (int j = 0; j < 3; j++) world_step(&o, (int32_t[]){1, 1, 1, 1});
        world_release(&o);
    }
}

static struct kv_store store(enum dtype t, int32_t layers, int32_t kv_heads, int32_t dim,
                             int32_t block_tokens, int32_t n_blocks) {
    return (struct kv_store){.dtype = t,
                             .n_layers = layers,
                             .n_kv_heads = kv_heads,
                             .head_dim = dim,
                             .block_tokens = block_tokens,
                             .n_blocks = n_blocks};
}

// qkv_finish has the bits of the ops that it replaces.
static void finish(const struct twin *w) {
    enum { N = 7, HEADS = 6, KV = 2, DIM = 64, ROT = 32, WIDTH = (HEADS + 2 * KV) * DIM };
    int32_t blocks[] = {1, 0}, positions[N], ids[N] = {0};
    float freq[ROT / 2];
    for (int i = 0; i < N; i++) positions[i] = i + 3;
    for (int i = 0; i < ROT / 2; i++) freq[i] = powf(10000, -2.0f * (float)i / ROT);
    const struct kv_map map = {blocks, 0, 2, 8};
    struct batch_seq seq = {.n_rows = N, .memory_len = 64, .maps = &map};
    struct batch b = {.n_rows = N, .n_seqs = 1, .ids = ids, .positions = positions, .seqs = &seq};
    const struct batch *run;
    struct backend *be = w->gpu;
    float *x = twin_floats(w, N * WIDTH), *qw = op_floats(DIM), *kw = op_floats(DIM);
    float *gf = twin_up_bytes(w, freq, sizeof freq), *ga = twin_alloc(w, N * ROT * 4);
    float *gq = twin_up_bytes(w, qw, DIM * 4), *gk = twin_up_bytes(w, kw, DIM * 4);
    assert_int_equal(be->ops->step_begin(be, &b, &run), 0);
    be->ops->rope_angles(be, ga, run, gf, NULL, ROT, 1);
    const struct qkv_shape shape = {HEADS, KV, DIM};
    for (int style = 0; style < 2; style++)
        for (int norm = 0; norm < 2; norm++) {
            enum dtype cached = style == norm ? w->t : norm ? DTYPE_I8 : DTYPE_F8_E4M3;
            struct kv_store kv[2];
            uint8_t *bytes[2];
            void *q[2];
            for (int i = 0; i < 2; i++) {
                kv[i] = store(cached, 3, KV, DIM, 8, 2);
                assert_int_equal(be->ops->kv_store_init(be, &kv[i], NULL), 0);
                bytes[i] = calloc(2, kv[i].block_bytes);
                be->ops->mem_write(be, kv[i].data, bytes[i], 2 * kv[i].block_bytes);
                q[i] = twin_up(w, x, N * WIDTH);
            }
            const struct qkv_args qa = {.style = (enum rope_style)style,
                                        .rot_dim = ROT,
                                        .cos_sin = ga,
                                        .q_weight = norm ? gq : NULL,
                                        .k_weight = norm ? gk : NULL,
                                        .v_weight = style && norm ? gk : NULL,
                                        .eps = 1e-6f,
                                        .query_beta = style ? 0.1f : 0,
                                        .query_length = 4};
            if (norm) be->ops->qk_norm(be, q[0], N, &shape, &qa);
            be->ops->rope(be, q[0], N, &shape, &qa);
            be->ops->kv_write(be, &kv[0], 2, q[0], run, HEADS);
            be->ops->qkv_finish(be, q[1], &kv[1], run, 2, HEADS, &qa);
            float *a = twin_down(w, q[0], N * WIDTH, w->t),
                  *c = twin_down(w, q[1], N * WIDTH, w->t);
            op_same_bits(a, c, N * WIDTH, "qkv_finish");
            for (int i = 0; i < 2; i++)
                be->ops->mem_read(be, bytes[i], kv[i].data, 2 * kv[i].block_bytes);
            assert_memory_equal(bytes[0], bytes[1], 2 * kv[0].block_bytes);
            for (int i = 0; i < 2; i++) {
                be->ops->kv_store_release(be, &kv[i]);
                twin_free(w, q[i]);
                free(bytes[i]);
            }
            free(a), free(c);
        }
    be->ops->step_end(be);
    twin_free(w, gf), twin_free(w, ga), twin_free(w, gq), twin_free(w, gk);
    free(x), free(qw), free(kw);
}

// qkv_attention gives the result of qkv_finish and attention, and leaves the same cache: launched op by
// op, while recording a graph, and from the graph, with padding rows.
enum { OWN_MOST = 55, OWN_TOKENS = 16, OWN_RING = 26, OWN_WHOLE = 128 };
struct own {
    const struct twin *w;
    int32_t rows, padded; // of a step; of its recording
    int32_t heads, kv_heads, dim, rot, qkv_width;
    float *x, *freq_up, *angles, *qw, *kw;
    struct batch_seq seqs[OWN_MOST];
    struct batch batch;
    struct kv_store kv[2]; // [0] by the two ops, [1] by the one
    uint8_t *filled, *bytes[2];
    void *qkv[2], *out[2];
};

static void own_step(struct own *o, const struct qkv_args *q) {
    struct backend *be = o->w->gpu;
    const struct attention_args args = {.layer = 1,
                                        .n_heads = o->heads,
                                        .n_kv_heads = o->kv_heads,
                                        .head_dim = o->dim,
                                        .scale = 0.125f};
    const int32_t width = o->heads * o->dim;
    const int64_t n_x = (int64_t)o->padded * o->qkv_width;
    const size_t size = (size_t)o->kv[0].n_blocks * o->kv[0].block_bytes;
    const struct batch *run;
    float *y[2];
    for (int i = 0; i < 2; i++) {
        uint8_t *x = malloc((size_t)n_x * dtype_size(o->w->t));
        for (int64_t e = 0; e < n_x; e++) op_write(o->w->t, x, e, o->x[e]);
        be->ops->mem_write(be, o->qkv[i], x, (size_t)n_x * dtype_size(o->w->t));
        be->ops->mem_write(be, o->kv[i].data, o->filled, size);
        memset(x, 0xff, (size_t)(o->padded * width) * dtype_size(o->w->t));
        be->ops->mem_write(be, o->out[i], x, (size_t)(o->padded * width) * dtype_size(o->w->t));
        free(x);
    }
    int rc = be->ops->step_begin(be, &o->batch, &run);
    if (rc != STEP_REPLAYED) {
        assert_int_equal(rc, 0);
        assert_int_equal(run->n_rows, o->padded);
        be->ops->rope_angles(be, o->angles, run, o->freq_up, NULL, o->rot, 1);
        be->ops->qkv_finish(be, o->qkv[0], &o->kv[0], run, 1, o->heads, q);
        be->ops->attention(be, o->out[0], o->qkv[0], &o->kv[0], run, &args);
        rc = be->ops->qkv_attention(be, o->out[1], o->qkv[1], &o->kv[1], run, &args, q);
        assert_int_equal(rc, o->heads / o->kv_heads > 8 ? OP_DECLINED : 0);
        assert_int_equal(be->ops->step_launch(be), 0);
    }
    for (int i = 0; i < 2; i++) {
        y[i] = twin_down(o->w, o->out[i], o->rows * width, o->w->t);
        be->ops->mem_read(be, o->bytes[i], o->kv[i].data, size);
    }
    assert_int_equal(be->ops->step_end(be), 0);
    if (o->heads / o->kv_heads <= 8) {
        // With up to 8 rows, a row that sees few keys has one block in both kernels. More keys are
        // split in another way by each kernel: a sum in another order, rounded to T.
        for (int32_t r = 0; r < o->rows; r++) {
            const float *a = y[0] + r * width, *c = y[1] + r * width;
            if (o->rows <= 8 && o->batch.positions[r] < OWN_WHOLE) {
                op_same_bits(a, c, width, "qkv_attention");
                continue;
            }
            for (int32_t i = 0; i < width; i++)
                op_near(c[i], a[i], 2.1 * twin_unit(o->w->t) * fabs((double)a[i]) + 3e-5,
                        "qkv_attention, split", i);
        }
        assert_memory_equal(o->bytes[0], o->bytes[1], size);
    }
    free(y[0]), free(y[1]);
}

static void own_shape(const struct twin *w, int32_t rows, int32_t padded, int32_t heads,
                      int32_t kv_heads, int32_t dim, int32_t rot) {
    static const int32_t some[] = {5, 16, 47, 255, 130, 0, 239}, ids[OWN_MOST] = {0};
    int32_t blocks[OWN_MOST * OWN_RING], positions[OWN_MOST], logit_rows[OWN_MOST];
    struct kv_map maps[OWN_MOST];
    float freq[128];
    struct backend *be = w->gpu;
    struct own o = {.w = w,
                    .rows = rows,
                    .padded = padded,
                    .heads = heads,
                    .kv_heads = kv_heads,
                    .dim = dim,
                    .rot = rot,
                    .qkv_width = (heads + 2 * kv_heads) * dim};
    for (int i = 0; i < rot / 2; i++) freq[i] = powf(10000, -2.0f * (float)i / (float)rot);
    for (int i = 0; i < rows * OWN_RING; i++) blocks[i] = i * 37 % (rows * OWN_RING);
    for (int i = 0; i < rows; i++)
        logit_rows[i] = i, positions[i] = i + 1 < rows ? some[i % 7] : 400;
    for (int i = 0; i < rows; i++)
        maps[i] = (struct kv_map){blocks + i * OWN_RING, 0, OWN_RING, OWN_TOKENS};
    for (int i = 0; i < rows; i++)
        o.seqs[i] = (struct batch_seq){i, 1, OWN_RING * OWN_TOKENS, 0, &maps[i], false};
    o.batch = (struct batch){.n_rows = rows,
                             .n_seqs = rows,
                             .n_logits = rows,
                             .ids = ids,
                             .positions = positions,
                             .logit_rows = logit_rows,
                             .seqs = o.seqs};
    o.x = twin_floats(w, padded * o.qkv_width);
    float *weight = op_floats(dim);
    o.qw = twin_up_bytes(w, weight, (size_t)dim * 4);
    o.kw = twin_up_bytes(w, weight, (size_t)dim * 4);
    o.freq_up = twin_up_bytes(w, freq, sizeof freq);
    o.angles = twin_alloc(w, (size_t)(padded * rot) * 4);
    for (int i = 0; i < 2; i++) {
        o.kv[i] = store(w->t, 2, kv_heads, dim, OWN_TOKENS, rows * OWN_RING);
        assert_int_equal(be->ops->kv_store_init(be, &o.kv[i], NULL), 0);
        o.bytes[i] = malloc((size_t)o.kv[i].n_blocks * o.kv[i].block_bytes);
        o.qkv[i] = twin_up(w, NULL, padded * o.qkv_width);
        o.out[i] = twin_up(w, NULL, padded * heads * dim);
    }
    const size_t size = (size_t)o.kv[0].n_blocks * o.kv[0].block_bytes;
    o.filled = malloc(size);
    for (size_t e = 0; e < size / dtype_size(w->t); e++)
        op_write(w->t, o.filled, (int64_t)e, (float)(e * 37 % 101) * 0.02f - 1);
    for (int form = 0; form < 8; form++) {
        const struct qkv_args q = {.style = (enum rope_style)(form & 1),
                                   .rot_dim = form & 2 ? rot : 0,
                                   .cos_sin = o.angles,
                                   .q_weight = form & 4 ? o.qw : NULL,
                                   .k_weight = form & 4 ? o.kw : NULL,
                                   .v_weight = form == 5 ? o.kw : NULL,
                                   .eps = 1e-6f,
                                   .query_beta = form & 1 ? 0.1f : 0,
                                   .query_length = 50};
        const struct step_limits l = {.max_rows = 64,
                                      .max_seqs = 64,
                                      .max_map = 1024,
                                      .n_heads = heads,
                                      .n_kv_heads = kv_heads,
                                      .head_dim = dim,
                                      .vocab = 100};
        assert_int_equal(be->ops->step_reserve(be, &l, NULL), 0); // forgets what was recorded
        for (int times = 0; times < 3; times++) own_step(&o, &q);
    }
    for (int i = 0; i < 2; i++) {
        be->ops->kv_store_release(be, &o.kv[i]);
        twin_free(w, o.qkv[i]), twin_free(w, o.out[i]);
        free(o.bytes[i]);
    }
    twin_free(w, o.qw), twin_free(w, o.kw), twin_free(w, o.freq_up), twin_free(w, o.angles);
    free(o.x), free(weight), free(o.filled);
}

static void finish_and_attend(const struct twin *w) {
    if (w->t == DTYPE_F32 || strstr(w->gpu->description, "deterministic")) return; // declined
    own_shape(w, 5, 6, 6, 2, 64, 32);
    own_shape(w, 5, 6, 4, 4, 40, 24);
    own_shape(w, 5, 6, 8, 1, 128, 128);
    own_shape(w, 5, 6, 2, 1, 160, 64);
    own_shape(w, 5, 6, 4, 1, 256, 256);
    own_shape(w, 5, 6, 18, 2, 64, 32); // declined
    own_shape(w, 11, 12, 8, 2, 128, 128);
    own_shape(w, 33, 40, 6, 2, 64, 32);
    own_shape(w, 55, 56, 8, 2, 128, 128); // few kv heads: all blocks run at once
}

static void block_copy(const struct twin *w) {
    struct kv_store kv = store(DTYPE_F16, 2, 3, 5, 4, 3);
    struct backend *be = w->gpu;
    size_t bytes = be->ops->kv_block_bytes(be, &kv);
    assert_true(bytes >= 2 * 3 * 5 * 4 * 2 * 2);
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), 0);
    assert_int_equal(kv.block_bytes, bytes);
    uint8_t *host = malloc(3 * bytes), *back = malloc(3 * bytes);
    for (size_t i = 0; i < 3 * bytes; i++) host[i] = (uint8_t)(i * 7);
    be->ops->mem_write(be, kv.data, host, 3 * bytes);
    assert_int_equal(be->ops->kv_block_copy(be, &kv, 2, 0), 0);
    be->ops->mem_read(be, back, kv.data, 3 * bytes);
    assert_memory_equal(back + 2 * bytes, host, bytes);
    assert_int_equal(be->ops->kv_block_copy(be, &kv, 3, 0), E_INVAL);
    assert_int_equal(be->ops->kv_block_copy(be, &kv, 0, -1), E_INVAL);
    be->ops->kv_store_release(be, &kv);
    kv.dtype = DTYPE_I32;
    assert_int_equal(be->ops->kv_store_init(be, &kv, NULL), E_UNSUPPORTED);
    free(host), free(back);
}

// A row whose position has no block is refused before anything is launched.
static void unmapped(const struct twin *w) {
    int32_t blocks[] = {-1, 0}, positions[] = {3};
    const struct kv_map map = {blocks, 0, 2, 8};
    struct batch_seq seq = {.n_rows = 1, .memory_len = 64, .maps = &map};
    struct batch b = {.n_rows = 1, .n_seqs = 1, .positions = positions, .seqs = &seq};
    const struct batch *run;
    assert_int_equal(w->gpu->ops->step_begin(w->gpu, &b, &run), E_INVAL);
}

static void test_shapes(void **state) {
    twin_each(shapes);
}
static void test_eight_bits(void **state) {
    twin_each(eight_bits);
}
static void test_windows(void **state) {
    twin_each(windows);
}
static void test_head_sizes(void **state) {
    twin_each(head_sizes);
}
static void test_capped(void **state) {
    twin_each(capped);
}
static void test_equal_shares(void **state) {
    twin_each(equal_shares);
}
static void test_long_context(void **state) {
    twin_each(long_context);
}
static void test_finish(void **state) {
    twin_each(finish);
}
static void test_finish_and_attend(void **state) {
    twin_each(finish_and_attend);
}
static void test_block_copy(void **state) {
    twin_each(block_copy);
}
static void test_unmapped(void **state) {
    twin_each(unmapped);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),       cmocka_unit_test(test_windows),
        cmocka_unit_test(test_equal_shares), cmocka_unit_test(test_capped),
        cmocka_unit_test(test_head_sizes),   cmocka_unit_test(test_long_context),
        cmocka_unit_test(test_finish),       cmocka_unit_test(test_finish_and_attend),
        cmocka_unit_test(test_block_copy),   cmocka_unit_test(test_unmapped),
        cmocka_unit_test(test_eight_bits),
    };
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY")); // under a sanitizer one test takes long
    return cmocka_run_group_tests(tests, NULL, NULL);
}
