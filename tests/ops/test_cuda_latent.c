// CUDA's attention of wide vectors against its CPU twins: over latents and of heads of more than 256 (prompts, single rows,
// windows, sinks, all cache types, shapes for the fast kernel and for the simple one); latent attention as a whole. With `deterministic`, a row's bits must not depend on the chunks or on the other rows.
#include "tests/ops/attention_twin.h"
#include "tests/ops/latent_world.h"

// --- attention -----------------------------------------------------------------------------------

static struct shape plain(const struct twin *w) {
    return (struct shape){.kv_dtype = w->t,
                          .n_heads = 6,
                          .n_kv_heads = 1,
                          .head_dim = 96,
                          .block_tokens = 16,
                          .n_layers = 2,
                          .layer = 1,
                          .memory_len = 1024,
                          .latent = true};
}

// Heads that fill a tile of lines, more than one, and a few of one; sizes below, at and between the instances'.
static void shapes(const struct twin *w) {
    static const struct {
        int32_t heads, dim;
    } sizes[] = {{4, 576}, {16, 64}, {20, 256}, {5, 40}, {33, 288}, {1, 24}, {3, 17}, {2, 640}};
    for (int i = 0; i < 8; i++) {
        struct shape s = plain(w);
        s.n_heads = sizes[i].heads, s.head_dim = sizes[i].dim;
        s.memory_len = i % 2 ? 60 : 500, s.sink_len = i % 3 ? 4 : 0,
        s.block_tokens = i % 2 ? 64 : 16;
        check_shape(w, s);
    }
}

// Groups of one to many heads, sizes at and between the multiples of a word, caches of 16 and of 8 bits.
static void wide_heads(const struct twin *w) {
    static const struct {
        int32_t heads, kv_heads, dim;
    } sizes[] = {{8, 2, 512}, {3, 3, 264}, {20, 1, 512}, {34, 2, 320}, {12, 4, 400}, {2, 1, 261}};
    const enum dtype types[] = {w->t, DTYPE_I8, w->t, DTYPE_F8_E4M3, w->t, w->t};
    for (int i = 0; i < 12; i++) {
        struct shape s = plain(w);
        s.latent = false;
        s.n_heads = sizes[i % 6].heads, s.n_kv_heads = sizes[i % 6].kv_heads;
        s.head_dim = sizes[i % 6].dim, s.kv_dtype = types[i % 6];
        s.memory_len = i < 6 ? 500 : 60, s.sink_len = i % 3 ? 4 : 0;
        s.block_tokens = i % 2 ? 64 : 16;
        check_shape(w, s);
    }
}

static void cached(const struct twin *w) {
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_I8, DTYPE_F8_E4M3};
    for (int t = 0; t < 5; t++) {
        struct shape s = plain(w);
        s.kv_dtype = types[t];
        s.n_heads = 18, s.head_dim = 80;
        s.memory_len = 300;
        check_shape(w, s);
        s.memory_len = 40, s.sink_len = 4, s.block_tokens = 8; // wraps, with sinks
        check_shape(w, s);
    }
    for (int fp8 = 0; fp8 < 2; fp8++) {
        struct shape s = plain(w);
        s.kv_dtype = fp8 ? DTYPE_F8_E4M3 : DTYPE_I8;
        s.n_heads = fp8 ? 16 : 20, s.head_dim = 576, s.memory_len = 150, s.block_tokens = 64;
        check_shape(w, s);
        s.head_dim = 24, s.n_heads = 3; // the simple kernel's
        check_shape(w, s);
    }
}

static void windows(const struct twin *w) {
    struct shape s = plain(w);
    s.memory_len = 32, s.block_tokens = 8;
    check_shape(w, s);
    s.sink_len = 7, s.block_tokens = 1;
    check_shape(w, s);
    s.block_tokens = 128, s.memory_len = 190, s.sink_len = 70;
    check_shape(w, s);
    s.window = 20; // the model's own, stricter
    check_shape(w, s);
    s.memory_len = 1, s.sink_len = 0, s.block_tokens = 2, s.window = 0; // sees itself only
    check_shape(w, s);
}

// What only the simple kernel has.
static void capped(const struct twin *w) {
    for (int i = 0; i < 3; i++) {
        struct shape s = plain(w);
        s.memory_len = 90, s.soft_cap = i == 0 ? 0.5f : 0, s.sink_logits = i == 1, s.alibi = i == 2;
        check_shape(w, s);
    }
}

