// Draws at each parameter's edges, and logits that nothing can be drawn from.
#include "tests/unit/sampler_fixture.h"
#include <math.h>

// --- each parameter's edge -----------------------------------------------------------------------

static void test_filters_at_their_edges(void **state) {
    set_up(300);
    fill(1, 2);
    begin(NULL, 0, NULL, 0);
    b.p.top_k = 301;
    probabilities();
    assert_int_equal(survivors(), 300);
    b.p.top_k = 7;
    probabilities();
    assert_int_equal(survivors(), 7);
    b.p.top_k = 0;
    b.p.top_p = 1e-30f; // at least one token stays
    probabilities();
    assert_int_equal(survivors(), 1);
    b.p.top_p = 1;
    b.p.min_p = 1; // only the best and its equals
    b.logits[10] = b.logits[20] = 30;
    probabilities();
    assert_int_equal(survivors(), 2);
    assert_true(b.probs[10] == 0.5f && b.probs[20] == 0.5f);
    b.p.top_k = 2;
    b.p.top_p = 0.5f; // counts within what top-k leaves: the first of the two has exactly half
    b.p.min_p = 0;
    probabilities();
    assert_int_equal(survivors(), 1);
    assert_true(b.probs[10] == 1);
}

static void test_all_equal(void **state) {
    set_up(MAX_VOCAB);
    for (int32_t i = 0; i < b.n_vocab; i++) b.logits[i] = -3;
    b.p.top_k = 10; // equal logits are ordered by id
    begin(NULL, 0, NULL, 0);
    probabilities();
    for (int32_t i = 0; i < 20; i++) assert_true(b.probs[i] == (i < 10 ? 0.1f : 0));
}

static void test_extreme_temperatures(void **state) {
    static const float temperatures[] = {1e-45f, 1e-38f, 1e-10f, 1e-3f, 100};
    set_up(300);
    fill(1, 2);
    b.logits[77] = 4; // alone at the top
    begin(NULL, 0, NULL, 0);
    for (size_t i = 0; i < sizeof temperatures / sizeof *temperatures; i++) {
        b.p.temperature = temperatures[i];
        probabilities();
        double sum = 0;
        for (int32_t id = 0; id < b.n_vocab; id++) sum += (double)b.probs[id];
        assert_true(fabs(sum - 1) < 1e-4);
        assert_int_equal(survivors(), b.p.temperature < 1 ? 1 : 300);
        if (b.p.temperature < 1) assert_int_equal(draw_at(5).id, 77);
    }
}

static void test_bias(void **state) {
    set_up(50);
    fill(1, 2);
    b.p.n_bias = 3;
    b.p.bias[0] = (struct logit_bias){0, 100};
    b.p.bias[1] = (struct logit_bias){1, -100};
    b.p.bias[2] = (struct logit_bias){2, -INFINITY};
    b.logits[2] = 50;
    begin(NULL, 0, NULL, 0);
    probabilities();
    assert_true(b.probs[0] > 0.999f && b.probs[1] == 0 && b.probs[2] == 0);
    for (int64_t i = 0; i < 20; i++) assert_int_equal(draw_at(i).id, 0);
}

// logit -> probability ratio to token 0, whose logit nothing changes
static double shift_of(int32_t id) {
    return log((double)b.probs[id] / (double)b.probs[0]);
}

static void test_a_bias_adds(void **state) {
    set_up(10);
    for (int32_t i = 0; i < 10; i++) b.logits[i] = i % 2 ? 2 : -2;
    b.p.n_bias = 3;
    b.p.bias[0] = (struct logit_bias){3, 0.5f};
    b.p.bias[1] = (struct logit_bias){4, -1.5f};
    b.p.bias[2] = (struct logit_bias){3, 0.25f}; // once more for the same token
    begin(NULL, 0, NULL, 0);
    probabilities();
    assert_true(fabs(shift_of(1) - 4) < 1e-4);
    assert_true(fabs(shift_of(3) - 4.75) < 1e-4);
    assert_true(fabs(shift_of(4) + 1.5) < 1e-4);
}

