// Draws: against a reference that sorts everything in doubles, and against the chi-square law.
#include "engine/run/lanes.h"
#include "engine/run/nucleus.h"
#include "tests/unit/sampler_fixture.h"
#include <math.h>

// --- the reference -------------------------------------------------------------------------------

static const float *order_logits;
static int by_probability(const void *x, const void *y) {
    int32_t i = *(const int32_t *)x, k = *(const int32_t *)y;
    if (order_logits[i] != order_logits[k]) return order_logits[i] > order_logits[k] ? -1 : 1;
    return i < k ? -1 : 1;
}

struct reference {
    int32_t order[MAX_VOCAB];
    double p[MAX_VOCAB]; // probability of order[i] among the kept tokens
    int32_t n;           // kept
};

// Temperature, top-k, top-p and min-p by their definitions. *close: rounding could move a token
// across a filter's bound.
static void reference_init(struct reference *r, const float *x, int32_t n,
                           const struct sampling_params *p, bool *close) {
    for (int32_t i = 0; i < n; i++) r->order[i] = i;
    order_logits = x;
    qsort(r->order, (size_t)n, sizeof *r->order, by_probability);
    double best = (double)x[r->order[0]], sum = 0;
    for (int32_t i = 0; i < n; i++) {
        r->p[i] = exp(((double)x[r->order[i]] - best) / (double)p->temperature);
        if (r->p[i] < exp(-39.9)) r->p[i] = 0;
    }
    r->n = n;
    if (p->top_k > 0 && p->top_k < n) r->n = p->top_k;
    for (int32_t i = 0; i < r->n; i++) sum += r->p[i];
    double before = 0;
    int32_t keep = 0;
    for (; keep < r->n && (keep == 0 || before < (double)p->top_p * sum); keep++) {
        before += r->p[keep];
        if (p->top_p < 1 && fabs(before - (double)p->top_p * sum) < 1e-5 * sum) *close = true;
    }
    for (r->n = 0; r->n < keep && r->p[r->n] >= (double)p->min_p * (1 - 1e-12); r->n++)
        if (r->n > 0 && fabs(r->p[r->n] - (double)p->min_p) < 1e-6) *close = true;
    sum = 0;
    for (int32_t i = 0; i < r->n; i++) sum += r->p[i];
    for (int32_t i = 0; i < r->n; i++) r->p[i] /= sum;
}

static void compare_with_reference(void) {
    static struct reference r;
    bool close = false;
    reference_init(&r, b.logits, b.n_vocab, &b.p, &close);
    if (close) return;
    probabilities();
    for (int32_t i = 0; i < b.n_vocab; i++) {
        double want = i < r.n ? r.p[i] : 0, got = (double)b.probs[r.order[i]];
        if (fabs(got - want) > 1e-5 * want + 1e-12)
            fail_msg("vocabulary %d, T %g k %d p %g m %g: rank %d has %g, expected %g", b.n_vocab,
                     (double)b.p.temperature, b.p.top_k, (double)b.p.top_p, (double)b.p.min_p, i,
                     got, want);
    }
    for (int64_t position = 0; position < 20; position++) {
        double u = (double)philox_uniform(b.p.seed, (uint64_t)position, 0), sum = 0;
        int32_t at = 0;
        while (at < r.n - 1 && sum + r.p[at] <= u) sum += r.p[at++];
        if (u - sum < 1e-5 || sum + r.p[at] - u < 1e-5) continue;
        assert_int_equal(draw_at(position).id, r.order[at]);
    }
}

static void test_against_reference(void **state) {
    static const int32_t sizes[] = {1, 2, 7, 16, 17, 257, 2049, MAX_VOCAB};
    static const float temperatures[] = {0.01f, 0.7f, 1, 3, 100};
    static const int32_t ks[] = {0, 2, 40, 1000, 1 << 30};
    static const float ps[] = {1, 0.9f, 0.3f, 1e-6f};
    static const float ms[] = {0, 0.05f, 0.8f, 1};
    uint64_t seed = 1;
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        set_up(sizes[n]);
        for (int pick = 0; pick < 400; pick++) {
            float u[6];
            for (uint32_t i = 0; i < 6; i++) u[i] = philox_uniform(99, seed, i);
            fill(u[0] < 0.5f ? 1 : 6, ++seed);
            if (u[1] < 0.3f) // ties, and a row that is mostly ruled out
                for (int32_t i = 0; i < b.n_vocab; i++) b.logits[i] = roundf(b.logits[i]);
            if (u[1] > 0.8f)
                for (int32_t i = 1; i < b.n_vocab; i += 3) b.logits[i] = i % 2 ? -INFINITY : -1e30f;
            b.p.temperature = temperatures[(int)(u[2] * 5)];
            b.p.top_k = ks[(int)(u[3] * 5)];
            b.p.top_p = ps[(int)(u[4] * 4)];
            b.p.min_p = ms[(int)(u[5] * 4)];
            b.p.seed = seed;
            begin(NULL, 0, NULL, 0);
            compare_with_reference();
        }
    }
}

