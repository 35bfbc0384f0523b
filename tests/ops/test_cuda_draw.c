// Tokens drawn on the GPU against the sampler's own: the same token and the same bits of its
// log-probability, for every mixture of temperature, top-k, top-p and min-p, and for rows that are
// flat, peaked, tied, partly forbidden or broken.
#include "engine/run/sampler.h"
#include "tests/ops/twin.h"

// Rows of a step at most, and those of the rounds: one row is drawn by one to eight thread blocks, by
// the number of rows.
enum { N = 72, N_ADJUSTED = 24, ROUNDS = 6 };
static const int32_t rows_of_round[ROUNDS] = {24, 5, 72, 40, 1, 24};

// Fills in one row of logits of this kind.
static void fill_row(float *x, int32_t vocab, int kind) {
    float size = kind % 4 == 0 ? 0.3f : kind % 4 == 1 ? 3 : kind % 4 == 2 ? 12 : 40;
    for (int32_t i = 0; i < vocab; i++) x[i] = op_random() * size - 5;
    if (kind % 5 == 1) // many equal ones
        for (int32_t i = 0; i < vocab; i++) x[i] = floorf(x[i]);
    if (kind % 5 == 2)
        for (int32_t i = 0; i < vocab; i += 3) x[i] = -INFINITY;
    if (kind % 5 == 3) // only the last one is allowed
        for (int32_t i = 0; i + 1 < vocab; i++) x[i] = -INFINITY;
}

static void params_of(struct sampling_params *p, int i) {
    sampling_params_init(p);
    static const float temperatures[] = {1, 0, 0.7f, 1.6f, 0.05f};
    p->temperature = temperatures[i % 5];
    p->top_k = i % 3 == 1 ? 40 : i % 3 == 2 ? 5 + i : 0;
    p->top_p = i % 4 == 1 ? 0.9f : i % 4 == 2 ? 0.3f : 1;
    p->min_p = i % 7 == 3 ? 0.05f : i % 7 == 5 ? 1 : 0;
    p->seed = 77 + (uint64_t)i;
    p->has_seed = true;
}

struct host { // the sampler's answers to rows of logits
    struct sampler s;
    struct sampler_work work;
};

static void check_rows(const struct twin *w, struct host *h, const float *logits, int32_t vocab,
                       int round) {
    const int32_t n = rows_of_round[round];
    struct twin_rows rows;
    struct batch_draw plans[N];
    struct batch_drawn drawn[N];
    struct sampling_params params[N];
    int32_t ids[N] = {0}, positions[N], wanted[N];
    for (int i = 0; i < n; i++) {
        positions[i] = 100 + i, wanted[i] = i;
        params_of(&params[i], i + round * 5);
        assert_int_equal(sampler_begin(&h->s, &params[i], 0, NULL, 0, NULL, 0, NULL), 0);
        plans[i] = sampler_plan(&h->s, positions[i] + round, 0);
        assert_int_not_equal(plans[i].kind, DRAW_NONE);
    }
    plans[7].kind = DRAW_NONE; // the host draws it
    float *g = twin_up_bytes(w, logits, (size_t)n * (size_t)vocab * sizeof *g);
    const struct batch *run;
    twin_rows_fill(&rows, n, ids, positions, wanted, n);
    rows.b.draws = plans;
    assert_int_equal(w->gpu->ops->step_begin(w->gpu, &rows.b, &run), 0);
    assert_int_equal(w->gpu->ops->draw(w->gpu, g, run, n, vocab), 0);
    assert_int_equal(w->gpu->ops->step_launch(w->gpu), 0);
    assert_int_equal(w->gpu->ops->draws_read(w->gpu, drawn, n), 0);
    assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
    int host_draws = 0;
    for (int i = 0; i < n; i++) {
        struct sampled want;
        struct err err = {0};
        assert_int_equal(sampler_begin(&h->s, &params[i], 0, NULL, 0, NULL, 0, NULL), 0);
        int rc = sampler_draw(&h->s, &h->work, logits + (int64_t)i * vocab, positions[i] + round,
                              &want, &err);
        if (i == 7 || rc < 0) {
            assert_int_equal(drawn[i].id, -1);
        } else if (drawn[i].id == -1) {
            host_draws++;
        } else {
            if (drawn[i].id != want.id)
                fail_msg("row %d of %d, round %d: %d, not %d", i, vocab, round, drawn[i].id,
                         want.id);
            op_same_bits(&drawn[i].logprob, &want.logprob, 1, "logprob");
        }
    }
    assert_true(host_draws <= (vocab > 2048 ? (n + 2) / 3 : 0)); // only if a bucket is too full
    twin_free(w, g);
}

