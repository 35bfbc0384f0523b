// Draws that change their logits first, on a device: penalties, biases, bans, ends held back and grammars
// give the tokens that the host draws, also beside turns that only the host can draw. The device here is the CPU with a
// draw of its own (greedy).
#include "tests/unit/engine_fixture.h"

enum { TURNS = 6, LONG = 40, MASK_WORDS = 4096 };
static struct backend_ops drawing;
static const float *step_logits;
static const struct batch_draw *step_draws;
static int32_t step_vocab, n_adjusted, n_plain, n_declined;
static struct { // the step's changed rows
    int32_t row, best;
} changed[TURNS];
static int32_t n_changed;
static bool declines;
static int64_t effort; // for the masks of a round; 0: the engine's
static int n_waits;    // rounds that left a turn without its mask
static bool all;       // all turns have the grammar
static struct outcome host[TURNS], device[TURNS];
static const struct grammar_text *regex;

static int draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                int32_t vocab) {
    step_logits = logits;
    step_draws = b->draws;
    step_vocab = vocab;
    n_changed = 0;
    return 0;
}

static bool is_end(const struct batch_adjusted *a, int32_t id) {
    for (int32_t i = 0; i < a->n_ends; i++)
        if (a->ends[i] == id) return true;
    return false;
}

static int draw_adjust(struct backend *be, const struct batch_adjusted *a, int32_t vocab) {
    assert_int_equal(vocab, step_vocab);
    assert_int_equal(step_draws[a->row].kind, DRAW_NONE);
    assert_int_equal(a->draw.kind, DRAW_GREEDY);
    if (declines && n_declined++ % 2) return OP_DECLINED;
    float *x = malloc((size_t)vocab * sizeof *x);
    memcpy(x, step_logits + (int64_t)a->row * vocab, (size_t)vocab * sizeof *x);
    for (int32_t i = 0; i < a->n_penalties; i++) {
        float *l = &x[a->penalties[i].id];
        *l = *l < 0 ? *l * a->repetition : *l / a->repetition;
        if (a->penalties[i].count > 0)
            *l = *l - a->presence - a->frequency * (float)a->penalties[i].count;
    }
    for (int32_t i = 0; i < a->n_biases; i++) x[a->biases[i].id] += a->biases[i].bias;
    for (int32_t v = 0; v < vocab && a->allowed; v++)
        if (!(a->allowed[v / 64] >> v % 64 & 1) && !is_end(a, v)) x[v] = -INFINITY;
    changed[n_changed].row = a->row;
    changed[n_changed++].best = best_of(x, vocab);
    free(x);
    return 0;
}

static int draw_adjusted(struct backend *be, const float *logits, int32_t vocab) {
    assert_ptr_equal(logits, step_logits);
    assert_true(n_changed > 0);
    n_adjusted += n_changed;
    return 0;
}

static int draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        bool greedy = step_draws[i].kind == DRAW_GREEDY;
        const float *row = step_logits + (int64_t)i * step_vocab;
        out[i] = (struct batch_drawn){greedy ? best_of(row, step_vocab) : -1, -0.5f};
        n_plain += greedy;
    }
    for (int32_t i = 0; i < n_changed; i++) out[changed[i].row].id = changed[i].best;
    return 0;
}

static void ban(struct sampling_params *p, int32_t id, float bias) {
    p->bias[p->n_bias++] = (struct logit_bias){id, bias};
}

// One turn of each kind: nothing, penalties, biases and a ban, a held back end with a bad word, a grammar,
// and one with alternatives, which the host draws.
static void params_of(struct engine_turn *t, int i) {
    struct sampling_params *p = &t->sampling;
    struct err err = {0};
    static const int32_t word[] = {300, 301};
    if (all) i = 4;
    p->ignore_eos = i != 3 && i != 4;
    if (i == 1)
        p->repetition_penalty = 1.4f, p->frequency_penalty = 0.3f, p->presence_penalty = 0.2f;
    if (i == 2) ban(p, host[0].ids[0], -INFINITY), ban(p, host[0].ids[1], 2), ban(p, 400, 3.5f);
    if (i == 3) p->min_tokens = 30;
    if (i == 3)
        assert_int_equal(sampling_words_add_ids(&p->bad_words, "bad_words", word, 2, &err), 0);
    if (i == 4) {
        p->grammar = regex;
        struct grammar *compiled;
        assert_int_equal(engine_grammar_prepare(e, 0, regex, &compiled, &err), 0);
        engine_grammar_release(compiled);
    }
    if (i == 5) p->top_logprobs = 2, p->repetition_penalty = 1.4f;
}