// A token is drawn if u is at least the sum of the probabilities before it and less than the sum
// with its own.
static void test_draw_at_the_edges(void **state) {
    struct nucleus nu;
    set_up(40);
    for (int32_t i = 0; i < b.n_vocab; i++) b.logits[i] = i == 9 || i == 30 ? 1 : -200;
    nucleus_init(&nu, &b.w, b.logits, b.n_vocab, 1, 1);
    assert_int_equal(nu.kept.count, 2);
    assert_int_equal(nucleus_draw(&nu, 0), 9);
    assert_int_equal(nucleus_draw(&nu, nextafterf(0.5f, 0)), 9);
    assert_int_equal(nucleus_draw(&nu, 0.5f), 30);
    assert_int_equal(nucleus_draw(&nu, 1 - 0x1p-24f), 30);
}

// --- laws of the draw ----------------------------------------------------------------------------

// Chi-square of n_draws against the distribution, over tokens that expect 5 or more.
static double chi_square(int n_draws, int *freedom) {
    static int32_t seen[MAX_VOCAB];
    memset(seen, 0, sizeof seen);
    probabilities();
    for (int64_t i = 0; i < n_draws; i++) {
        int32_t id = draw_at(i).id;
        assert_true(b.probs[id] > 0);
        seen[id]++;
    }
    double sum = 0;
    *freedom = -1;
    for (int32_t i = 0; i < b.n_vocab; i++) {
        double expected = (double)b.probs[i] * n_draws;
        if (expected < 5) continue;
        sum += (seen[i] - expected) * (seen[i] - expected) / expected;
        ++*freedom;
    }
    return sum;
}

static void test_chi_square(void **state) {
    for (int round = 0; round < 4; round++) {
        set_up(round < 2 ? 40 : 300);
        fill(1.5f, 5);
        b.p.temperature = round % 2 ? 1.7f : 0.6f;
        b.p.top_p = round == 1 ? 0.8f : 1;
        b.p.seed = 1234 + (uint64_t)round;
        begin(NULL, 0, NULL, 0);
        int freedom;
        double chi2 = chi_square(30000, &freedom);
        assert_true(freedom > 5);
        // Mean `freedom`, standard deviation sqrt(2 freedom): five of them either way.
        assert_true(fabs(chi2 - freedom) < 5 * sqrt(2.0 * freedom));
    }
}

static void test_draw_depends_on_seed_position_branch_only(void **state) {
    set_up(500);
    fill(0.5f, 11);
    begin(NULL, 0, NULL, 0);
    struct sampled first[50];
    for (int64_t i = 0; i < 50; i++) first[i] = draw_at(i);
    // Neither the order of draws nor the scratch's old contents matter
    for (int64_t i = 49; i >= 0; i--) {
        struct sampled again = draw_at(i);
        assert_int_equal(again.id, first[i].id);
        assert_memory_equal(&again.logprob, &first[i].logprob, sizeof again.logprob);
    }
    int same_seed = 0, same_branch = 0;
    b.p.seed++;
    for (int64_t i = 0; i < 50; i++) same_seed += draw_at(i).id == first[i].id;
    b.p.seed--;
    assert_int_equal(sampler_begin(&b.s, &b.p, 1, NULL, 0, NULL, 0, &b.err), 0);
    for (int64_t i = 0; i < 50; i++) same_branch += draw_at(i).id == first[i].id;
    assert_true(same_seed < 10 && same_branch < 10);
}

static void test_position_beyond_32_bits(void **state) {
    set_up(500);
    fill(0.5f, 11);
    begin(NULL, 0, NULL, 0);
    int same = 0;
    for (int64_t i = 0; i < 50; i++) same += draw_at(i).id == draw_at(i + (INT64_C(1) << 32)).id;
    assert_true(same < 10);
}

static void test_greedy(void **state) {
    set_up(100);
    fill(1, 3);
    b.logits[40] = b.logits[70] = b.logits[99] = 9; // the lowest id wins
    b.p.temperature = 0;
    begin(NULL, 0, NULL, 0);
    for (int64_t i = 0; i < 20; i++) assert_int_equal(draw_at(i).id, 40);
    b.p.temperature = 50;
    b.p.top_k = 1;
    for (int64_t i = 0; i < 20; i++) assert_int_equal(draw_at(i).id, 40);
    probabilities();
    assert_true(b.probs[40] == 1 && survivors() == 1);
    b.p.n_bias = 1;
    b.p.bias[0] = (struct logit_bias){40, -INFINITY};
    assert_int_equal(draw_at(0).id, 70);
}

