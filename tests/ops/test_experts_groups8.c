// experts with weights of few bits where compute_dtype is bf16: x and the hidden values have 8 bits for 32 columns each
// (linear_groups8.inc). Against double precision with both rounded so, which leaves no room for another error; and a
// row's bits do not depend on the batch.
#include "kernels/cpu/cpu.h"
#include "tests/ops/group_rows.h"
#include "tests/ops/ops_fixture.h"

enum { HIDDEN = 328, WIDTH = 72, N_EXPERTS = 5, N_CHOSEN = 2, N_ROWS = 40, X_COLUMNS = 32 };
static const float limit = 0.7f;

static const struct group_format formats[] = {
    {4, 32, GROUP_SCALE_F16, GROUP_ZERO_SAME, 8, NULL},             // Q4_0
    {4, 32, GROUP_SCALE_F32, GROUP_ZERO_SAME, 16, group_book_e2m1}, // MXFP4
    {4, 32, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},         // Q4_K
    {6, 16, GROUP_SCALE_NESTED, GROUP_ZERO_SAME, 32, NULL},         // Q6_K
    {2, 16, GROUP_SCALE_NESTED, GROUP_MIN_NESTED, 0, NULL},         // Q2_K
};

struct matrices {
    int32_t rows, cols;
    struct weight w[N_EXPERTS];
    double *values[N_EXPERTS]; // (rows, cols)
};

static void make(struct matrices *m, struct backend *be, const struct group_format *f, int32_t rows,
                 int32_t cols) {
    static uint8_t codes[512];
    float scales[64] = {0};
    uint16_t zeros[64] = {0}, supers[2], min_supers[2];
    struct group_row row = {codes, scales, supers, zeros, min_supers};
    *m = (struct matrices){.rows = rows, .cols = cols};
    for (int32_t e = 0; e < N_EXPERTS; e++) {
        const struct group_rows of = {*f, cols, (uint32_t)(e * 1000 + rows)};
        const struct group_source source = {*f, group_rows_fill, &of};
        const struct tensor_view v = {
            .data = &source, .dtype = DTYPE_U8, .rows = rows, .cols = cols};
        struct err err = {0};
        if (be->ops->weight_init(be, &m->w[e], &v, 1, &err) < 0) fail_msg("%s", err.text);
        m->values[e] = malloc((size_t)(rows * cols) * sizeof *m->values[e]);
        for (int32_t r = 0; r < rows; r++) {
            group_rows_fill(&of, r, &row, NULL);
            for (int32_t k = 0; k < cols; k++)
                m->values[e][r * cols + k] = group_row_value(f, &row, k);
        }
    }
}

static void release(struct matrices *m, struct backend *be) {
    for (int32_t e = 0; e < N_EXPERTS; e++) {
        be->ops->weight_release(be, &m->w[e]);
        free(m->values[e]);
    }
}

// Rounds x, known to within `moved`, to 8 bits. off: how far the result may be from the kernel's, which computes in F32:
// by next to nothing, or by a unit where x lies between two integers.
static void round_x(double *x, const double *moved, double *off, int32_t n) {
    for (int32_t first = 0; first < n; first += X_COLUMNS) {
        const int32_t end = first + X_COLUMNS < n ? first + X_COLUMNS : n;
        double largest = 0, its_moved = 0;
        for (int32_t k = first; k < end; k++) {
            if (fabs(x[k]) <= largest) continue;
            largest = fabs(x[k]);
            its_moved = moved[k];
        }
        const double unit = largest / 127;
        for (int32_t k = first; k < end; k++) {
            const double exact = unit > 0 ? x[k] / unit : 0, whole = nearbyint(exact);
            const double by = moved[k] + its_moved + 1e-6 * largest;
            off[k] = fabs(exact - whole) * unit > 0.5 * unit - by ? unit : by;
            x[k] = whole * unit;
        }
    }
}

// One row of a matrix times x.
static double product(const struct matrices *m, int32_t e, int32_t row, const double *x,
                      const double *off, double *slack) {
    double sum = 0;
    for (int32_t k = 0; k < m->cols; k++) {
        const double w = m->values[e][row * m->cols + k];
        sum += w * x[k];
        *slack += fabs(w) * (off[k] + 1e-6 * fabs(x[k]));
    }
    return sum;
}

struct layer {
    struct matrices up, down;
    float *up_bias, *down_bias;
};