// Keys of a row, and of few rows of a turn, are split between blocks.
static void long_context(const struct twin *w) {
    struct shape s = plain(w);
    s.block_tokens = 64, s.n_layers = 1, s.layer = 0, s.slack = 400;
    for (int i = 0; i < 4; i++) {
        const int32_t lens[] = {test_scaled(1700), test_scaled(700)}, most = test_scaled(400);
        const int32_t last = lens[0] - 50;
        struct world o;
        s.n_heads = i ? 5 : 20, s.head_dim = i ? 64 : 576;
        s.memory_len = i < 2 ? 4000 : 900;
        s.sink_len = i == 2 ? 300 : 4;
        s.kv_dtype = i < 3 ? w->t : DTYPE_I8;
        world_init(&o, w, &s, lens, 2);
        while (o.seqs[0].done < last) {
            const int32_t left = last - o.seqs[0].done, chunk = left < most ? left : most;
            world_step(&o, (int32_t[]){chunk, o.seqs[0].done < 2 * most ? most / 4 : 0, 0, 0});
        }
        for (int j = 0; j < 2; j++) world_step(&o, (int32_t[]){20, 7, 0, 0});
        for (int j = 0; j < 8; j++) world_step(&o, (int32_t[]){1, 1, 0, 0});
        world_release(&o);
    }
}

// --- from queries and latents to results ----------------------------------------------------------

struct latent_twin {
    const struct twin *w;
    struct latents s;
    struct kv_store cpu_kv, gpu_kv;
    struct latent_args cpu, gpu;
    float *inv_freq;
    void *gpu_freq;
    struct seq seqs[MAX_SEQS];
};

static void latent_step(struct latent_twin *o, const int32_t rows[MAX_SEQS]) {
    const struct twin *w = o->w;
    const struct latents *s = &o->s;
    const struct shape shape = latents_shape(s);
    const struct batch *run;
    struct step t;
    struct err err = {0};
    int64_t begin;
    void *work;
    step_init(&t, &shape, o->seqs, rows);
    const int32_t n = t.batch.n_rows;
    const int64_t angles = (int64_t)n * s->rope, width = latents_out_width(s);
    float *in = latents_rows(s, &o->cpu, &t, &begin), *turn = op_floats(angles),
          *out = op_floats(n * width);
    const int64_t end = begin + (n - 1) * o->cpu.latents_row + latents_dim(s);
    void *gin = twin_up(w, in, end), *gout = twin_up(w, NULL, n * width);
    void *gturn = twin_alloc(w, (size_t)angles * sizeof(float));
    void *gwork = twin_alloc(w, w->gpu->ops->latent_bytes(w->gpu, n, &o->gpu));
    assert_int_equal(
        w->cpu->ops->mem_alloc(w->cpu, w->cpu->ops->latent_bytes(w->cpu, n, &o->cpu), &work, &err),
        0);
    o->cpu.q = in, o->cpu.latents = in + begin, o->cpu.cos_sin = turn;
    o->gpu.q = gin, o->gpu.cos_sin = gturn;
    o->gpu.latents = (char *)gin + (size_t)begin * dtype_size(w->t);
    assert_int_equal(
        w->cpu->ops->rope_angles(w->cpu, turn, &t.batch, o->inv_freq, NULL, s->rope, 1), 0);
    assert_int_equal(
        w->cpu->ops->latent_attention(w->cpu, out, &o->cpu_kv, &t.batch, &o->cpu, work), 0);
    assert_int_equal(w->gpu->ops->step_begin(w->gpu, &t.batch, &run), 0);
    assert_int_equal(w->gpu->ops->rope_angles(w->gpu, gturn, run, o->gpu_freq, NULL, s->rope, 1),
                     0);
    assert_int_equal(w->gpu->ops->latent_attention(w->gpu, gout, &o->gpu_kv, run, &o->gpu, gwork),
                     0);
    assert_int_equal(w->gpu->ops->step_launch(w->gpu), 0);
    char what[120];
    snprintf(what, sizeof what, "latents of %d heads, %d + %d, %d rows, %s/%s", s->heads, s->rank,
             s->rope, n, dtype_name(w->t), dtype_name(s->kv_dtype));
    // Queries in the latents' space, cached vectors and what attention gives are rounded to T each, so errors go with the
    // largest results. With 8 bits a vector that T has rounded is rounded again: one number in thirty then has another
    // neighbour than on the CPU.
    const double rounding = dtype_size(s->kv_dtype) == 1 ? 0.1 : 6 * twin_unit(w->t) + 3e-5;
    for (int64_t at = 0; at < n * width; at += s->v_dim) { // a head's results
        double largest = 0;
        for (int32_t i = 0; i < s->v_dim; i++) largest = fmax(largest, fabs((double)out[at + i]));
        twin_compare(w, (char *)gout + (size_t)at * dtype_size(w->t), w->t, out + at, s->v_dim, 0,
                     rounding * largest, what);
    }
    float *got = twin_down(w, gout, n * width, w->t);
    latents_take(s, &t, o->seqs, rows, got);
    assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
    w->cpu->ops->mem_free(w->cpu, work);
    twin_free(w, gin), twin_free(w, gout), twin_free(w, gturn), twin_free(w, gwork);
    free(in), free(turn), free(out), free(got);
}

