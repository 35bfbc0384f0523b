// The choice of cuBLASLt's algorithm for a shape, which is measured once and kept in a file: measurements,
// progress, and reading the file line by line. Needs no GPU.
#include "kernels/cuda/cublas.c" // static functions
#include "tests/cmocka.h"

static char folder[64];

static size_t version(void) {
    return 130001;
}

static cublasStatus_t no_desc(cublasLtMatmulDesc_t *d, cublasComputeType_t c, cudaDataType_t t) {
    *d = NULL;
    return CUBLAS_STATUS_NOT_INITIALIZED;
}

static int set_up(void **state) {
    snprintf(folder, sizeof folder, "%s/parley-plans-XXXXXX", getenv("TMPDIR") ?: "/tmp");
    assert_non_null(mkdtemp(folder));
    api.cublasLtGetVersion = version;
    api.cublasLtMatmulDescCreate = no_desc;
    setenv("XDG_CACHE_HOME", folder, 1);
    log_set_level(LOG_OFF);
    return 0;
}

static int tear_down(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static struct cublas plans_new(void) {
    struct cublas b = {.plans = calloc(CUBLAS_MAX_PLANS, sizeof(struct cublas_plan))};
    assert_non_null(b.plans);
    name_file(&b, "NVIDIA H200/x");
    return b;
}

static struct cublas_plan plan_of(int32_t n, int32_t rows) {
    struct cublas_plan p = {n, rows, 4096, 4096, DTYPE_BF16, 0, {0}};
    for (int i = 0; i < 8; i++) p.algo[i] = (uint64_t)rows << 40 | (uint64_t)(n * 8 + i);
    return p;
}

static void is_kept(const struct cublas *b, int32_t n, int32_t rows) {
    struct cublas_plan want = plan_of(n, rows);
    const struct cublas_plan *p = find_plan(b, &want);
    assert_int_equal(p->n, n);
    assert_memory_equal(p->algo, want.algo, sizeof want.algo);
}

static void test_the_file_is_found_again(void **state) {
    struct cublas b = plans_new(), again;
    char want[128];
    snprintf(want, sizeof want, "%s/parley/cublaslt-130001-NVIDIA-H200-x.txt", folder);
    assert_string_equal(b.path, want);
    write_file(&b); // nothing new: nothing written
    assert_int_equal(access(b.path, F_OK), -1);
    for (int32_t rows = 1; rows <= 500; rows++) {
        struct cublas_plan p = plan_of(24 + rows % 3, rows);
        b.n_new += keep_plan(&b, &p);
    }
    write_file(&b);
    assert_int_equal(b.n_new, 0);
    again = plans_new();
    read_file(&again);
    assert_int_equal(again.n_plans, 500);
    for (int32_t rows = 1; rows <= 500; rows++) is_kept(&again, 24 + rows % 3, rows);
    free(b.plans), free(again.plans);
}

static void test_each_line_stands_alone(void **state) {
    struct cublas b = plans_new();
    make_folder(b.path, 1);
    FILE *f = fopen(b.path, "w");
    assert_non_null(f);
    fputs("24 1 4096 4096 2 0 1 2 3 4 5 6 7 8\n"
          "garbage\n\n"
          "0 2 4096 4096 2 0 1 2 3 4 5 6 7 8\n"
          "-24 2 4096 4096 2 0 1 2 3 4 5 6 7 8\n"
          "24 3 4096 4096 2 0 1 2 3 x\n"
          "32 4 4096 4096 2 1 ffffffffffffffff 2 3 4 5 6 7 8\n"
          "24 5 4096 4096 2 0 1 2 3",
          f);
    fclose(f);
    read_file(&b);
    assert_int_equal(b.n_plans, 2);
    struct cublas_plan key = {32, 4, 4096, 4096, 2, 1, {0}};
    assert_true(find_plan(&b, &key)->algo[0] == UINT64_MAX);
    free(b.plans);
}

static void test_no_place_for_it(void **state) {
    struct cublas b = plans_new();
    struct cublas_plan p = plan_of(24, 1);
    char parent[80];
    snprintf(parent, sizeof parent, "%s/parley", folder); // a file where the folder would be
    FILE *f = fopen(parent, "w");
    assert_non_null(f);
    fclose(f);
    b.n_new += keep_plan(&b, &p);
    write_file(&b); // a line in the log
    is_kept(&b, 24, 1);
    free(b.plans);
    setenv("XDG_CACHE_HOME", "here", 1); // not from the root: not to be used
    setenv("HOME", folder, 1);
    b = plans_new();
    assert_non_null(strstr(b.path, "/.cache/parley/"));
    free(b.plans);
    unsetenv("HOME");
    b = plans_new();
    assert_string_equal(b.path, "");
    b.n_new += keep_plan(&b, &p);
    write_file(&b);
    free(b.plans);
}

static void test_the_table_does_not_fill_up(void **state) {
    struct cublas b = plans_new();
    for (int32_t rows = 1; rows <= CUBLAS_MAX_PLANS / 2; rows++) {
        struct cublas_plan p = plan_of(24, rows);
        assert_true(keep_plan(&b, &p));
    }
    struct cublas_plan more = plan_of(24, CUBLAS_MAX_PLANS), known = plan_of(24, 7);
    assert_false(keep_plan(&b, &more));
    assert_true(keep_plan(&b, &known));
    is_kept(&b, 24, CUBLAS_MAX_PLANS / 2);
    free(b.plans);
}

static const struct cuda_linear shapes[] = {
    {.rows = 4096, .cols = 4096, .ld = 4096, .dtype = DTYPE_BF16, .w_dtype = DTYPE_BF16},
    {.rows = 128256, .cols = 4096, .ld = 4096, .dtype = DTYPE_BF16, .w_dtype = DTYPE_BF16},
};

struct seen {
    int calls;
    int64_t done, total;
};

static void on_progress(void *ctx, int64_t done, int64_t total) {
    struct seen *s = ctx;
    assert_int_equal(done, s->done + 1);
    assert_true(s->calls == 0 || s->total == total);
    s->calls++, s->done = done, s->total = total;
}

// Widths of 24, 32, 48, 64, 80 ..; in F32 only those of the head, up to the number of sequences.
static void test_what_is_measured(void **state) {
    struct cublas b = plans_new();
    struct products p = {
        .shapes = shapes, .n_shapes = 2, .next = 24, .last = 128, .last_logits = 48};
    struct cuda_linear a;
    int32_t n, widths[2][2] = {{0}};
    p.bytes = SIZE_MAX;
    for (struct products q = p; next_product(&q, &a, &n);) {
        int i = a.rows == 128256;
        assert_true(n >= 24 && n <= 128 && n == bucket(n));
        widths[i][a.y_f32]++;
    }
    assert_int_equal(widths[0][0], 8);
    assert_int_equal(widths[0][1], 0);
    assert_int_equal(widths[1][0], 8);
    assert_int_equal(widths[1][1], 3);
    // Known plans are not measured again; every measurement reports its progress.
    a = shapes[0];
    struct cublas_plan known = key_of(&a, 32);
    known.algo[0] = 1;
    assert_true(keep_plan(&b, &known));
    struct seen seen = {0};
    struct step_limits l = {.progress = on_progress, .progress_ctx = &seen};
    assert_int_equal(count_unknown(&b, p), 18);
    measure_all(&b, p, &l, NULL, NULL);
    assert_int_equal(seen.total, 18);
    assert_int_equal(seen.done, 18);
    l.progress = NULL;
    measure_all(&b, p, &l, NULL, NULL);
    // The choice also depends on memory: of the head's algorithms only those that fit.
    p.bytes = (size_t)40 * (128256 * 2 + 8192) + 4096;
    int heads = 0;
    for (struct products q = p; next_product(&q, &a, &n);) heads += a.rows == 128256;
    assert_int_equal(heads, 2); // 24 and 32, and in F32 none
    free(b.plans);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_file_is_found_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_line_stands_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_no_place_for_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_table_does_not_fill_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_measured, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
