// Tokens that a device draws are emitted while it computes the next step: later than those that the
// host draws, otherwise the same. The device here is the CPU with a draw of its own.
#include "tests/unit/engine_fixture.h"

enum { TURNS = 3, LONG = 48 };
static struct backend_ops drawing;
static const float *step_logits;
static const struct batch_draw *step_draws;
static int32_t step_vocab, n_drawn;
static struct outcome host[TURNS], device[TURNS];
static char stop[8]; // of the last turn; empty: none

static int draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                int32_t vocab) {
    step_logits = logits;
    step_draws = b->draws;
    step_vocab = vocab;
    return 0;
}

static int draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        const float *row = step_logits + (int64_t)i * step_vocab;
        bool greedy = step_draws[i].kind == DRAW_GREEDY;
        out[i] = (struct batch_drawn){greedy ? best_of(row, step_vocab) : -1, -0.5f};
        n_drawn += out[i].id >= 0;
    }
    return 0;
}

static void open_demo(bool draws) {
    struct engine_options o;
    struct err err = {0};
    options(&o);
    o.model_dir = "configs/demo-model";
    o.max_sequences = TURNS;
    if (engine_open_manual(&e, &o, &clock_system, &err) < 0) fail_msg("%s", err.text);
    e->core.check = true;
    drawing = *e->backend->ops;
    drawing.draw = draw;
    drawing.draws_read = draws_read;
    if (draws) e->backend->ops = &drawing;
    n_drawn = 0;
}

static void take_all(struct outcome *o) {
    struct engine_event ev;
    while (engine_poll(e, &ev) == 1) outcome_take(&o[ev.sequence - 1], &ev);
}

// One turn to its length, one to its eos, one to a stop string that begins in one token and ends in
// another, all in the same steps.
static void talk(bool draws, struct outcome *o) {
    struct engine_turn t[TURNS];
    open_demo(draws);
    memset(o, 0, TURNS * sizeof *o);
    t[0] = ask(1, "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n", LONG);
    t[1] = ask(2, "<|im_start|>user\nMy name is Zora.<|im_end|>\n<|im_start|>assistant\n", LONG);
    t[1].sampling.ignore_eos = false;
    t[2] =
        ask(3, "<|im_start|>user\nCount from one to ten.<|im_end|>\n<|im_start|>assistant\n", LONG);
    if (stop[0]) sampling_words_add_text(&t[2].sampling.stop, "stop", stop, strlen(stop), NULL);
    for (int i = 0; i < TURNS; i++) submit(e, &t[i]);
    for (int rounds = 0; !(o[0].done && o[1].done && o[2].done); rounds++) {
        assert_true(rounds < 20 * LONG);
        assert_true(engine_round(e));
        take_all(o);
    }
    engine_close(e);
    e = NULL;
}

static void the_same_is_said(void **state) {
    stop[0] = 0;
    talk(false, host);
    memcpy(stop, host[2].text + host[2].text_len / 2, 5);
    talk(false, host);
    talk(true, device);
    assert_true(n_drawn > LONG);
    for (int i = 0; i < TURNS; i++) {
        assert_int_equal(device[i].n, host[i].n);
        assert_memory_equal(device[i].ids, host[i].ids, (size_t)host[i].n * sizeof *host[i].ids);
        assert_string_equal(device[i].text, host[i].text);
        assert_int_equal(device[i].finish, host[i].finish);
    }
    assert_int_equal(host[0].finish, FINISH_LENGTH);
    assert_int_equal(host[1].finish, FINISH_EOS);
    assert_int_equal(host[2].finish, FINISH_STOP);
}

// A drawn token is emitted in the next round, or before the turn's end if that comes first.
static void a_step_later_and_never_lost(void **state) {
    struct engine_turn t;
    struct engine_event ev;
    open_demo(true);
    t = ask(1, "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n", LONG);
    submit(e, &t);
    while (n_drawn < 3) assert_true(engine_round(e));
    assert_int_equal(e->core.n_pending, 1);
    memset(host, 0, sizeof host);
    take_all(host);
    assert_int_equal(host[0].n, 2);
    engine_turn_cancel(e, 1, 1);
    assert_true(engine_round(e));
    assert_int_equal(e->core.n_pending, 0);
    take_all(host);
    assert_true(host[0].done);
    assert_int_equal(host[0].n, 3);
    assert_int_equal(host[0].finish, FINISH_CANCELLED);
    // At the engine's end every event has been emitted.
    t = ask(2, "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n", LONG);
    submit(e, &t);
    for (n_drawn = 0; n_drawn < 2;) assert_true(engine_round(e));
    assert_int_equal(e->core.n_pending, 1);
    while (engine_poll(e, &ev) == 1) continue;
    engine_close(e);
    e = NULL;
}

// A step that fails loses no token that was drawn before it.
static int failing_linear(struct backend *be, enum linear_mode mode, void *y, const void *x,
                          int32_t n, const struct weight *w, const float *bias) {
    return E_DEVICE;
}

static void a_failed_step_tells_first(void **state) {
    struct engine_turn t;
    open_demo(true);
    t = ask(1, "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n", LONG);
    submit(e, &t);
    while (n_drawn < 3) assert_true(engine_round(e));
    drawing.linear = failing_linear;
    assert_false(engine_round(e));
    memset(host, 0, sizeof host);
    take_all(host);
    assert_int_equal(host[0].n, 3);
    assert_true(host[0].done);
    assert_int_equal(host[0].error_code, E_DEVICE);
    engine_close(e);
    e = NULL;
}

// A turn ends with a token of the device's while the host draws another one's from the same step.
static void one_ends_beside_a_draw_of_the_host(void **state) {
    open_demo(true);
    struct engine_turn t[2];
    for (uint64_t i = 0; i < 2; i++)
        t[i] = ask(i + 1, "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n",
                   LONG);
    t[0].sampling.max_tokens = 5;
    t[1].sampling.top_logprobs = 2;
    for (int i = 0; i < 2; i++) submit(e, &t[i]);
    memset(device, 0, sizeof device);
    for (int rounds = 0; !(device[0].done && device[1].done); rounds++) {
        assert_true(rounds < 20 * LONG);
        assert_true(engine_round(e));
        take_all(device);
    }
    assert_int_equal(device[0].n, 5);
    assert_int_equal(device[1].n, LONG);
    assert_memory_equal(device[0].ids, device[1].ids, 5 * sizeof *device[0].ids);
    engine_close(e);
    e = NULL;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_ends_beside_a_draw_of_the_host),
        cmocka_unit_test(the_same_is_said),
        cmocka_unit_test(a_step_later_and_never_lost),
        cmocka_unit_test(a_failed_step_tells_first),
    };
    return cmocka_run_group_tests_name("tell", tests, NULL, NULL);
}
