// Draws of several turns at once: each equals sampler_draw's alone, bit for bit, on any thread and
// with every kind of parameter; and a failing draw fails alone.
#include "engine/run/drawing.h"

#include "base/philox.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 5003, STEPS = 40 };

static struct drawings drawings;
static struct sampler alone[DRAWN_TOGETHER], together[DRAWN_TOGETHER];
static struct sampler_work work;
static struct sampling_params params[DRAWN_TOGETHER];
static float logits[DRAWN_TOGETHER][VOCAB];
static const struct logit_bias bias[2] = {{7, 3.5f}, {11, -INFINITY}};

// A turn of each kind: greedy, plain, nucleus, penalties, bias, alternatives, min_p, held-back eos.
static void set_params(void) {
    static const int32_t log[] = {3, 7, 7, 4000}, eos[] = {2};
    for (int i = 0; i < DRAWN_TOGETHER; i++) {
        struct sampling_params *p = &params[i];
        sampling_params_init(p);
        p->seed = 100 + (uint64_t)i;
        p->temperature = i == 0 ? 0 : 0.5f + 0.2f * (float)i;
        if (i == 2) p->top_p = 0.7f, p->top_k = 50;
        if (i == 3) p->repetition_penalty = 1.3f, p->presence_penalty = 0.4f;
        if (i == 3) p->frequency_penalty = 0.2f;
        if (i == 4) memcpy(p->bias, bias, sizeof bias), p->n_bias = 2;
        if (i == 5) p->top_logprobs = SAMPLING_MAX_TOP_LOGPROBS;
        if (i == 6) p->min_p = 0.2f;
        if (i == 7) p->min_tokens = STEPS;
        assert_int_equal(sampler_begin(&alone[i], p, 0, eos, 1, log, 4, NULL), 0);
        assert_int_equal(sampler_begin(&together[i], p, 0, eos, 1, log, 4, NULL), 0);
    }
}

static int set_up(void **state) {
    assert_int_equal(drawings_init(&drawings, VOCAB, NULL), 0);
    assert_int_equal(sampler_work_init(&work, VOCAB, NULL), 0);
    for (int i = 0; i < DRAWN_TOGETHER; i++) {
        assert_int_equal(sampler_init(&alone[i], VOCAB, NULL), 0);
        assert_int_equal(sampler_init(&together[i], VOCAB, NULL), 0);
    }
    set_params();
    return 0;
}

static int tear_down(void **state) {
    drawings_release(&drawings);
    sampler_work_release(&work);
    for (int i = 0; i < DRAWN_TOGETHER; i++) {
        sampler_release(&alone[i]);
        sampler_release(&together[i]);
    }
    return 0;
}

static void new_logits(int step) {
    for (int i = 0; i < DRAWN_TOGETHER; i++)
        for (int k = 0; k < VOCAB; k++)
            logits[i][k] = 12 * philox_uniform((uint64_t)step, (uint64_t)k, (uint32_t)i) - 6;
}

static bool same(const struct sampled *a, const struct sampled *b) {
    return a->id == b->id && memcmp(&a->logprob, &b->logprob, sizeof a->logprob) == 0 &&
           a->n_alternatives == b->n_alternatives &&
           memcmp(a->alternatives, b->alternatives,
                  (size_t)a->n_alternatives * sizeof *a->alternatives) == 0;
}

static void same_draws(struct backend *be) {
    for (int step = 0; step < STEPS; step++) {
        int n = 1 + step % DRAWN_TOGETHER;
        new_logits(step);
        for (int i = 0; i < n; i++)
            drawings_add(&drawings, 10 + i, &together[i], logits[i], 4 + step);
        drawings_run(&drawings, be, &clock_system);
        assert_int_equal(drawings.n, n);
        for (int i = 0; i < n; i++) {
            struct sampled want;
            const struct drawing *one = &drawings.of[i];
            assert_int_equal(sampler_draw(&alone[i], &work, logits[i], 4 + step, &want, NULL), 0);
            assert_int_equal(one->rc, 0);
            assert_int_equal(one->seq, 10 + i);
            assert_true(one->time_us > 0);
            if (!same(&one->drawn, &want)) fail_msg("step %d, turn %d: another draw", step, i);
            sampler_accept(&alone[i], want.id);
            sampler_accept(&together[i], want.id);
        }
        drawings.n = 0;
    }
}

static void test_same_draws_on_any_threads(void **state) {
    for (int threads = 1; threads <= 3; threads++) {
        struct backend *be;
        assert_int_equal(backend_cpu_open(&be, threads, NULL, NULL), 0);
        set_params();
        same_draws(be);
        be->ops->close(be);
    }
    struct backend_ops none = {.name = "none"}; // a device without threads of the host's
    struct backend be = {.ops = &none};
    set_params();
    same_draws(&be);
}

static void test_one_that_fails_fails_alone(void **state) {
    struct backend *be;
    assert_int_equal(backend_cpu_open(&be, 2, NULL, NULL), 0);
    new_logits(1);
    logits[1][30] = NAN;
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 4; i++) drawings_add(&drawings, i, &together[i], logits[i], 4);
        drawings_run(&drawings, be, &clock_system);
        for (int i = 0; i < 4; i++) {
            const struct drawing *one = &drawings.of[i];
            bool bad = i == 1 && round == 0;
            assert_int_equal(one->rc, bad ? E_INTERNAL : 0);
            assert_int_equal(one->err.code, bad ? E_INTERNAL : 0); // and not the last run's
            if (bad) assert_non_null(strstr(one->err.text, "NaN"));
        }
        logits[1][30] = 0;
        drawings.n = 0;
    }
    be->ops->close(be);
}

// Many turns draw one by one, and each token is emitted when it is drawn.
static void test_how_many_draw_together(void **state) {
    static const int32_t n_seqs[] = {1, DRAWN_TOGETHER, DRAWN_TOGETHER + 1, 500};
    for (int i = 0; i < 4; i++) {
        assert_false(drawings_are_full(&drawings, n_seqs[i]));
        while (!drawings_are_full(&drawings, n_seqs[i]))
            drawings_add(&drawings, 0, &together[0], logits[0], 4);
        assert_int_equal(drawings.n, i < 2 ? DRAWN_TOGETHER : 1);
        drawings.n = 0;
    }
}

// Ranked beams fill the array in a step of any width; a draw behind them ends the gathering at once.
static void test_draws_beside_beams(void **state) {
    struct beam_search search;
    for (int beams = 0; beams <= DRAWN_TOGETHER; beams++) {
        drawings.n = 0;
        for (int i = 0; i < beams; i++) {
            assert_false(drawings_are_full(&drawings, 20));
            drawings_add_beam(&drawings, 0, i, &together[0], &search, logits[0]);
        }
        assert_int_equal(drawings_are_full(&drawings, 20), beams == DRAWN_TOGETHER);
        if (beams == DRAWN_TOGETHER) break;
        drawings_add(&drawings, 1, &together[1], logits[1], 4);
        assert_true(drawings_are_full(&drawings, 20));
        assert_int_equal(drawings_are_full(&drawings, 8), drawings.n == DRAWN_TOGETHER);
    }
    drawings.n = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_same_draws_on_any_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_one_that_fails_fails_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_how_many_draw_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_draws_beside_beams, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
