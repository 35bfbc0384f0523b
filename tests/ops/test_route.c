// route against the same rules in double precision: kinds, groups, biases, ties, logits that are not finite, and
// that a row's result does not depend on the others.
#include "tests/ops/ops_fixture.h"

enum { ROWS = 40 };

static struct route_args args_of(enum router_kind kind, int32_t n_experts, int32_t n_chosen) {
    return (struct route_args){
        .kind = kind, .n_experts = n_experts, .n_chosen = n_chosen, .factor = 1, .group_best = 1};
}

// Counts the scores that come before score i: larger, or equal and lower.
static int32_t rank_of(const double *score, int32_t n, int32_t i) {
    int32_t rank = 0;
    for (int32_t j = 0; j < n; j++) rank += score[j] > score[i] || (score[j] == score[i] && j < i);
    return rank;
}

static double best_of_group(const double *score, int32_t size, int32_t n_best) {
    double sum = 0;
    for (int32_t i = 0; i < size; i++)
        if (rank_of(score, size, i) < n_best) sum += score[i];
    return sum;
}

static void reference(const struct route_args *a, const float *logit, int32_t *ids,
                      double *weights) {
    double *weight = calloc((size_t)a->n_experts, sizeof *weight), sum = 0, chosen = 0;
    double *score = calloc((size_t)a->n_experts, sizeof *score);
    double *group = calloc((size_t)a->n_experts, sizeof *group);
    for (int32_t e = 0; e < a->n_experts; e++) sum += exp(logit[e]);
    for (int32_t e = 0; e < a->n_experts; e++) {
        weight[e] =
            a->kind == ROUTER_SIGMOID ? 1 / (1 + exp(-(double)logit[e])) : exp(logit[e]) / sum;
        // as the op does: what F32 makes of it decides between near equals
        score[e] = a->kind == ROUTER_SIGMOID ? (double)(1 / (1 + expf(-logit[e]))) : weight[e];
        if (a->choice_bias) score[e] = (float)score[e] + a->choice_bias[e];
    }
    const int32_t size = a->n_groups > 1 ? a->n_experts / a->n_groups : a->n_experts;
    for (int32_t g = 0; g < a->n_groups; g++)
        group[g] = best_of_group(score + g * size, size, a->group_best);
    for (int32_t e = 0; a->n_groups > 1 && e < a->n_experts; e++)
        if (rank_of(group, a->n_groups, e / size) >= a->n_chosen_groups) score[e] = -INFINITY;
    int32_t n = 0;
    for (int32_t e = 0; e < a->n_experts; e++) {
        if (rank_of(score, a->n_experts, e) >= a->n_chosen) continue;
        ids[n] = e;
        weights[n++] = weight[e];
        chosen += weight[e];
    }
    assert_int_equal(n, a->n_chosen);
    bool divide = a->normalised || a->kind == ROUTER_TOPK_SOFTMAX;
    for (int32_t i = 0; i < n; i++) {
        weights[i] *= a->factor / (divide ? chosen : 1);
        if (a->expert_scale) weights[i] *= a->expert_scale[ids[i]];
    }
    free(weight), free(score), free(group);
}

static void check(struct backend *be, const struct route_args *a, const float *logits, int32_t n) {
    const int64_t k = a->n_chosen;
    int32_t *ids = malloc((size_t)(n * k) * sizeof *ids), *want = malloc((size_t)k * sizeof *want);
    int32_t *alone_id = malloc((size_t)k * sizeof *alone_id);
    float *weights = op_floats(n * k), *alone = op_floats(k);
    double *exact = malloc((size_t)k * sizeof *exact);
    assert_int_equal(be->ops->route(be, ids, weights, logits, n, a), 0);
    for (int32_t r = 0; r < n; r++) {
        reference(a, logits + (int64_t)r * a->n_experts, want, exact);
        for (int32_t i = 0; i < k; i++) {
            assert_int_equal(ids[r * k + i], want[i]);
            op_near(weights[r * k + i], exact[i], 2e-6 * fabs(exact[i]) + 1e-30, "weight",
                    r * k + i);
        }
        be->ops->route(be, alone_id, alone, logits + (int64_t)r * a->n_experts, 1, a);
        assert_memory_equal(alone_id, ids + r * k, (size_t)k * sizeof *ids);
        op_same_bits(alone, weights + r * k, k, "row alone");
    }
    free(ids), free(want), free(weights), free(exact), free(alone_id), free(alone);
}

