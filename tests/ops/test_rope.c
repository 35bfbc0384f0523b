// rope_angles and rope against their formulas: partial widths, both styles. Values past rot_dim must not
// change.
#include "tests/ops/ops_fixture.h"

enum { N = 5, HEADS = 3, KV = 1 };

static void check_style(struct backend *be, enum rope_style style, int32_t dim, int32_t rot) {
    int32_t width = (HEADS + 2 * KV) * dim, half = rot / 2, positions[N] = {0, 1, 77, 4095, 131071};
    op_seed((uint64_t)(dim + rot));
    float *x = op_floats(N * width), *y = malloc((size_t)(N * width) * sizeof *y);
    float *freq = malloc((size_t)half * sizeof *freq),
          *angles = malloc((size_t)(N * rot) * sizeof *angles);
    for (int32_t i = 0; i < half; i++) freq[i] = powf(10000, -2.0f * (float)i / (float)rot);
    memcpy(y, x, (size_t)(N * width) * sizeof *y);
    // The second of two sequences turns by the frequencies for short texts: half of the others.
    const struct batch_seq seqs[] = {{.n_rows = 2},
                                     {.first_row = 2, .n_rows = N - 2, .short_rope = true}};
    struct batch b = {.n_rows = N, .positions = positions, .n_seqs = 2, .seqs = seqs};
    float *lower = malloc((size_t)half * sizeof *lower),
          *short_angles = malloc((size_t)(N * rot) * sizeof *angles);
    for (int32_t i = 0; i < half; i++) lower[i] = freq[i] / 2;
    be->ops->rope_angles(be, short_angles, &b, freq, lower, rot, 1.5f);
    be->ops->rope_angles(be, angles, &b, freq, NULL, rot, 1.5f);
    for (int32_t r = 0; r < N; r++)
        for (int32_t i = 0; i < half; i++) {
            float angle = (float)positions[r] * (r < 2 ? freq[i] : lower[i]);
            op_near(short_angles[r * rot + i], 1.5 * cos(angle), 3e-7, "cos", i);
            op_near(short_angles[r * rot + half + i], 1.5 * sin(angle), 3e-7, "sin", i);
        }
    free(lower);
    free(short_angles);
    const struct qkv_shape shape = {HEADS, KV, dim};
    const struct qkv_args a = {.style = style, .rot_dim = rot, .cos_sin = angles};
    be->ops->rope(be, y, N, &shape, &a);
    for (int32_t r = 0; r < N; r++)
        for (int32_t i = 0; i < half; i++) {
            float angle = (float)positions[r] * freq[i]; // rounded to F32, as the reference does
            op_near(angles[r * rot + i], 1.5 * cos(angle), 3e-7, "cos", i);
            op_near(angles[r * rot + half + i], 1.5 * sin(angle), 3e-7, "sin", i);
        }
    for (int32_t r = 0; r < N; r++)
        for (int32_t h = 0; h < HEADS + 2 * KV; h++)
            for (int32_t d = 0; d < dim; d++) {
                int32_t at = r * width + h * dim;
                bool turned = h < HEADS + KV && d < rot;
                int32_t i = style == ROPE_HALF ? d % half : d / 2;
                bool second = style == ROPE_HALF ? d >= half : d % 2;
                int32_t mate = style == ROPE_HALF ? (second ? d - half : d + half) : d ^ 1;
                if (!turned) {
                    op_same_bits(y + at + d, x + at + d, 1, "past rot_dim");
                    continue;
                }
                double c = angles[r * rot + i], s = angles[r * rot + half + i];
                double want = x[at + d] * c + (second ? 1 : -1) * x[at + mate] * s;
                op_near(y[at + d], want, 1e-6 * (1 + fabs(want)), "rope", at + d);
            }
    free(x), free(y), free(freq), free(angles);
}

static void styles(struct backend *be) {
    for (int style = 0; style < 2; style++) {
        check_style(be, (enum rope_style)style, 64, 64);
        check_style(be, (enum rope_style)style, 80, 32);
        check_style(be, (enum rope_style)style, 10, 6);
        check_style(be, (enum rope_style)style, 2, 2);
    }
}

static void test_styles(void **state) {
    op_each_backend(styles);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_styles)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