static void test_penalties(void **state) {
    set_up(10);
    for (int32_t i = 0; i < 10; i++) b.logits[i] = i % 2 ? 2 : -2;
    b.logits[0] = 0;
    static int32_t log_ids[10000]; // a long log of three distinct tokens: only those three count
    for (int i = 0; i < 10000; i++) log_ids[i] = 1 + i % 3;
    b.p.repetition_penalty = 2;
    b.p.presence_penalty = 0.5f;
    b.p.frequency_penalty = 0.25f;
    begin(NULL, 0, log_ids, 10000);
    probabilities();
    const double before[10] = {0, 1,  -4, 1,  -2,
                               2, -2, 2,  -2, 2}; // the prompt has no presence or frequency
    for (int32_t i = 0; i < 10; i++) assert_true(fabs(shift_of(i) - before[i]) < 1e-5);
    for (int i = 0; i < 3; i++) sampler_accept(&b.s, 1);
    sampler_accept(&b.s, 4);
    probabilities();
    const double after[10] = {0, 1 - 0.5 - 0.75, -4, 1, -4 - 0.75, 2, -2, 2, -2, 2};
    for (int32_t i = 0; i < 10; i++) assert_true(fabs(shift_of(i) - after[i]) < 1e-5);
    // The next turn: its log counts as prompt, earlier counts are gone. Without penalties nothing
    // shifts.
    begin(NULL, 0, (int32_t[]){4}, 1);
    probabilities();
    const double next[10] = {0, 2, -2, 2, -4, 2, -2, 2, -2, 2};
    for (int32_t i = 0; i < 10; i++) assert_true(fabs(shift_of(i) - next[i]) < 1e-5);
    sampling_params_init(&b.p);
    begin(NULL, 0, log_ids, 10000);
    probabilities();
    for (int32_t i = 1; i < 10; i++) assert_true(fabs(shift_of(i) - (i % 2 ? 2 : -2)) < 1e-5);
}

static void test_count_penalties_alone(void **state) {
    set_up(10);
    for (int32_t i = 0; i < 10; i++) b.logits[i] = 0;
    b.p.frequency_penalty = -1; // a negative one attracts
    begin(NULL, 0, (int32_t[]){5, 5, 5}, 3);
    sampler_accept(&b.s, 6);
    sampler_accept(&b.s, 6);
    probabilities();
    assert_true(fabs(shift_of(6) - 2) < 1e-5);
    assert_true(fabs(shift_of(5)) < 1e-5);
}

static void test_min_tokens(void **state) {
    static const int32_t eos[] = {7, 8, -1, 1000}; // a model may list ids that its vocabulary lacks
    set_up(10);
    for (int32_t i = 0; i < 10; i++) b.logits[i] = i == 7 || i == 8 ? 10 : 0;
    b.p.min_tokens = 2;
    begin(eos, 4, NULL, 0);
    for (int n = 0; n < 2; n++) {
        probabilities();
        assert_true(b.probs[7] == 0 && b.probs[8] == 0 && survivors() == 8);
        sampler_accept(&b.s, 0);
    }
    probabilities();
    assert_true(b.probs[7] > 0.4f && b.probs[8] > 0.4f);
    b.p.ignore_eos = true; // then they are ordinary tokens from the first draw on
    begin(eos, 4, NULL, 0);
    probabilities();
    assert_true(b.probs[7] > 0.4f);
}

static void add_bad(const int32_t *ids, int n) {
    assert_int_equal(sampling_words_add_ids(&b.p.bad_words, "bad_words", ids, (size_t)n, NULL), 0);
}