// --- draws that change the logits ----------------------------------------------------------------

enum { LOGGED = 60, ACCEPTED = 20 };

// Penalties, biases, bans and ends held back, in mixtures.
static void adjusting_params(struct sampling_params *p, int i, int32_t vocab) {
    params_of(p, i);
    if (i % 2) p->repetition_penalty = i % 4 == 1 ? 1.3f : 0.7f;
    if (i % 3 == 1) p->presence_penalty = 1.5f;
    if (i % 5 == 2) p->frequency_penalty = -0.4f;
    int32_t n = i % 4 == 2 ? vocab / 3 : 0;
    for (int32_t k = 0; k < n && k < SAMPLING_MAX_BIAS; k++)
        p->bias[p->n_bias++] =
            (struct logit_bias){(k * 3) % vocab, k % 5 ? (float)(k % 9) - 4 : -INFINITY};
    for (int32_t k = 0; k < 6 && i % 6 == 4; k++) {
        int32_t id = (k * 7919 + i) % vocab;
        assert_int_equal(sampling_words_add_ids(&p->bad_words, "bad_words", &id, 1, NULL), 0);
    }
    if (i % 3 == 0) p->min_tokens = ACCEPTED + 5;
}

static void begin_adjusting(struct host *h, const struct sampling_params *p, int32_t vocab) {
    static const int32_t eos[] = {0, 31};
    int32_t log[LOGGED];
    for (int32_t k = 0; k < LOGGED; k++) log[k] = k * 37 % vocab;
    assert_int_equal(sampler_begin(&h->s, p, 0, eos, 2, log, LOGGED, NULL), 0);
    for (int32_t k = 0; k < ACCEPTED; k++) sampler_accept(&h->s, k * k % vocab);
}

static void draw_adjusted(const struct twin *w, struct host *h,
                          const struct sampling_params *params, uint64_t *const *allowed,
                          const float *logits, int32_t n, int32_t vocab,
                          struct batch_drawn *drawn) {
    const struct backend_ops *ops = w->gpu->ops;
    struct twin_rows rows;
    struct batch_draw none[N_ADJUSTED] = {0};
    int32_t ids[N_ADJUSTED] = {0}, positions[N_ADJUSTED], wanted[N_ADJUSTED];
    for (int i = 0; i < n; i++) positions[i] = 100 + i, wanted[i] = i;
    float *g = twin_up_bytes(w, logits, (size_t)n * (size_t)vocab * sizeof *g);
    const struct batch *run;
    twin_rows_fill(&rows, n, ids, positions, wanted, n);
    rows.b.draws = none;
    assert_int_equal(ops->step_begin(w->gpu, &rows.b, &run), 0);
    assert_int_equal(ops->draw(w->gpu, g, run, n, vocab), 0);
    assert_int_equal(ops->step_launch(w->gpu), 0);
    for (int i = 0; i < n; i++) {
        if (i == 5) continue; // one row is the host's
        struct batch_adjusted a;
        struct err err = {0};
        begin_adjusting(h, &params[i], vocab);
        assert_int_equal(sampler_adjustment(&h->s, &h->work, positions[i], &a, &err), 0);
        a.row = i;
        if (allowed[i]) a.allowed = allowed[i];
        assert_int_equal(ops->draw_adjust(w->gpu, &a, vocab), 0);
    }
    assert_int_equal(ops->draw_adjusted(w->gpu, g, vocab), 0);
    assert_int_equal(ops->draws_read(w->gpu, drawn, n), 0);
    assert_int_equal(ops->step_end(w->gpu), 0);
    twin_free(w, g);
}

