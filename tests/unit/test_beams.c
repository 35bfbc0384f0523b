// The rules of beam search on a model that is a table: the logits of a hypothesis depend on its last
// token and its length. Checked against trying every hypothesis, and rule by rule.
#include "engine/run/sampler.h"
#include "engine/sampling/beams.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 5, LONGEST = 5, EOS = 0 };
static const int32_t eos[] = {EOS};

static double table[LONGEST][VOCAB + 1][VOCAB]; // log-probabilities by length and last token

static void fill_table(unsigned seed) {
    for (int n = 0; n < LONGEST; n++)
        for (int last = 0; last <= VOCAB; last++) {
            double x[VOCAB], sum = 0;
            for (int i = 0; i < VOCAB; i++) {
                seed = seed * 1664525u + 1013904223u;
                x[i] = (double)(seed >> 8) / (1 << 24) * 4;
                sum += exp(x[i]);
            }
            for (int i = 0; i < VOCAB; i++) table[n][last][i] = x[i] - log(sum);
        }
}

// As the engine does: a sampler without penalties ranks the row's tokens.
static int rank(struct beam_search *s, int32_t beam, const float *logits) {
    struct sampling_params p;
    struct sampler sampler;
    struct sampler_work work;
    struct err err = {0};
    sampling_params_init(&p);
    assert_int_equal(sampler_init(&sampler, VOCAB, &err), 0);
    assert_int_equal(sampler_work_init(&work, VOCAB, &err), 0);
    assert_int_equal(sampler_begin(&sampler, &p, 0, eos, 1, NULL, 0, &err), 0);
    int n = sampler_rank(&sampler, &work, logits, s->n_keep, beam_search_row(s, beam), &err);
    if (n > 0) beam_search_ranked(s, beam, n);
    sampler_release(&sampler);
    sampler_work_release(&work);
    return n;
}

static void search(struct beam_search *s, const struct beam_options *o) {
    struct err err = {0};
    assert_int_equal(beam_search_init(s, o, &err), 0);
    while (!s->over) {
        for (int32_t b = 0; b < s->n_running; b++) {
            float row[VOCAB];
            const struct beam *beam = &s->running[b];
            int last = beam->n ? beam->ids[beam->n - 1] : VOCAB;
            // A constant does not change a softmax
            for (int i = 0; i < VOCAB; i++) row[i] = (float)(table[beam->n][last][i] + 3);
            assert_true(rank(s, b, row) > 0);
        }
        beam_search_step(s);
    }
}

static struct beam_options options(int32_t width, float penalty) {
    return (struct beam_options){.width = width,
                                 .length_penalty = penalty,
                                 .max_tokens = LONGEST,
                                 .eos_ids = eos,
                                 .n_eos = 1};
}

// The best score of all hypotheses.
static double best_of_all(int n, int last, double sum, double penalty) {
    double best = -INFINITY;
    for (int i = 0; i < VOCAB; i++) {
        double with = sum + table[n][last][i];
        bool ends = i == EOS || n + 1 == LONGEST;
        double score = ends ? with / pow(n + 1, penalty) : best_of_all(n + 1, i, with, penalty);
        if (score > best) best = score;
    }
    return best;
}

static double sum_of(const struct beam *b) {
    double sum = 0;
    for (int i = 0; i < b->n; i++) sum += table[i][i ? b->ids[i - 1] : VOCAB][b->ids[i]];
    return sum;
}

// 64 beams lose no hypothesis that could win: the search equals trying all of them.
static void test_wide_search_finds_the_best(void **state) {
    const float penalties[] = {0, 1, 2, -1};
    struct beam_search *s = calloc(1, sizeof *s);
    for (unsigned seed = 1; seed < 40; seed++) {
        fill_table(seed);
        for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
            struct beam_options o = options(BEAMS_MAX, penalties[i]);
            o.n_eos = 0; // none ends early, and every hypothesis of two tokens fits into the beams
            o.max_tokens = 3;
            search(s, &o);
            double best = -INFINITY;
            for (int a = 0; a < VOCAB; a++)
                for (int b = 0; b < VOCAB; b++)
                    for (int c = 0; c < VOCAB; c++)
                        best = fmax(best, (table[0][VOCAB][a] + table[1][a][b] + table[2][b][c]) /
                                              pow(3, (double)penalties[i]));
            assert_true(fabs(s->ended[0].score - best) < 1e-5);
            beam_search_release(s);
        }
    }
    free(s);
}