static void test_bad_words(void **state) {
    set_up(20);
    memset(b.logits, 0, sizeof b.logits);
    add_bad((int32_t[]){5}, 1);
    add_bad((int32_t[]){1, 2, 9}, 3);
    int32_t longest[SAMPLING_WORD_TOKENS];
    for (int i = 0; i < SAMPLING_WORD_TOKENS; i++) longest[i] = 3;
    longest[SAMPLING_WORD_TOKENS - 1] = 10;
    add_bad(longest, SAMPLING_WORD_TOKENS);
    begin(NULL, 0, (int32_t[]){0, 1}, 2); // the prompt ends inside the second word
    probabilities();
    assert_true(b.probs[5] == 0 && b.probs[9] > 0 && b.probs[10] > 0);
    sampler_accept(&b.s, 2);
    probabilities();
    assert_true(b.probs[5] == 0 && b.probs[9] == 0 && b.probs[2] > 0);
    sampler_accept(&b.s, 4);
    probabilities();
    assert_true(b.probs[9] > 0);
    for (int i = 0; i < SAMPLING_WORD_TOKENS - 1; i++) {
        probabilities();
        assert_true(b.probs[10] > 0);
        sampler_accept(&b.s, 3);
    }
    probabilities();
    assert_true(b.probs[10] == 0);
    begin(NULL, 0, (int32_t[]){1}, 1);
    begin(NULL, 0, (int32_t[]){2},
          1); // a log shorter than the word, and nothing left of the log before
    probabilities();
    assert_true(b.probs[9] > 0);
    // A bias does not bring a bad word back.
    b.p.n_bias = 1;
    b.p.bias[0] = (struct logit_bias){5, 100};
    probabilities();
    assert_true(b.probs[5] == 0);
}

static void test_stop_words(void **state) {
    static const int32_t one[] = {5}, three[] = {1, 2, 9};
    set_up(20);
    sampling_words_add_ids(&b.p.stop, "stop", one, 1, NULL);
    sampling_words_add_ids(&b.p.stop, "stop", three, 3, NULL);
    begin(NULL, 0, (int32_t[]){5, 1}, 2); // the second word begins in the input
    assert_false(sampler_at_stop(&b.s));
    sampler_accept(&b.s, 2);
    assert_false(sampler_at_stop(&b.s));
    sampler_accept(&b.s, 9);
    assert_true(sampler_at_stop(&b.s));
    sampler_accept(&b.s, 9);
    assert_false(sampler_at_stop(&b.s));
    sampler_accept(&b.s, 5);
    assert_true(sampler_at_stop(&b.s));
    begin(NULL, 0, (int32_t[]){2, 9}, 2); // a log shorter than the word
    assert_false(sampler_at_stop(&b.s));
}

// FasterTransformer's top_p_decay, from its formula: the plan for a device and the host's draw have
// the same value, and a turn that begins again in its middle goes on with it.
static void test_top_p_decay(void **state) {
    static const int32_t ids[] = {3, 4, 7, 4, 4, 4, 4, 7, 3};
    set_up(50);
    fill(1, 3);
    b.p.top_p = 0.9f;
    b.p.top_p_decay = 0.7f;
    b.p.top_p_min = 0.3f;
    b.p.top_p_reset_ids = 7;
    begin(NULL, 0, (int32_t[]){7, 4}, 2); // the decay does not count input tokens
    float want = 0.9f;
    for (int i = 0; i <= 9; i++) {
        assert_true(sampler_plan(&b.s, i, 0).top_p == want);
        probabilities();
        struct sampling_params plain;
        struct sampler other = {0};
        float probs[50];
        sampling_params_init(&plain);
        plain.top_p = want;
        plain.seed = b.p.seed;
        assert_int_equal(sampler_init(&other, b.n_vocab, NULL), 0);
        sampler_begin(&other, &plain, 0, NULL, 0, NULL, 0, NULL);
        sampler_probabilities(&other, &b.w, b.logits, probs, NULL);
        assert_memory_equal(probs, b.probs, sizeof probs);
        sampler_release(&other);
        if (i == 9) break;
        want = ids[i] == 7 ? 0.9f : fmaxf(want * 0.7f, 0.3f);
        begin(NULL, 0, (int32_t[]){7, 4}, 2); // begins again from its record
        for (int k = 0; k <= i; k++) sampler_accept(&b.s, ids[k]);
    }
    assert_true(want == 0.9f * 0.7f);
}

