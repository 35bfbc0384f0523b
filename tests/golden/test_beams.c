// Beam search through the whole engine against a plain reference: one that keeps no cache and computes
// every beam's log from its first token for every step (score-only turns), and ranks with the rules as
// engine/sampling/beams.h states them, over sorted lists. Penalties on length, diversity of both signs,
// early stopping, ends of beams.
#include "tests/golden/runner.h"

enum { PROMPT = 30, MOST = 9, WIDEST = 5 };

struct hypothesis {
    int32_t ids[MOST], n;
    double sum, score;
};
struct candidate {
    int32_t beam, id;
    double sum, key;
};
struct world {
    struct engine *e;
    struct rows rows;
    int32_t log[PROMPT];
    const struct sampling_params *p;
    struct hypothesis running[WIDEST], pool[WIDEST];
    int32_t n_running, n_pool;
};

static int by_key(const void *a, const void *b) {
    const struct candidate *x = a, *y = b;
    if (x->key != y->key) return x->key > y->key ? -1 : 1;
    return x->beam != y->beam ? x->beam - y->beam : x->id - y->id;
}

// The logits behind the prompt and these ids.
static const float *logits_of(struct world *w, const struct hypothesis *h) {
    int32_t log[PROMPT + MOST];
    struct outcome o;
    memcpy(log, w->log, sizeof w->log);
    memcpy(log + PROMPT, h->ids, (size_t)h->n * sizeof *log);
    struct engine_turn t = turn_for(w->e, 9, log, PROMPT + h->n, 0, 0);
    t.score_only = true;
    t.on_logits = rows_keep;
    t.on_logits_ctx = &w->rows;
    run_turn(w->e, &t, &o);
    release(w->e, 9);
    return w->rows.data + (PROMPT + h->n - 1) * w->rows.vocab;
}

static double score(const struct world *w, double sum, int32_t n) {
    return sum / pow(n, (double)w->p->len_penalty);
}

// A beam's best continuations, each with its rank among them.
static void rank(struct world *w, int32_t beam, int32_t n_keep, struct candidate *out) {
    const struct hypothesis *h = &w->running[beam];
    const float *x = logits_of(w, h);
    int32_t n = w->rows.vocab;
    struct candidate *all = calloc((size_t)n, sizeof *all);
    double total = 0;
    assert_non_null(all);
    for (int32_t i = 0; i < n; i++) total += exp((double)x[i]);
    for (int32_t i = 0; i < n; i++) {
        double logprob = (double)x[i] - log(total);
        all[i] = (struct candidate){beam, i, h->sum + logprob, logprob};
    }
    qsort(all, (size_t)n, sizeof *all, by_key);
    for (int32_t r = 0; r < n_keep; r++) {
        out[r] = all[r];
        out[r].key =
            score(w, out[r].sum, h->n + 1) + (double)w->p->beam_search_diversity_rate * (double)r;
    }
    free(all);
}

static void extend(const struct world *w, const struct candidate *c, struct hypothesis *to) {
    *to = w->running[c->beam];
    to->ids[to->n++] = c->id;
    to->sum = c->sum;
    to->score = score(w, to->sum, to->n);
}

static void pool_add(struct world *w, const struct hypothesis *h, int32_t width) {
    int32_t at = w->n_pool;
    while (at > 0 && h->score > w->pool[at - 1].score) at--;
    if (at == width) return;
    if (w->n_pool < width) w->n_pool++;
    for (int32_t i = w->n_pool - 1; i > at; i--) w->pool[i] = w->pool[i - 1];
    w->pool[at] = *h;
}

static bool is_over(const struct world *w, int32_t width) {
    if (w->n_running == 0) return true;
    if (w->n_pool < width) return false;
    for (int32_t i = 0; i < w->n_running && !w->p->early_stopping; i++)
        if (w->running[i].score > w->pool[width - 1].score) return false;
    return true;
}