static void kinds(struct backend *be) {
    static const int32_t sizes[][2] = {{1, 1},   {4, 2},    {8, 8},   {60, 4},
                                       {128, 8}, {512, 10}, {1024, 1}};
    op_seed(1);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const int32_t n = sizes[i][0], n_rows = n > 200 ? 3 : ROWS; // the reference is slow
        float *logits = op_floats((int64_t)ROWS * n), *bias = op_floats(n), *scale = op_floats(n);
        for (int kind = 0; kind < 3; kind++)
            for (int variant = 0; variant < 4; variant++) {
                struct route_args a = args_of((enum router_kind)kind, n, sizes[i][1]);
                a.normalised = variant % 2;
                a.factor = variant ? 2.5f : 1;
                a.choice_bias = kind != ROUTER_TOPK_SOFTMAX && variant > 1 ? bias : NULL;
                a.expert_scale = variant == 3 ? scale : NULL;
                check(be, &a, logits, n_rows);
            }
        free(logits), free(bias), free(scale);
    }
}

static void groups(struct backend *be) {
    op_seed(2);
    float *logits = op_floats((int64_t)ROWS * 256), *bias = op_floats(256);
    for (int i = 0; i < 256; i++) bias[i] *= 0.3f;
    for (int variant = 0; variant < 8; variant++) {
        struct route_args a = args_of(variant % 2 ? ROUTER_SIGMOID : ROUTER_SOFTMAX_TOPK, 256, 8);
        a.n_groups = variant & 2 ? 8 : 64;
        a.n_chosen_groups = variant & 2 ? 4 : 2;
        a.group_best = variant % 2 ? 2 : 1;
        a.choice_bias = variant % 2 && variant & 4 ? bias : NULL;
        check(be, &a, logits, 5);
    }
    // More are chosen than the groups have: experts of score 0, the lowest first.
    struct route_args a = args_of(ROUTER_SIGMOID, 8, 4);
    a.n_groups = 4, a.n_chosen_groups = 1, a.group_best = 2;
    check(be, &a, logits, ROWS);
    free(logits), free(bias);
}

// Equal logits, all of them or in part; also logits that differ, but whose softmax in F32 does not.
static void ties(struct backend *be) {
    float same[16] = {0}, some[16], near[4] = {-200, -201, 0, -150};
    for (int i = 0; i < 16; i++) some[i] = (float)(i % 3);
    static const int32_t lowest[4] = {0, 1, 2, 3}, twos[4] = {2, 5, 8, 11}, near_ids[2] = {2, 3},
                         zeros[2] = {0, 2};
    for (int kind = 0; kind < 3; kind++) {
        struct route_args a = args_of((enum router_kind)kind, 16, 4);
        int32_t ids[4];
        float weights[4];
        be->ops->route(be, ids, weights, same, 1, &a);
        assert_memory_equal(ids, lowest, sizeof lowest);
        be->ops->route(be, ids, weights, some, 1, &a);
        assert_memory_equal(ids, twos, sizeof twos);
        a.n_experts = 4, a.n_chosen = 2;
        be->ops->route(be, ids, weights, near, 1, &a);
        // a sigmoid of less than about -104 is 0 in F32
        assert_memory_equal(ids, kind == ROUTER_SIGMOID ? zeros : near_ids, sizeof near_ids);
        assert_true(isfinite(weights[0]) && isfinite(weights[1]));
    }
}

// A row that is not finite gives NaN and leaves the other rows alone.
static void broken(struct backend *be) {
    enum { E = 8, K = 3 };
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int kind = 0; kind < 3; kind++)
        for (int b = 0; b < 3; b++) {
            struct route_args a = args_of((enum router_kind)kind, E, K);
            a.normalised = true;
            op_seed(3);
            float *logits = op_floats(3 * E), weights[3 * K], want[K];
            int32_t ids[3 * K];
            be->ops->route(be, ids, want, logits + 2 * E, 1, &a);
            logits[E + 5] = bad[b];
            be->ops->route(be, ids, weights, logits, 3, &a);
            for (int i = 0; i < K; i++) {
                assert_true(isnan(weights[K + i]) && !isnan(weights[i]));
                assert_in_range(ids[K + i], 0, E - 1);
            }
            op_same_bits(weights + 2 * K, want, K, "the row after");
            free(logits);
        }
}

static void test_kinds(void **state) {
    op_each_backend(kinds);
}
static void test_groups(void **state) {
    op_each_backend(groups);
}
static void test_ties(void **state) {
    op_each_backend(ties);
}
static void test_broken(void **state) {
    op_each_backend(broken);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_ties),
        cmocka_unit_test(test_broken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