static void check_latents(const struct twin *w, const struct latents *s) {
    const int32_t lens[] = {test_scaled(150) + 8, 40, 9};
    struct latent_twin o = {.w = w, .s = *s};
    const struct shape shape = latents_shape(s);
    float *k = twin_floats(w, (int64_t)s->heads * s->rank * s->nope);
    float *v = twin_floats(w, (int64_t)s->heads * s->v_dim * s->rank), *norm = op_floats(s->rank);
    const size_t heads = (size_t)s->heads;
    struct weight *of[4];
    struct err err = {0};
    for (int i = 0; i < 4; i++) of[i] = calloc(heads, sizeof **of);
    for (int64_t i = 0; i < (int64_t)s->heads * s->rank * s->nope; i++)
        k[i] = twin_round(w->t, 0.05f * k[i]); // scores of a usual size
    latents_weights(w->cpu, s, k, v, of[0], of[1]);
    latents_weights(w->gpu, s, k, v, of[2], of[3]);
    o.cpu = latents_args(s, of[0], of[1]), o.gpu = latents_args(s, of[2], of[3]);
    void *gpu_norm = twin_up_bytes(w, norm, (size_t)s->rank * sizeof *norm);
    o.cpu.norm = norm, o.gpu.norm = gpu_norm;
    o.inv_freq = op_floats(s->rope / 2);
    o.gpu_freq = twin_up_bytes(w, o.inv_freq, (size_t)s->rope / 2 * sizeof(float));
    const int32_t n_blocks = seqs_init(o.seqs, 3, &shape, lens);
    for (int i = 0; i < 3; i++) o.seqs[i].qkv = twin_floats(w, lens[i] * row_width(&shape));
    o.cpu_kv = o.gpu_kv = store_of(&shape, n_blocks);
    assert_int_equal(w->cpu->ops->kv_store_init(w->cpu, &o.cpu_kv, &err), 0);
    if (w->gpu->ops->kv_store_init(w->gpu, &o.gpu_kv, &err) < 0) fail_msg("%s", err.text);
    poison(w, &o.cpu_kv, &o.gpu_kv);
    const struct step_limits l = {.max_rows = 512,
                                  .max_seqs = MAX_SEQS,
                                  .max_map = n_blocks + 8,
                                  .n_heads = s->heads,
                                  .n_kv_heads = 1,
                                  .head_dim = latents_dim(s),
                                  .vocab = 100};
    if (w->gpu->ops->step_reserve(w->gpu, &l, &err) < 0) fail_msg("%s", err.text);
    latent_step(&o, (int32_t[]){1, 0, 0, 0}); // one row
    latent_step(&o, (int32_t[]){1, 1, 1, 0});
    latent_step(&o, (int32_t[]){test_scaled(150), 30, 3, 0}); // tiles
    latent_step(&o, (int32_t[]){1, 5, 0, 0});
    for (int i = 0; i < 3; i++) latent_step(&o, (int32_t[]){1, 1, i > 0, 0}); // splits, few rows
    latents_release(w->cpu, s, of[0], of[1]);
    latents_release(w->gpu, s, of[2], of[3]);
    w->cpu->ops->kv_store_release(w->cpu, &o.cpu_kv);
    w->gpu->ops->kv_store_release(w->gpu, &o.gpu_kv);
    twin_free(w, gpu_norm), twin_free(w, o.gpu_freq);
    seqs_release(o.seqs);
    for (int i = 0; i < 4; i++) free(of[i]);
    free(k), free(v), free(norm), free(o.inv_freq);
}

static void latents(const struct twin *w) {
    const struct latents all[] = {
        {20, 192, 64, 512, 256, 0, true, w->t, ROPE_INTERLEAVED, 1000},
        {16, 128, 64, 512, 128, 0, true, DTYPE_F8_E4M3, ROPE_HALF, 1000},
        {5, 24, 16, 64, 40, 8, true, DTYPE_I8, ROPE_INTERLEAVED, 1000},
        {3, 16, 8, 40, 33, -1, false, w->t, ROPE_HALF, 20}, // a window; 40 columns fill no step
        {5, 7, 6, 33, 9, 3, true, w->t, ROPE_INTERLEAVED, 1000}, // no whole words
        {130, 8, 8, 16, 16, 0, true, w->t, ROPE_HALF, 1000},     // two launches
    };
    op_seed(5);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_latents(w, &all[i]);
}

static void test_shapes(void **state) {
    twin_each(shapes);
}
static void test_wide_heads(void **state) {
    twin_each(wide_heads);
}
static void test_cached(void **state) {
    twin_each(cached);
}
static void test_windows(void **state) {
    twin_each(windows);
}
static void test_capped(void **state) {
    twin_each(capped);
}
static void test_long_context(void **state) {
    twin_each(long_context);
}
static void test_latents(void **state) {
    twin_each(latents);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_latents),      cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_wide_heads),   cmocka_unit_test(test_cached),
        cmocka_unit_test(test_windows),      cmocka_unit_test(test_capped),
        cmocka_unit_test(test_long_context),
    };
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY")); // under a sanitizer one test takes long
    return cmocka_run_group_tests(tests, NULL, NULL);
}