static void talk(bool draws, struct outcome *o) {
    struct engine_options opt;
    struct err err = {0};
    options(&opt);
    opt.model_dir = "configs/demo-model";
    opt.max_sequences = TURNS;
    opt.max_queued_turns = TURNS;
    if (engine_open_manual(&e, &opt, &clock_system, &err) < 0) fail_msg("%s", err.text);
    e->core.check = true;
    if (effort > 0) e->core.mask_effort = effort;
    drawing = *e->backend->ops;
    drawing.draw = draw;
    drawing.draws_read = draws_read;
    drawing.draw_adjust = draw_adjust;
    drawing.draw_adjusted = draw_adjusted;
    if (draws) e->backend->ops = &drawing;
    n_adjusted = n_plain = n_declined = n_waits = 0;
    struct engine_turn t[TURNS];
    for (int i = 0; i < TURNS; i++) {
        t[i] = ask((uint64_t)i + 1,
                   "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n", LONG);
        params_of(&t[i], i);
    }
    memset(o, 0, TURNS * sizeof *o);
    for (int i = 0; i < TURNS; i++) submit(e, &t[i]);
    struct engine_event ev;
    for (int rounds = 0, n_done = 0; n_done < TURNS; rounds++) {
        assert_true(rounds < 100 * LONG);
        assert_true(engine_round(e));
        for (int32_t i = 0; i < e->core.sched.n_running; i++)
            n_waits += e->core.sched.running[i]->needs_mask;
        while (engine_poll(e, &ev) == 1) {
            outcome_take(&o[ev.sequence - 1], &ev);
            n_done += ev.kind == ENGINE_DONE;
        }
    }
    engine_close(e);
    e = NULL;
}

static void assert_same(void) {
    for (int i = 0; i < TURNS; i++) {
        assert_int_equal(device[i].finish, host[i].finish);
        assert_int_equal(device[i].n, host[i].n);
        assert_memory_equal(device[i].ids, host[i].ids, (size_t)host[i].n * sizeof *host[i].ids);
        assert_string_equal(device[i].text, host[i].text);
    }
}

static void the_device_draws_as_the_host(void **state) {
    struct err err = {0};
    const char *form = "[a-z]{3,8}( [a-z]{2,9}){4,7}\\.";
    assert_int_equal(grammar_text_new(&regex, GRAMMAR_REGEX, form, strlen(form), &err), 0);
    talk(false, host); // the first tokens, which are then forbidden
    talk(false, host);
    assert_true(host[1].n > 0 && memcmp(host[1].ids, host[0].ids, LONG * sizeof *host[0].ids) != 0);
    assert_int_not_equal(host[2].ids[0], host[0].ids[0]);
    assert_int_equal(host[4].finish, FINISH_EOS);
    declines = false;
    talk(true, device);
    assert_same();
    assert_int_equal(n_adjusted, host[1].n + host[2].n + host[3].n + host[4].n);
    assert_int_equal(n_plain, LONG);
    declines = true;
    talk(true, device);
    assert_same();
    assert_true(n_adjusted > LONG && n_declined > 2 * LONG);
    grammar_text_free(regex);
}

// The masks take several rounds each, so the device computes rows whose masks are not complete, beside the draws of
// the other turns.
static void masks_may_come_too_late(void **state) {
    struct err err = {0};
    const char *form = "(.*[ae].{0,50}){2}[bc].{0,9}x{9}";
    assert_int_equal(grammar_text_new(&regex, GRAMMAR_REGEX, form, strlen(form), &err), 0);
    declines = false;
    talk(false, host);
    effort = 8000;
    talk(true, device);
    assert_same();
    assert_true(n_waits > host[4].n / 2);
    assert_int_equal(n_adjusted, host[1].n + host[2].n + host[3].n + host[4].n);
    all = true;
    talk(true, device);
    for (int i = 0; i < TURNS; i++) {
        assert_int_equal(device[i].n, host[4].n);
        assert_memory_equal(device[i].ids, host[4].ids, (size_t)host[4].n * sizeof *host[4].ids);
    }
    assert_int_equal(n_adjusted, TURNS * host[4].n);
    all = false;
    effort = 0;
    grammar_text_free(regex);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_device_draws_as_the_host),
        cmocka_unit_test(masks_may_come_too_late),
    };
    return cmocka_run_group_tests_name("adjusted draws", tests, NULL, NULL);
}