static void check_row(const struct layer *l, const float *y, const float *from, const int32_t *ids,
                      const float *weights) {
    static const double exact[HIDDEN];
    double x[HIDDEN], x_off[HIDDEN], h[N_CHOSEN][WIDTH], h_off[N_CHOSEN][WIDTH];
    for (int32_t k = 0; k < HIDDEN; k++) x[k] = (double)from[k];
    round_x(x, exact, x_off, HIDDEN);
    for (int32_t j = 0; j < N_CHOSEN; j++) {
        double moved[WIDTH];
        for (int32_t i = 0; i < WIDTH; i++) {
            double half[2], slack = 0;
            for (int32_t b = 0; b < 2; b++) {
                const int32_t row = i + b * WIDTH;
                half[b] = product(&l->up, ids[j], row, x, x_off, &slack) +
                          (double)l->up_bias[ids[j] * 2 * WIDTH + row];
            }
            const double gate = fmin(half[0], (double)limit);
            const double up = fmax(-(double)limit, fmin(half[1], (double)limit)) + 1;
            h[j][i] = gate / (1 + exp(-1.702 * gate)) * up;
            moved[i] = slack * (fabs(gate) + fabs(up) + 1) + 1e-7;
        }
        round_x(h[j], moved, h_off[j], WIDTH);
    }
    for (int32_t o = 0; o < HIDDEN; o++) {
        double want = 0, slack = 1e-6;
        for (int32_t j = 0; j < N_CHOSEN; j++) {
            double off = 0;
            const double sum = product(&l->down, ids[j], o, h[j], h_off[j], &off);
            want += (double)weights[j] * (sum + (double)l->down_bias[ids[j] * HIDDEN + o]);
            slack += fabs((double)weights[j]) * off + 1e-6 * fabs(want);
        }
        op_near(y[o], want, slack, "y", o);
    }
}

static void run(struct backend *be, const struct layer *l, float *y, const float *x, int32_t n,
                const int32_t *ids, const float *weights) {
    const struct experts_args args = {
        N_EXPERTS, N_CHOSEN, l->up.w, l->down.w, l->up_bias, l->down_bias, {ACT_QUICK_GELU, true},
        limit,     false};
    void *work = NULL;
    assert_int_equal(posix_memalign(&work, 64, be->ops->experts_bytes(be, n, &args)), 0);
    assert_int_equal(be->ops->experts(be, LINEAR_STORE, y, x, n, ids, weights, &args, work), 0);
    free(work);
}

static void check_format(struct backend *be, const struct group_format *f) {
    static float y[N_ROWS * HIDDEN], alone[HIDDEN];
    struct layer l;
    int32_t ids[N_ROWS * N_CHOSEN];
    op_seed(12);
    make(&l.up, be, f, 2 * WIDTH, HIDDEN);
    make(&l.down, be, f, HIDDEN, WIDTH);
    l.up_bias = op_floats(N_EXPERTS * 2 * WIDTH), l.down_bias = op_floats(N_EXPERTS * HIDDEN);
    float *x = op_floats(N_ROWS * HIDDEN), *weights = op_floats(N_ROWS * N_CHOSEN);
    for (int r = 0; r < N_ROWS; r++) {
        ids[2 * r] = r % (N_EXPERTS - 1);
        ids[2 * r + 1] = N_EXPERTS - 1; // which all rows have
    }
    run(be, &l, y, x, N_ROWS, ids, weights);
    for (ptrdiff_t r = 0; r < N_ROWS; r++) {
        check_row(&l, y + r * HIDDEN, x + r * HIDDEN, ids + 2 * r, weights + 2 * r);
        run(be, &l, alone, x + r * HIDDEN, 1, ids + 2 * r, weights + 2 * r);
        op_same_bits(alone, y + r * HIDDEN, HIDDEN, "row alone");
    }
    release(&l.up, be), release(&l.down, be);
    free(l.up_bias), free(l.down_bias), free(x), free(weights);
}

static void test_experts(void **state) {
    struct backend *be = NULL;
    const bool open = backend_cpu_open_for(&be, DTYPE_BF16, 2, "avx512", NULL) == 0;
    const bool there = open && cpu_of(be)->table.groups8_item;
    for (size_t i = 0; there && i < sizeof formats / sizeof *formats; i++)
        check_format(be, &formats[i]);
    if (open) be->ops->close(be);
    if (!there) {
        print_message("no AVX512-VNNI here: not run\n");
        skip();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_experts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
