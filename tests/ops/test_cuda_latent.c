// CUDA's attention of wide vectors against its CPU twins: over latents and of heads of more than 256 (prompts, single rows,
// windows, sinks, all cache types, shapes for the fast kernel and for the simple one), a matrix for each head, copies of parts
// of rows. With `deterministic`, a row's bits must not depend on the chunks or on the other rows.
#include "tests/ops/attention_twin.h"

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

// --- a matrix for each head ----------------------------------------------------------------------

struct heads_shape {
    int32_t heads, rows, cols, gap; // between parts of rows, elements
    bool turned;
};

static void check_heads(const struct twin *w, const struct heads_shape *s, int32_t n) {
    const int64_t x_row = s->heads * (s->cols + s->gap), y_row = s->heads * s->rows + s->gap;
    struct weight *cpu = calloc((size_t)s->heads, sizeof *cpu),
                  *gpu = calloc((size_t)s->heads, sizeof *gpu);
    struct err err = {0};
    for (int32_t h = 0; h < s->heads; h++) {
        float *values = twin_floats(w, (int64_t)s->rows * s->cols);
        const struct tensor_view view = {.data = values,
                                         .dtype = DTYPE_F32,
                                         .rows = s->rows,
                                         .cols = s->cols,
                                         .row_stride = s->turned ? 1 : s->cols,
                                         .col_stride = s->turned ? s->rows : 1};
        assert_int_equal(w->cpu->ops->weight_init(w->cpu, &cpu[h], &view, 1, &err), 0);
        assert_int_equal(w->gpu->ops->weight_init(w->gpu, &gpu[h], &view, 1, &err), 0);
        free(values);
    }
    struct heads_args a = {.w = cpu,
                           .n_heads = s->heads,
                           .x_row = x_row,
                           .x_head = s->cols + s->gap,
                           .y_row = y_row,
                           .y_head = s->rows};
    float *x = twin_floats(w, n * x_row), *y = twin_floats(w, n * y_row);
    void *gx = twin_up(w, x, n * x_row), *gy = twin_up(w, y, n * y_row), *work;
    const size_t bytes = w->cpu->ops->linear_heads_bytes(w->cpu, n, &a);
    assert_int_equal(w->cpu->ops->mem_alloc(w->cpu, bytes, &work, &err), 0);
    assert_int_equal(w->cpu->ops->linear_heads(w->cpu, y, x, n, &a, work), 0);
    a.w = gpu;
    void *gwork = twin_alloc(w, w->gpu->ops->linear_heads_bytes(w->gpu, n, &a) + 1);
    assert_int_equal(w->gpu->ops->linear_heads(w->gpu, gy, gx, n, &a, gwork), 0);
    // What lies between the parts stays as it was.
    twin_compare(w, gy, w->t, y, n * y_row, 1.1, 2e-5 * sqrt(s->cols), "linear_heads");
    float *together = twin_down(w, gy, n * y_row, w->t);
    const size_t size = dtype_size(w->t);
    for (int32_t r = 0; r<n; r += n> 40 ? 23 : 1) {
        const char *from = (const char *)gx + (size_t)(r * x_row) * size;
        char *to = (char *)gy + (size_t)(r * y_row) * size;
        // Fast words need rows that begin at 16 bytes; a shape has all of them or none.
        assert_int_equal(w->gpu->ops->linear_heads(w->gpu, to, from, 1, &a, gwork), 0);
    }
    float *alone = twin_down(w, gy, n * y_row, w->t);
    op_same_bits(alone, together, n * y_row, "a row alone");
    for (int32_t h = 0; h < s->heads; h++) {
        w->cpu->ops->weight_release(w->cpu, &cpu[h]);
        w->gpu->ops->weight_release(w->gpu, &gpu[h]);
    }
    w->cpu->ops->mem_free(w->cpu, work);
    twin_free(w, gx), twin_free(w, gy), twin_free(w, gwork);
    free(x), free(y), free(together), free(alone), free(cpu), free(gpu);
}

static void heads(const struct twin *w) {
    static const struct heads_shape all[] = {
        {20, 512, 192, 64, true}, {16, 128, 512, 64, false}, {5, 40, 24, 8, true},
        {3, 33, 16, 8, false},    {5, 7, 33, 3, true},       {130, 16, 8, 8, false},
    };
    static const int32_t rows[] = {1, 17, 33, 150};
    op_seed(5);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int j = 0; j < 4; j++)
            if (j < 3 || i != 5) check_heads(w, &all[i], rows[j]);
}

// --- copies --------------------------------------------------------------------------------------

static void check_copies(const struct twin *w, const struct parts_args *a, int32_t n) {
    float *x = twin_floats(w, n * a->x_row), *y = twin_floats(w, n * a->y_row);
    void *gx = twin_up(w, x, n * a->x_row), *gy = twin_up(w, y, n * a->y_row);
    assert_int_equal(w->cpu->ops->copy_parts(w->cpu, y, x, n, a), 0);
    assert_int_equal(w->gpu->ops->copy_parts(w->gpu, gy, gx, n, a), 0);
    float *got = twin_down(w, gy, n * a->y_row, w->t);
    op_same_bits(got, y, n * a->y_row, "copies");
    twin_free(w, gx), twin_free(w, gy);
    free(x), free(y), free(got);
}

static void copies(const struct twin *w) {
    static const struct parts_args all[] = {{5, 4, 61, 7, 40, 6},
                                            {20, 64, 20 * 256, 256, 21 * 576, 576},
                                            {1, 512, 576, 0, 512, 0},
                                            {1, 8, 16, 0, 9, 0}};
    op_seed(6);
    for (int i = 0; i < 4; i++)
        for (int n = 1; n < 80; n += 35) check_copies(w, &all[i], n);
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
static void test_heads(void **state) {
    twin_each(heads);
}
static void test_copies(void **state) {
    twin_each(copies);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies), cmocka_unit_test(test_heads),
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_wide_heads),
        cmocka_unit_test(test_cached), cmocka_unit_test(test_windows),
        cmocka_unit_test(test_capped), cmocka_unit_test(test_long_context),
    };
    cmocka_set_test_filter(getenv("PARLEY_TEST_ONLY")); // under a sanitizer one test takes long
    return cmocka_run_group_tests(tests, NULL, NULL);
}