// --- log-probabilities ---------------------------------------------------------------------------

static double true_logprob(int32_t id) {
    double max = -INFINITY, sum = 0;
    for (int32_t i = 0; i < b.n_vocab; i++) max = fmax(max, (double)b.logits[i]);
    for (int32_t i = 0; i < b.n_vocab; i++) sum += exp((double)b.logits[i] - max);
    return (double)b.logits[id] - max - log(sum);
}

static void test_logprob_is_the_models_own(void **state) {
    set_up(5003);
    fill(4, 21);
    b.logits[8] = -INFINITY;
    float before[MAX_VOCAB];
    memcpy(before, b.logits, sizeof before);
    begin(NULL, 0, NULL, 0);
    struct sampled plain = draw_at(3);
    assert_true(fabs((double)plain.logprob - true_logprob(plain.id)) < 1e-6);
    // No parameter that shapes the draw changes a token's log-probability by a bit.
    b.p.temperature = 0.2f;
    b.p.repetition_penalty = 3;
    b.p.top_p = 0.5f;
    b.p.n_bias = 1;
    b.p.bias[0] = (struct logit_bias){plain.id, 100};
    begin(NULL, 0, &plain.id, 1);
    struct sampled shaped = draw_at(3);
    assert_int_equal(shaped.id, plain.id);
    assert_memory_equal(&shaped.logprob, &plain.logprob, sizeof plain.logprob);
    float alone;
    assert_int_equal(sampler_logprob(b.logits, b.n_vocab, plain.id, &alone, &b.err), 0);
    assert_memory_equal(&alone, &plain.logprob, sizeof alone);
    assert_memory_equal(before, b.logits, sizeof before);
    // Another address, another alignment.
    static float moved[MAX_VOCAB + 1];
    memcpy(moved + 1, b.logits, (size_t)b.n_vocab * sizeof *moved);
    assert_int_equal(sampler_logprob(moved + 1, b.n_vocab, plain.id, &alone, &b.err), 0);
    assert_memory_equal(&alone, &plain.logprob, sizeof alone);
}

static void test_exponential(void **state) {
    for (float x = 0; x > EXP_MIN; x = x * 1.0001f - 1e-4f) {
        double want = exp((double)x), got = (double)exp_nonpositive(f32x4_splat(x))[2];
        assert_true(fabs(got - want) <= 2.0 / (1 << 23) * want);
    }
    assert_true(exp_nonpositive(f32x4_splat(0))[0] == 1);
    assert_true(exp_nonpositive(f32x4_splat(-88))[0] == 0);
    assert_true(exp_nonpositive(f32x4_splat(-INFINITY))[0] == 0);
    assert_true(isnan(exp_nonpositive(f32x4_splat(NAN))[0]));
}

static void test_alternatives(void **state) {
    set_up(1000);
    fill(2, 8);
    b.logits[3] = b.logits[998] = b.logits[17] = 20; // equal: ascending id
    b.logits[500] = 21;
    b.p.top_logprobs = SAMPLING_MAX_TOP_LOGPROBS;
    b.p.n_bias = 1;
    b.p.bias[0] = (struct logit_bias){500, -INFINITY}; // it cannot be drawn, but it is reported
    begin(NULL, 0, NULL, 0);
    struct sampled out = draw_at(0);
    assert_int_equal(out.n_alternatives, SAMPLING_MAX_TOP_LOGPROBS);
    static const int32_t first[] = {500, 3, 17, 998};
    for (int i = 0; i < 4; i++) assert_int_equal(out.alternatives[i].id, first[i]);
    static struct reference r;
    bool close;
    struct sampling_params plain;
    sampling_params_init(&plain);
    reference_init(&r, b.logits, b.n_vocab, &plain, &close);
    for (int i = 0; i < out.n_alternatives; i++) {
        assert_int_equal(out.alternatives[i].id, r.order[i]);
        assert_true(fabs((double)out.alternatives[i].logprob - true_logprob(r.order[i])) < 1e-6);
    }
    b.p.top_logprobs = 0;
    assert_int_equal(draw_at(0).n_alternatives, 0);
    b.p.top_logprobs = 5;
    for (int32_t i = 0; i < b.n_vocab; i++) b.logits[i] = i == 4 || i == 600 ? 1 : -INFINITY;
    assert_int_equal(draw_at(0).n_alternatives, 2); // no others have a probability
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_reference),
        cmocka_unit_test(test_draw_at_the_edges),
        cmocka_unit_test(test_chi_square),
        cmocka_unit_test(test_draw_depends_on_seed_position_branch_only),
        cmocka_unit_test(test_position_beyond_32_bits),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_logprob_is_the_models_own),
        cmocka_unit_test(test_exponential),
        cmocka_unit_test(test_alternatives),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