// --- what cannot be drawn from -------------------------------------------------------------------

static void refuses(int code, const char *says) {
    struct sampled out;
    struct err err = {0};
    assert_int_equal(sampler_draw(&b.s, &b.w, b.logits, 0, &out, &err), code);
    if (!strstr(err.text, says)) fail_msg("'%s' does not say %s", err.text, says);
    assert_int_equal(sampler_probabilities(&b.s, &b.w, b.logits, b.probs, NULL), code);
}

static void test_broken_logits(void **state) {
    float lp;
    set_up(70);
    begin(NULL, 0, NULL, 0);
    for (int greedy = 0; greedy < 2; greedy++) {
        b.p.temperature = greedy ? 0 : 1;
        for (int32_t at = 0; at < b.n_vocab; at++) {
            fill(1, 9);
            b.logits[at] = NAN;
            refuses(E_INTERNAL, "NaN");
            b.logits[at] = INFINITY;
            refuses(E_INTERNAL, "infinity");
        }
        assert_int_equal(sampler_logprob(b.logits, b.n_vocab, 0, &lp, NULL), E_INTERNAL);
        for (int32_t i = 0; i < b.n_vocab; i++) b.logits[i] = -INFINITY;
        refuses(E_INTERNAL, "every token");
        for (int32_t i = 0; i < b.n_vocab; i++) b.logits[i] = NAN;
        refuses(E_INTERNAL, "NaN");
    }
}

static void test_nothing_left(void **state) {
    static const int32_t eos[] = {2};
    set_up(3);
    memset(b.logits, 0, sizeof b.logits);
    b.p.n_bias = 1;
    b.p.bias[0] = (struct logit_bias){0, -INFINITY};
    add_bad((int32_t[]){1}, 1);
    b.p.min_tokens = 1;
    for (int greedy = 0; greedy < 2; greedy++) {
        b.p.temperature = greedy ? 0 : 1;
        begin(eos, 1, NULL, 0);
        refuses(E_INVAL, "no token is left");
    }
    b.p.min_tokens = 0;
    assert_int_equal(draw_at(0).id, 2);
}

static void test_penalty_overflow(void **state) {
    set_up(3);
    b.logits[0] = 3e38f, b.logits[1] = b.logits[2] = 0;
    b.p.repetition_penalty = 0.01f;
    begin(NULL, 0, (int32_t[]){0}, 1);
    refuses(E_INVAL, "repetition_penalty");
    b.p.n_bias = 1; // forbidding the token is not adding minus infinity to infinity
    b.p.bias[0] = (struct logit_bias){0, -INFINITY};
    assert_true(draw_at(0).id > 0);
}

static void test_log_outside_vocabulary(void **state) {
    set_up(10);
    int32_t log_ids[] = {3, 10, 4};
    assert_int_equal(sampler_begin(&b.s, &b.p, 0, NULL, 0, log_ids, 3, &b.err), E_INVAL);
    assert_non_null(strstr(b.err.text, "position 1"));
    log_ids[1] = -1;
    assert_int_equal(sampler_begin(&b.s, &b.p, 0, NULL, 0, log_ids, 3, NULL), E_INVAL);
}

static void test_one_token_vocabulary(void **state) {
    set_up(1);
    b.logits[0] = -5;
    begin(NULL, 0, NULL, 0);
    struct sampled out = draw_at(0);
    assert_true(out.id == 0 && out.logprob == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_filters_at_their_edges),
        cmocka_unit_test(test_all_equal),
        cmocka_unit_test(test_extreme_temperatures),
        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_a_bias_adds),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_count_penalties_alone),
        cmocka_unit_test(test_min_tokens),
        cmocka_unit_test(test_bad_words),
        cmocka_unit_test(test_stop_words),
        cmocka_unit_test(test_top_p_decay),
        cmocka_unit_test(test_broken_logits),
        cmocka_unit_test(test_nothing_left),
        cmocka_unit_test(test_penalty_overflow),
        cmocka_unit_test(test_log_outside_vocabulary),
        cmocka_unit_test(test_one_token_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
