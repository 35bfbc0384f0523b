// Which positions a turn's context outputs need, from where the cache may serve, and the sums.
#include "engine/run/context.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>

enum { VOCAB = 3, WIDTH = 2 };

static int32_t ids[] = {0, 1, 2, 1, 0};

static struct engine_turn turn(int64_t n_input, bool logprob, bool embedding) {
    struct engine_turn t = {.ids = ids, .n_ids = 5, .n_input = n_input};
    t.sampling.context_logprob = logprob;
    t.sampling.context_embedding = embedding;
    return t;
}

static void nothing_is_asked(void **state) {
    struct context_outputs c;
    for (int i = 0; i < 2; i++) {
        struct engine_turn t = turn(i == 0 ? 3 : 0, i == 1, i == 1); // or without an input
        context_init(&c, &t);
        assert_int_equal(context_reserve(&c, &t, WIDTH, NULL), 0);
        assert_false(context_waits(&c, t.n_ids));
        assert_int_equal(context_usable(&c, &t, 5), 5);
        assert_false(context_has_logprob(&c, t.n_ids));
        assert_null(context_take_embedding(&c, t.n_ids));
    }
}

// Positions come in any chunks, some of them twice where a pause has lost the cache.
static void sums_each_position_once(void **state) {
    struct engine_turn t = turn(3, true, true);
    struct context_outputs c;
    const float logits[VOCAB] = {0, 0, 0}, hidden[WIDTH] = {1, -2};
    context_init(&c, &t);
    assert_int_equal(context_reserve(&c, &t, WIDTH, NULL), 0);
    // The logits at position 1 are the first: they predict the input's first token, at 2.
    assert_int_equal(context_usable(&c, &t, 5), 2);
    for (int round = 0; round < 2; round++)
        for (int64_t p = round == 0 ? 0 : 2; p < (round == 0 ? 4 : 5); p++) {
            assert_int_equal(context_takes_logits(&c, &t, p), round == 0 && p >= 1);
            assert_int_equal(context_takes_hidden(&c, &t, p), p == 4 || (round == 0 && p >= 2));
            if (context_takes_logits(&c, &t, p))
                assert_int_equal(context_add_logits(&c, &t, logits, VOCAB, NULL), 0);
            if (context_takes_hidden(&c, &t, p)) context_add_hidden(&c, hidden);
            if (round == 0 && p == 3) {
                assert_true(context_waits(&c, 5) && context_has_logprob(&c, 5));
                assert_null(context_take_embedding(&c, 5)); // not complete
                assert_int_equal(context_usable(&c, &t, 5), 5);
            }
        }
    assert_false(context_waits(&c, 5));
    assert_true(c.logprob > -3.2959 && c.logprob < -3.2958); // 3 log(1/3)
    double *sum = context_take_embedding(&c, 5);
    assert_true(sum[0] == 3 && sum[1] == -6);
    free(sum);
    assert_null(c.embedding);
}

// One by one, with alternatives; the log's first token has none.
static void scores_each_token(void **state) {
    struct engine_turn t = turn(5, false, false);
    const float logits[VOCAB] = {0, 1, 2};
    struct context_outputs c;
    t.scores_input = true;
    t.sampling.top_logprobs = 2;
    context_init(&c, &t);
    assert_int_equal(context_reserve(&c, &t, WIDTH, NULL), 0);
    assert_int_equal(context_usable(&c, &t, 5), 1);
    for (int64_t p = 0; p < 5; p++) {
        assert_int_equal(context_takes_logits(&c, &t, p), p < 4);
        if (p == 3) assert_null(context_take_scores(&c, t.n_ids)); // not complete
        if (p < 4) assert_int_equal(context_add_logits(&c, &t, logits, VOCAB, NULL), 0);
    }
    struct engine_scores *s = context_take_scores(&c, t.n_ids);
    struct engine_scores *copy = engine_scores_copy(s);
    free(s);
    assert_true(copy->n == 5 && copy->n_alternatives == 2 && isnan(copy->logprobs[0]));
    assert_int_equal(copy->alternatives[0].id, -1);
    const double all = log(1 + exp(1) + exp(2));
    for (int i = 1; i < 5; i++) {
        assert_int_equal(copy->ids[i], ids[i]);
        assert_true(fabs(copy->logprobs[i] - (ids[i] - all)) < 1e-5);
        assert_int_equal(copy->alternatives[2 * i].id, 2);
        assert_int_equal(copy->alternatives[2 * i + 1].id, 1);
        assert_true(fabs(copy->alternatives[2 * i].logprob - (2 - all)) < 1e-5);
    }
    free(copy);
}

// The mean needs every position, the first and the last one position; the last is a row that is drawn from anyway.
static void pools_the_hidden_states(void **state) {
    const float hidden[WIDTH] = {1, -2};
    for (int pooling = POOLING_MEAN; pooling <= POOLING_FIRST; pooling++) {
        const bool all = pooling == POOLING_MEAN, waits = pooling != POOLING_LAST;
        struct engine_turn t = turn(3, false, true);
        struct context_outputs c;
        t.sampling.context_pooling = pooling;
        context_init(&c, &t);
        assert_int_equal(context_reserve(&c, &t, WIDTH, NULL), 0);
        assert_int_equal(context_waits(&c, 5), waits);
        assert_int_equal(context_usable(&c, &t, 5), waits ? 3 : 5);
        for (int64_t p = 0; p < 5; p++) {
            bool takes = context_takes_hidden(&c, &t, p);
            assert_int_equal(takes, all ? p >= 2 : p == (waits ? 2 : 4));
            if (takes) context_add_hidden(&c, hidden);
        }
        double *pooled = context_take_embedding(&c, 5);
        assert_true(pooled[0] == 1 && pooled[1] == -2);
        free(pooled);
    }
}

static void first_token_has_no_logprob(void **state) {
    struct engine_turn t = turn(5, true, false);
    struct context_outputs c;
    context_init(&c, &t);
    assert_int_equal(context_usable(&c, &t, 5), 1); // nothing from the cache
    assert_true(context_takes_logits(&c, &t, 0));
    assert_false(context_takes_hidden(&c, &t, 0));
    t.n_ids = 1, t.n_input = 1;
    context_init(&c, &t);
    assert_false(context_waits(&c, 1));
    assert_true(context_has_logprob(&c, 1) && c.logprob == 0);
}

static void broken_logits(void **state) {
    struct engine_turn t = turn(5, true, false);
    struct context_outputs c;
    struct err err = {0};
    const float logits[VOCAB] = {0, NAN, 0};
    context_init(&c, &t);
    assert_int_equal(context_add_logits(&c, &t, logits, VOCAB, &err), E_INTERNAL);
    assert_true(err.code == E_INTERNAL && c.logprob == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_asked),           cmocka_unit_test(sums_each_position_once),
        cmocka_unit_test(scores_each_token),          cmocka_unit_test(pools_the_hidden_states),
        cmocka_unit_test(first_token_has_no_logprob), cmocka_unit_test(broken_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
