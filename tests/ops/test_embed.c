// embed (from every packed layout), embed_positions, add, gather_logit_rows, host_for.
#include "kernels/cpu/cpu.h"
#include "tests/ops/ops_fixture.h"
#include <stdatomic.h>

static void check_embed(struct backend *be, enum dtype t, int32_t vocab, int32_t width,
                        float spread) {
    struct weight w;
    struct err err = {0};
    void *table = malloc((size_t)(vocab * width) * dtype_size(t));
    op_seed((uint64_t)(vocab + width));
    for (int32_t i = 0; i < vocab * width; i++)
        op_write(t, table, i, op_random() * (i % 13 == 0 ? spread : 1));
    struct tensor_view v = {table, t, vocab, width, width, 1, NULL, 0};
    if (be->ops->weight_init(be, &w, &v, 1, &err) < 0) fail_msg("%s", err.text);
    enum { N = 7 };
    int32_t ids[N] = {0, vocab - 1, vocab / 2, 0, vocab / 3, 1, vocab - 1};
    struct batch b = {.n_rows = N, .ids = ids};
    float *y = malloc((size_t)(N * width) * sizeof *y);
    assert_int_equal(be->ops->embed(be, y, &b, &w, 1), 0);
    for (int32_t i = 0; i < N * width; i++)
        // Exactly
        assert_true(y[i] == (float)op_read(t, table, ids[i / width] * width + i % width));
    assert_int_equal(be->ops->embed(be, y, &b, &w, 0.3f), 0);
    for (int32_t i = 0; i < N * width; i++)
        assert_true(y[i] == 0.3f * (float)op_read(t, table, ids[i / width] * width + i % width));
    ids[3] = vocab; // not a row of the table
    assert_int_equal(be->ops->embed(be, y, &b, &w, 1), E_INVAL);
    ids[3] = -1;
    assert_int_equal(be->ops->embed(be, y, &b, &w, 1), E_INVAL);
    be->ops->weight_release(be, &w);
    free(table), free(y);
}

static void embeds_as_packed(struct backend *be) {
    check_embed(be, DTYPE_F32, 33, 17, 1);
    check_embed(be, DTYPE_F16, 40, 130, 1);
    check_embed(be, DTYPE_BF16, 40, 130, 1);
    check_embed(be, DTYPE_BF16, 130, 63, 1);
    check_embed(be, DTYPE_BF16, 50, 96, 1e-9f); // exponents too far apart for 12 bits
}

static void embeds(struct backend *be) {
    cpu_raw_budget_set(cpu_of(be), 0); // bf16 in 12 bits
    embeds_as_packed(be);
    cpu_raw_budget_set(cpu_of(be), SIZE_MAX);
    embeds_as_packed(be);
}

static void rows(struct backend *be) {
    enum { N = 3, WIDTH = 130, TABLE = 9 };
    op_seed(4);
    float *table = op_floats(TABLE * WIDTH), *x = op_floats(N * WIDTH), y[N * WIDTH], z[2 * WIDTH];
    int32_t positions[N] = {0, 4, 6}, logit_rows[2] = {0, 2};
    struct batch b = {.n_rows = N, .positions = positions, .n_logits = 2, .logit_rows = logit_rows};
    memcpy(y, x, sizeof y);
    assert_int_equal(be->ops->embed_positions(be, y, &b, table, WIDTH, 2), 0);
    for (int i = 0; i < N * WIDTH; i++)
        assert_true(y[i] == x[i] + table[(positions[i / WIDTH] + 2) * WIDTH + i % WIDTH]);
    assert_int_equal(be->ops->gather_logit_rows(be, z, y, &b, WIDTH), 0);
    assert_memory_equal(z, y, WIDTH * sizeof *z);
    assert_memory_equal(z + WIDTH, y + 2 * WIDTH, WIDTH * sizeof *z);
    assert_null(be->ops->logits_read); // they are where the host reads them
    free(table), free(x);
}

static void adds(struct backend *be) {
    static const int64_t sizes[] = {1, 3, 130, 4096, 4097, 100001};
    for (int i = 0; i < 6; i++) {
        op_seed((uint64_t)sizes[i]);
        float *x = op_floats(sizes[i]), *y = op_floats(sizes[i]),
              *want = malloc((size_t)sizes[i] * sizeof *want);
        for (int64_t j = 0; j < sizes[i]; j++) want[j] = x[j] + y[j];
        assert_int_equal(be->ops->add(be, y, x, sizes[i]), 0);
        op_same_bits(y, want, sizes[i], "add");
        free(x), free(y), free(want);
    }
}

static void memory(struct backend *be) {
    static const size_t sizes[] = {0, 1, 5000, 3 << 20};
    for (int i = 0; i < 4; i++) {
        void *p;
        assert_int_equal(be->ops->mem_alloc(be, sizes[i], &p, NULL), 0);
        assert_int_equal((uintptr_t)p % 64, 0);
        char *in = malloc(sizes[i] + 1), *out = malloc(sizes[i] + 1);
        memset(in, i + 1, sizes[i]);
        assert_int_equal(be->ops->mem_write(be, p, in, sizes[i]), 0);
        assert_int_equal(be->ops->mem_read(be, out, p, sizes[i]), 0);
        assert_memory_equal(in, out, sizes[i]);
        be->ops->mem_free(be, p);
        free(in), free(out);
    }
    void *p;
    struct err err = {0};
    assert_int_equal(be->ops->mem_alloc(be, SIZE_MAX - 10, &p, &err), E_NOMEM);
    assert_true(err.text[0] != 0);
    be->ops->mem_free(be, NULL);
}

static void count_item(void *ctx, int item) {
    atomic_fetch_add(&((_Atomic int *)ctx)[item], 1);
}

static void host_items(struct backend *be) {
    enum { MOST = 40 };
    for (int n = 0; n < MOST; n++) {
        _Atomic int calls[MOST] = {0};
        be->ops->host_for(be, n, count_item, calls);
        for (int i = 0; i < MOST; i++) assert_int_equal(atomic_load(&calls[i]), i < n);
    }
}

static void test_embeds(void **state) {
    op_each_backend(embeds);
}
static void test_rows(void **state) {
    op_each_backend(rows);
}
static void test_adds(void **state) {
    op_each_backend(adds);
}
static void test_host_items(void **state) {
    op_each_backend(host_items);
}
static void test_memory(void **state) {
    op_each_backend(memory);
}

static void test_open(void **state) {
    struct backend *be;
    struct err err = {0};
    assert_int_equal(backend_cpu_open(&be, 0, NULL, &err), 0);
    assert_true(be->n_threads >= 1);
    assert_int_equal(be->act_dtype, DTYPE_F32);
    assert_non_null(strstr(be->description, "thread"));
    be->ops->close(be);
    assert_int_equal(backend_cpu_open(&be, 1, "auto", &err), 0);
    be->ops->close(be);
    assert_int_equal(backend_cpu_open(&be, 1, "portable", &err), 0);
    assert_string_equal(be->description, "portable C, 1 thread");
    be->ops->close(be);
    assert_int_equal(backend_cpu_open(&be, 1, "altivec", &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "altivec"));
    assert_null(be);
    assert_int_equal(backend_cpu_open(&be, -1, NULL, &err), E_INVAL);
    assert_int_equal(backend_cpu_open(&be, 65, NULL, &err), E_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embeds),     cmocka_unit_test(test_rows),
        cmocka_unit_test(test_adds),       cmocka_unit_test(test_memory),
        cmocka_unit_test(test_host_items), cmocka_unit_test(test_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