static void check_adjusted(const struct twin *w, struct host *h, const float *logits, int32_t vocab,
                           int round) {
    const int32_t n = rows_of_round[round] < N_ADJUSTED ? rows_of_round[round] : N_ADJUSTED;
    static struct sampling_params params[N_ADJUSTED];
    struct batch_drawn drawn[N_ADJUSTED];
    uint64_t *allowed[N_ADJUSTED] = {0};
    float *masked = malloc((size_t)vocab * sizeof *masked);
    for (int i = 0; i < n; i++) {
        adjusting_params(&params[i], i + round * 5, vocab);
        if (i % 4 != 3) continue; // the others also get a mask, as from a grammar
        sampling_params_init(&params[i]);
        params[i].temperature = i % 8 == 3 ? 0 : 0.8f;
        params[i].repetition_penalty = 1.2f;
        params[i].seed = (uint64_t)i, params[i].has_seed = true;
        allowed[i] = calloc((size_t)(vocab + 63) / 64, sizeof **allowed);
        for (int32_t v = 0; v < vocab; v++)
            if (v == vocab - 1 || op_random() > (i == 3 ? 0 : 0.95f))
                allowed[i][v / 64] |= (uint64_t)1 << v % 64;
    }
    draw_adjusted(w, h, params, allowed, logits, n, vocab, drawn);
    int host_draws = 0;
    for (int i = 0; i < n; i++) {
        const float *x = logits + (int64_t)i * vocab;
        struct sampled want;
        struct err err = {0};
        float own;
        memcpy(masked, x, (size_t)vocab * sizeof *masked);
        for (int32_t v = 0; v < vocab && allowed[i]; v++)
            if (!(allowed[i][v / 64] >> v % 64 & 1)) masked[v] = -INFINITY;
        begin_adjusting(h, &params[i], vocab);
        int rc = sampler_draw(&h->s, &h->work, masked, 100 + i, &want, &err);
        if (rc == 0) rc = sampler_logprob(x, vocab, want.id, &own, &err);
        if (i == 5 || rc < 0) {
            assert_int_equal(drawn[i].id, -1);
        } else if (drawn[i].id == -1) {
            host_draws++;
        } else {
            if (drawn[i].id != want.id)
                fail_msg("changed row %d of %d, round %d: %d, not %d", i, vocab, round, drawn[i].id,
                         want.id);
            op_same_bits(&drawn[i].logprob, &own, 1, "logprob");
        }
        free(allowed[i]);
    }
    free(masked);
    assert_true(host_draws <= (vocab > 2048 ? (n + 2) / 3 : 0));
}

static void draws(const struct twin *w) {
    static const int32_t vocabs[] = {1, 2, 33, 1000, 2500, 50257, 128256};
    const bool few = test_scale() < 1; // each access is looked at: the first and the last round
    if (w->t != DTYPE_F32) return;     // logits are F32 in any case
    for (int v = 0; v < 7; v++) {
        int32_t vocab = few && v == 5 ? 9001 : vocabs[v];
        if (few && v == 6) continue;
        struct host h;
        struct err err = {0};
        const struct step_limits l = {.max_rows = 256,
                                      .max_seqs = N,
                                      .max_map = 4096,
                                      .n_heads = 1,
                                      .n_kv_heads = 1,
                                      .head_dim = 64,
                                      .vocab = vocab};
        assert_int_equal(sampler_init(&h.s, vocab, &err), 0);
        assert_int_equal(sampler_work_init(&h.work, vocab, &err), 0);
        if (w->gpu->ops->step_reserve(w->gpu, &l, &err) < 0) fail_msg("%s", err.text);
        float *logits = malloc((size_t)N * (size_t)vocab * sizeof *logits);
        op_seed((uint64_t)vocab);
        // A width that comes twice is recorded as a graph. This test is about direct launches, so
        // recording is off.
        cuda_graphs_set(w->gpu, false);
        for (int round = 0; round < ROUNDS; round += few ? 5 : 1) {
            for (int i = 0; i < rows_of_round[round]; i++)
                fill_row(logits + (int64_t)i * vocab, vocab, i + round);
            if (round == 5) {
                logits[3 * vocab + vocab / 2] = NAN;
                logits[4 * vocab] = INFINITY;
                for (int32_t i = 0; i < vocab; i++) logits[5 * vocab + i] = -INFINITY;
            }
            check_rows(w, &h, logits, vocab, round);
            check_adjusted(w, &h, logits, vocab, round);
        }
        free(logits);
        sampler_release(&h.s);
        sampler_work_release(&h.work);
    }
}