static void reference(struct world *w) {
    const struct sampling_params *p = w->p;
    struct candidate all[WIDEST * 2 * WIDEST];
    int32_t width = p->beam_width, n_keep = 2 * width; // one end token
    w->running[0] = (struct hypothesis){.n = 0};
    w->n_running = 1;
    w->n_pool = 0;
    do {
        struct hypothesis next[WIDEST];
        int32_t n = 0, n_next = 0;
        for (int32_t b = 0; b < w->n_running; b++, n += n_keep) rank(w, b, n_keep, all + n);
        qsort(all, (size_t)n, sizeof *all, by_key);
        for (int32_t r = 0; r < n_keep; r++) {
            struct hypothesis h;
            extend(w, &all[r], &h);
            if (h.ids[h.n - 1] == p->end_id || h.n == p->max_tokens) {
                if (r < width) pool_add(w, &h, width);
            } else if (n_next < width) {
                next[n_next++] = h;
            }
        }
        memcpy(w->running, next, sizeof next);
        w->n_running = n_next;
    } while (!is_over(w, width));
}

static void compare(struct world *w, const struct sampling_params *p) {
    struct engine_event ev;
    struct engine_turn t = turn_for(w->e, 1, w->log, PROMPT, 0, 0);
    bool done = false;
    t.sampling = *p;
    w->p = p;
    reference(w);
    submit(w->e, &t);
    while (!done) {
        assert_true(engine_round(w->e));
        while (!done && engine_poll(w->e, &ev) == 1) done = ev.kind == ENGINE_DONE;
    }
    assert_int_equal(ev.branches->n, w->n_pool);
    for (int32_t i = 0; i < w->n_pool; i++) {
        const struct engine_branch *b = &ev.branches->of[i];
        double sum = 0;
        assert_int_equal(b->n, w->pool[i].n);
        assert_memory_equal(b->ids, w->pool[i].ids, (size_t)b->n * sizeof *b->ids);
        for (int32_t k = 0; k < b->n; k++) sum += (double)b->logprobs[k];
        assert_true(fabs(sum - w->pool[i].sum) < 1e-4);
        assert_true(fabs(b->score - w->pool[i].score) < 1e-4);
    }
    release(w->e, 1);
}

static int32_t random_id(uint32_t *seed, int32_t n_vocab) {
    *seed = *seed * 1664525u + 1013904223u;
    return (int32_t)((*seed >> 8) % (uint32_t)n_vocab);
}

static void test_against_a_plain_reference(void **state) {
    static const char *const models[] = {
        "tests/fixtures/models/qwen3", "tests/fixtures/models/bloom",
        "tests/fixtures/models/gpt_oss", "tests/fixtures/later/gemma4_e",
        "tests/fixtures/later/glm4_moe_lite"};
    static const float penalties[] = {0, 1, 2.5f, -1}, rates[] = {0, -0.3f, -2, 0.1f};
    int n_ended_early = 0;
    if (!test_is_exact()) skip(); // near ties fall otherwise
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        struct world w = {.e = engine_for(models[m], 16, 8, 1 << 22)};
        int32_t n_vocab = w.e->info.n_vocab;
        uint32_t seed = 7;
        w.rows = rows_new(n_vocab);
        for (int i = 0; i < PROMPT; i++) w.log[i] = random_id(&seed, n_vocab);
        for (int k = 0; k < 16; k++) {
            struct sampling_params p;
            sampling_params_init(&p);
            p.beam_width = 2 + k % (WIDEST - 1);
            p.max_tokens = MOST - k % 3;
            p.len_penalty = penalties[k % 4];
            p.beam_search_diversity_rate = rates[k / 4];
            p.early_stopping = k % 2;
            // Some beam's second token ends beams.
            p.end_id = k > 0 && w.pool[0].n > 1 ? w.pool[0].ids[1] : 3;
            compare(&w, &p);
            n_ended_early += w.pool[0].n < p.max_tokens;
        }
        free(w.rows.data);
        engine_close(w.e);
    }
    assert_true(n_ended_early > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_a_plain_reference)};
    return cmocka_run_group_tests_name("beams", tests, NULL, NULL);
}