// Every reported score is that of its ids; the pool is in order; none is better than the best of all.
static void test_scores(void **state) {
    struct beam_search *s = calloc(1, sizeof *s);
    for (unsigned seed = 1; seed < 200; seed++) {
        fill_table(seed);
        struct beam_options o = options(1 + (int32_t)(seed % 6), (float)(seed % 3));
        o.early_stopping = seed % 2;
        o.diversity = (float)(seed % 5) * -0.3f;
        search(s, &o);
        assert_int_equal(s->n_ended, o.width);
        double best = best_of_all(0, VOCAB, 0, (double)o.length_penalty);
        for (int32_t i = 0; i < s->n_ended; i++) {
            const struct beam *b = &s->ended[i];
            double want = sum_of(b) / pow(b->n, (double)o.length_penalty);
            assert_true(fabs(b->score - want) < 1e-5);
            assert_true(b->score <= best + 1e-5);
            if (i) assert_true(b->score <= s->ended[i - 1].score);
            assert_int_equal(b->end, b->ids[b->n - 1] == EOS ? BEAM_EOS : BEAM_LENGTH);
            assert_true(b->end == BEAM_EOS || b->n == LONGEST);
            for (int32_t k = 0; k < b->n - 1; k++) assert_int_not_equal(b->ids[k], EOS);
        }
        beam_search_release(s);
    }
    free(s);
}

// Two beams; all that matters is in the first two steps.
static void test_diversity_turns_the_ranking(void **state) {
    struct beam_search *s = calloc(1, sizeof *s);
    struct err err = {0};
    struct beam_options o = options(2, 0);
    o.n_eos = 0;
    for (int diverse = 0; diverse < 2; diverse++) {
        o.diversity = diverse ? -1 : 0;
        assert_int_equal(beam_search_init(s, &o, &err), 0);
        const float first[VOCAB] = {0, 2, 1.5f, -9, -9};
        assert_true(rank(s, 0, first) > 0);
        beam_search_step(s);
        assert_int_equal(s->running[0].ids[0], 1);
        assert_int_equal(s->running[1].ids[0], 2);
        // The first beam's two best are better than the second's best, by less than 1.
        const float even[VOCAB] = {-9, 5, 5, -9, -9};
        assert_true(rank(s, 0, even) > 0);
        assert_true(rank(s, 1, even) > 0);
        beam_search_step(s);
        assert_int_equal(s->running[0].parent, 0);
        assert_int_equal(s->running[1].parent, diverse ? 1 : 0);
        beam_search_release(s);
    }
    free(s);
}

static void test_early_stopping_ends_sooner(void **state) {
    struct beam_search *s = calloc(1, sizeof *s);
    int sooner = 0;
    for (unsigned seed = 1; seed < 100; seed++) {
        double best[2];
        int longest[2] = {0};
        fill_table(seed);
        for (int early = 0; early < 2; early++) {
            struct beam_options o = options(3, 1);
            o.early_stopping = early;
            search(s, &o);
            best[early] = s->ended[0].score;
            for (int i = 0; i < 3; i++)
                if (s->ended[i].n > longest[early]) longest[early] = s->ended[i].n;
            beam_search_release(s);
        }
        assert_true(best[0] >= best[1]);
        sooner += longest[1] < longest[0];
    }
    assert_true(sooner > 0);
    free(s);
}

static bool is_two(void *ctx, int32_t beam, int32_t id) {
    return id == 2;
}

static void test_a_stop_ends_a_beam(void **state) {
    struct beam_search *s = calloc(1, sizeof *s);
    int stopped = 0;
    for (unsigned seed = 1; seed < 40; seed++) {
        fill_table(seed);
        struct beam_options o = options(3, 1);
        o.stops = is_two;
        search(s, &o);
        for (int32_t i = 0; i < s->n_ended; i++) {
            const struct beam *b = &s->ended[i];
            assert_int_equal(b->end == BEAM_STOP, b->ids[b->n - 1] == 2);
            for (int32_t k = 0; k < b->n - 1; k++) assert_int_not_equal(b->ids[k], 2);
            stopped += b->end == BEAM_STOP;
        }
        beam_search_release(s);
    }
    assert_true(stopped > 0);
    free(s);
}

static void test_broken_logits(void **state) {
    struct beam_search *s = calloc(1, sizeof *s);
    struct err err = {0};
    struct beam_options o = options(2, 1);
    assert_int_equal(beam_search_init(s, &o, &err), 0);
    const float nan_row[VOCAB] = {0, NAN, 0, 0, 0}, inf_row[VOCAB] = {0, INFINITY, 0, 0, 0};
    float none[VOCAB];
    for (int i = 0; i < VOCAB; i++) none[i] = -INFINITY;
    assert_int_equal(rank(s, 0, nan_row), E_INTERNAL);
    assert_int_equal(rank(s, 0, inf_row), E_INTERNAL);
    assert_int_equal(rank(s, 0, none), E_INTERNAL);
    beam_search_release(s);
    free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wide_search_finds_the_best),
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_diversity_turns_the_ranking),
        cmocka_unit_test(test_early_stopping_ends_sooner),
        cmocka_unit_test(test_a_stop_ends_a_beam),
        cmocka_unit_test(test_broken_logits),
    };
    return cmocka_run_group_tests_name("beams", tests, NULL, NULL);
}