static void test_draws(void **state) {
    twin_each(draws);
}

// --- a step that follows --------------------------------------------------------------------------

enum { FED = 9, FED_VOCAB = 257, FED_WIDTH = 64, FED_STEPS = 5 };

// The first logits of a step whose greedy draws are ids.
static void logits_for(float *x, const int32_t *ids) {
    memset(x, 0, FED * FED_VOCAB * sizeof *x);
    for (int i = 0; i < FED; i++) x[i * FED_VOCAB + ids[i]] = 4;
}

// Each step embeds what the step before draws, in another order, before the host has read it. Also when the steps are
// recorded and launched again.
static void follows(const struct twin *w) {
    const struct backend_ops *ops = w->gpu->ops;
    const struct step_limits l = {.max_rows = FED,
                                  .max_seqs = FED,
                                  .max_map = 4096,
                                  .n_heads = 1,
                                  .n_kv_heads = 1,
                                  .head_dim = 64,
                                  .vocab = FED_VOCAB};
    struct err err = {0};
    struct weight table;
    float *values = twin_floats(w, FED_VOCAB * FED_WIDTH), logits[FED * FED_VOCAB];
    struct tensor_view view = {values, DTYPE_F32, FED_VOCAB, FED_WIDTH, FED_WIDTH, 1, NULL, 0};
    int32_t positions[FED] = {0}, wanted[FED], ids[FED], drawn[FED_STEPS][FED];
    struct batch_draw greedy[FED];
    struct batch_drawn got[FED];
    if (ops->weight_init(w->gpu, &table, &view, 1, &err) < 0) fail_msg("%s", err.text);
    if (ops->step_reserve(w->gpu, &l, &err) < 0) fail_msg("%s", err.text);
    void *y = twin_up(w, NULL, FED * FED_WIDTH), *x = twin_alloc(w, sizeof logits);
    for (int step = 0; step < FED_STEPS; step++) {
        const struct batch *run;
        struct twin_rows rows;
        for (int i = 0; i < FED; i++) {
            wanted[i] = i;
            greedy[i] = (struct batch_draw){.kind = DRAW_GREEDY};
            ids[i] = step ? BATCH_DRAWN(FED - 1 - i) : i;
            drawn[step][i] = (step * 31 + i * 17) % FED_VOCAB;
        }
        logits_for(logits, drawn[step]);
        twin_rows_fill(&rows, FED, ids, positions, wanted, FED);
        rows.b.draws = greedy;
        rows.b.follows = step > 0;
        // This write waits for the step before, so that a recorded step never holds it.
        assert_int_equal(ops->mem_write(w->gpu, x, logits, sizeof logits), 0);
        int rc = ops->step_begin(w->gpu, &rows.b, &run);
        assert_true(rc >= 0);
        if (rc != STEP_REPLAYED) {
            assert_int_equal(ops->embed(w->gpu, y, run, &table, 1), 0);
            assert_int_equal(ops->draw(w->gpu, x, run, run->n_logits, FED_VOCAB), 0);
            assert_int_equal(ops->step_launch(w->gpu), 0);
        }
        if (step > 0) {
            assert_int_equal(ops->draws_read_before(w->gpu, got, FED), 0);
            for (int i = 0; i < FED; i++) assert_int_equal(got[i].id, drawn[step - 1][i]);
            float *rows_got = twin_down(w, y, FED * FED_WIDTH, w->t);
            for (int i = 0; i < FED; i++)
                assert_memory_equal(rows_got + i * FED_WIDTH,
                                    values + drawn[step - 1][FED - 1 - i] * FED_WIDTH,
                                    FED_WIDTH * sizeof *values);
            free(rows_got);
        }
        assert_int_equal(ops->step_end(w->gpu), 0);
    }
    assert_int_equal(ops->draws_read(w->gpu, got, FED), 0);
    for (int i = 0; i < FED; i++) assert_int_equal(got[i].id, drawn[FED_STEPS - 1][i]);
    ops->weight_release(w->gpu, &table);
    twin_free(w, y), twin_free(w, x);
    free(values);
}

static void test_follows(void **state) {
    twin_each(follows);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_draws),
                                       cmocka_unit_test(test_follows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
