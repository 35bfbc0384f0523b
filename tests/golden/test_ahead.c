// Steps that follow each other (engine/run/flight.c): the same tokens, bits, text, caches and counts as without
// them, however turns end and whatever happens meanwhile.
#include "tests/golden/ahead_device.h"
#include "tests/golden/flight_walk.h"

#include "base/log.h"
#include "base/metrics.h"
#include "engine/text/token_list.h"

static const char *const model = "tests/fixtures/models/qwen3";

enum { TURNS = 4, LONG = 48 };
static struct engine *e;
static struct metrics *counts;
static struct outcome with[TURNS], without[TURNS];

static void open_as(const char *dir, bool follows) {
    struct engine_options o;
    struct err err = {0};
    engine_options_init(&o);
    o.model_dir = dir;
    o.device = test_device_for_ranks();
    o.tensor_parallel = test_ranks("PARLEY_TEST_TP");
    o.compute_dtype = "f32";
    o.deterministic = true;
    o.n_threads = 1;
    o.prefill_chunk_tokens = 16;
    o.block_tokens = 8;
    o.max_sequences = TURNS;
    o.kv_cache_bytes = 16 << 20;
    o.metrics = counts = metrics_new();
    if (engine_open_manual(&e, &o, &clock_system, &err) < 0) fail_msg("%s", err.text);
    e->core.check = true;
    ahead_use(e, follows);
}

static void close_it(void) {
    engine_close(e);
    metrics_free(counts);
    e = NULL;
}

static void take_all(struct outcome *o) {
    struct engine_event ev;
    while (engine_poll(e, &ev) == 1)
        if (ev.sequence >= 1 && ev.sequence <= TURNS) outcome_take(&o[ev.sequence - 1], &ev);
}

static void run_all(struct engine_turn *t, int n, struct outcome *o) {
    memset(o, 0, TURNS * sizeof *o);
    for (int i = 0; i < n; i++) submit(e, &t[i]);
    for (int left = n, rounds = 0; left > 0; rounds++) {
        assert_true(rounds < 100 * LONG);
        assert_true(engine_round(e));
        take_all(o);
        left = n;
        for (int i = 0; i < n; i++) left -= o[i].done;
    }
}

// Rounds until a step follows another.
static void take_off(struct outcome *o) {
    for (int rounds = 0; !flies(e); rounds++) {
        assert_true(rounds < 100);
        assert_true(engine_round(e));
        take_all(o);
    }
}

// The value of a metric that has no labels.
static double count_of(const char *name) {
    struct buf page;
    char line[96];
    buf_init(&page, 1 << 20);
    assert_int_equal(metrics_write(counts, &page), 0);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(buf_z(&page), line);
    if (!at) fail_msg("no metric %s", name);
    double value = atof(at + strlen(line));
    buf_release(&page);
    return value;
}

static struct engine_turn random_turn(uint64_t sequence, int64_t n, int32_t memory_len) {
    int32_t log[128];
    seed = 40 + (uint32_t)sequence;
    random_log(e, log, n);
    struct engine_turn t = turn_for(e, sequence, log, n, memory_len, SINKS);
    t.turn = sequence;
    t.sampling.max_tokens = LONG;
    return t;
}

// --- ends ----------------------------------------------------------------------------------------

static struct engine_turn ask(uint64_t sequence, const char *text) {
    struct token_list ids;
    struct err err = {0};
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, text, strlen(text), true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, sequence, ids.ids, (int64_t)ids.len, 256, 4);
    token_list_release(&ids);
    t.turn = sequence;
    t.sampling.max_tokens = LONG;
    return t;
}

static char stop[8]; // of one turn; empty: none
static double n_steps, n_step_tokens, n_generated, n_prompt;

// All ends in the same steps: length, eos, a stop string that begins in one token and ends in another, and a draw.
static void talk(bool follows, struct outcome *o) {
    struct engine_turn t[TURNS];
    open_as("configs/demo-model", follows);
    t[0] = ask(1, "<|im_start|>user\nTell me a story.<|im_end|>\n<|im_start|>assistant\n");
    t[1] = ask(2, "<|im_start|>user\nMy name is Zora.<|im_end|>\n<|im_start|>assistant\n");
    t[1].sampling.ignore_eos = false;
    t[2] = ask(3, "<|im_start|>user\nCount from one to ten.<|im_end|>\n<|im_start|>assistant\n");
    if (stop[0]) sampling_words_add_text(&t[2].sampling.stop, "stop", stop, strlen(stop), NULL);
    t[3] = ask(4, "<|im_start|>user\nSing.<|im_end|>\n<|im_start|>assistant\n");
    t[3].sampling.temperature = 1;
    t[3].sampling.has_seed = true;
    t[3].sampling.seed = 7;
    run_all(t, TURNS, o);
    n_steps = count_of("parley_engine_steps_total");
    n_step_tokens = count_of("parley_engine_batch_tokens_sum");
    n_generated = count_of("parley_engine_generated_tokens_total");
    n_prompt = count_of("parley_engine_prompt_tokens_total");
    assert_true(follows == (count_of("parley_engine_steps_overlapped_total") > 0));
    close_it();
}

static void test_all_ends(void **state) {
    stop[0] = 0;
    talk(false, without);
    memcpy(stop, without[2].text + without[2].text_len / 2, 5);
    talk(false, without);
    const double steps = n_steps, tokens = n_step_tokens, generated = n_generated, given = n_prompt;
    talk(true, with);
    for (int i = 0; i < TURNS; i++) {
        outcome_same(&with[i], &without[i]);
        assert_int_equal(with[i].blocks, without[i].blocks);
        assert_int_equal(with[i].n_prefilled, without[i].n_prefilled);
    }
    assert_int_equal(with[0].finish, FINISH_LENGTH);
    assert_int_equal(with[1].finish, FINISH_EOS);
    assert_int_equal(with[2].finish, FINISH_STOP);
    assert_true(n_steps == steps && n_step_tokens == tokens);
    assert_true(n_generated == generated && n_prompt == given);
}

// A turn whose length ends it has no row more than it needs.
static void test_length_is_known_ahead(void **state) {
    struct engine_turn t;
    if (strcmp(test_device(), "cpu")) skip(); // rows are not counted there
    open_as(model, true);
    t = random_turn(1, 8, 64);
    run_all(&t, 1, with);
    assert_int_equal(with[0].n, LONG);
    assert_int_equal(ahead.n_rows, 8 + LONG - 1);
    assert_true(ahead.n_followed > LONG / 2);
    close_it();
}

// The cache after a turn that ended with token `n_stop`, at each place of a block and of the window: the next turn
// finds as much of it, and draws the same.
static void stop_after(bool follows, int32_t n_stop, struct outcome *o) {
    struct engine_turn t;
    int32_t log[128];
    open_as(model, follows);
    t = random_turn(1, 21, 32);
    if (n_stop >= 0) { // the ids of the answer are distinct up to there
        t.sampling.ignore_eos = false;
        t.sampling.end_id = without[0].ids[n_stop];
    }
    memcpy(log, t.ids, 21 * sizeof *log);
    run_all(&t, 1, o);
    memcpy(log + 21, o[0].ids, (size_t)o[0].n * sizeof *log);
    int64_t n = 21 + o[0].n;
    log[n++] = 9;
    t = turn_for(e, 1, log, n, 32, SINKS);
    t.n_input = 1;
    t.sampling.max_tokens = 4;
    memset(&o[1], 0, sizeof o[1]);
    run_turn(e, &t, &o[1]);
    close_it();
}

static void test_caches_of_stopped_turns(void **state) {
    static struct outcome all, whole[TURNS];
    int n_tried = 0;
    stop_after(false, -1, without);
    all = without[0];
    for (int32_t n = 0; n < LONG - 1; n++) {
        bool again = false;
        for (int32_t i = 0; i < n; i++) again |= all.ids[i] == all.ids[n];
        if (again) continue;
        without[0] = all;
        stop_after(false, n, whole);
        without[0] = all;
        stop_after(true, n, with);
        assert_int_equal(whole[0].finish, FINISH_EOS);
        assert_int_equal(whole[0].n, n + 1);
        for (int i = 0; i < 2; i++) {
            outcome_same_from(&with[i], &whole[i], whole[i].source, whole[i].n_cached);
            assert_int_equal(with[i].blocks, whole[i].blocks);
        }
        n_tried++;
    }
    assert_true(n_tried > 12);
}

// --- what else happens ---------------------------------------------------------------------------

static void start_two(void) {
    open_as(model, true);
    memset(with, 0, sizeof with);
    for (uint64_t id = 1; id <= 2; id++) {
        struct engine_turn t = random_turn(id, 10, 64);
        submit(e, &t);
    }
    take_off(with);
}

static void finish_both(void) {
    for (int rounds = 0; !(with[0].done && with[1].done); rounds++) {
        assert_true(rounds < 100 * LONG);
        assert_true(engine_round(e));
        take_all(with);
    }
}

static void alone(uint64_t id) {
    struct engine_turn t;
    open_as(model, false);
    t = random_turn(id, 10, 64);
    run_turn(e, &t, &without[id - 1]);
    close_it();
}

static void same_so_far(int i) {
    assert_memory_equal(with[i].ids, without[i].ids, (size_t)with[i].n * sizeof *with[i].ids);
    assert_memory_equal(with[i].logprobs, without[i].logprobs,
                        (size_t)with[i].n * sizeof *with[i].logprobs);
}

static void test_cancel_deadline(void **state) {
    alone(1);
    alone(2);
    start_two();
    engine_turn_cancel(e, 1, 1);
    e->core.next_deadline_us = 0;
    ((struct live_turn *)e->core.sched.running[1])->deadline_us = 1;
    finish_both();
    assert_int_equal(with[0].finish, FINISH_CANCELLED);
    assert_int_equal(with[1].finish, FINISH_DEADLINE);
    for (int i = 0; i < 2; i++) {
        assert_true(with[i].n >= 2);
        same_so_far(i);
    }
    close_it();
}

// A new turn takes part in the first step after those under way.
static void test_a_turn_arrives(void **state) {
    struct engine_turn t;
    start_two();
    t = random_turn(3, 10, 64);
    submit(e, &t);
    int64_t before = atomic_load(&e->core.load->steps);
    assert_true(engine_round(e));
    take_all(with);
    assert_int_equal(e->core.sched.n_running, 3);
    assert_int_equal(atomic_load(&e->core.load->steps) - before,
                     2); // the one under way, and a whole step
    finish_both();
    close_it();
    alone(1);
    outcome_same(&with[0], &without[0]);
    alone(2);
    outcome_same(&with[1], &without[1]);
}

// A fork of a sequence whose turn is under way has the bits of its tokens.
static void test_a_fork(void **state) {
    struct engine_turn t;
    int32_t log[64];
    start_two();
    t = random_turn(1, 10, 64);
    memcpy(log, t.ids, 10 * sizeof *log);
    free(t.ids);
    memcpy(log + 10, with[0].ids, (size_t)with[0].n * sizeof *log);
    int64_t n = 10 + with[0].n;
    assert_int_equal(engine_sequence_fork(e, 1, 3, n), 0);
    t = turn_for(e, 3, log, n, 64, SINKS);
    t.turn = 3;
    t.sampling.max_tokens = LONG - (int32_t)with[0].n;
    submit(e, &t);
    for (int rounds = 0; !(with[0].done && with[2].done); rounds++) {
        struct engine_event ev;
        assert_true(rounds < 100 * LONG && engine_round(e));
        while (engine_poll(e, &ev) == 1)
            if (ev.kind != ENGINE_FORKED) outcome_take(&with[ev.sequence - 1], &ev);
    }
    assert_true(with[2].n_cached > 10);
    assert_memory_equal(with[2].ids, with[0].ids + n - 10, (size_t)with[2].n * sizeof *log);
    assert_memory_equal(with[2].logprobs, with[0].logprobs + n - 10,
                        (size_t)with[2].n * sizeof(float));
    close_it();
}

// The engine ends in the middle; another one continues from the log that was emitted.
static void test_goes_on_elsewhere(void **state) {
    static struct outcome first;
    struct engine_turn t;
    int32_t log[128];
    start_two();
    for (int i = 0; i < 20; i++) {
        assert_true(engine_round(e));
        take_all(with);
    }
    assert_true(with[0].n > 10 && with[0].n < LONG);
    first = with[0];
    close_it();
    alone(1);
    open_as(model, true);
    t = random_turn(1, 10, 64);
    memcpy(log, t.ids, 10 * sizeof *log);
    free(t.ids);
    memcpy(log + 10, first.ids, (size_t)first.n * sizeof *log);
    t = turn_for(e, 1, log, 10 + first.n, 64, SINKS);
    t.n_drawn = first.n;
    t.n_input = 10;
    t.sampling.max_tokens = LONG;
    memset(with, 0, sizeof with);
    submit(e, &t);
    take_off(with);
    struct engine_event ev;
    int32_t got = (int32_t)(first.n + with[0].n);
    for (int rounds = 0; got >= 0; rounds++) {
        assert_true(rounds < 100 * LONG && engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind == ENGINE_TOKEN && ev.id >= 0) {
                assert_int_equal(ev.id, without[0].ids[got]);
                assert_memory_equal(&ev.logprob, &without[0].logprobs[got], sizeof(float));
                got++;
            }
            if (ev.kind != ENGINE_DONE) continue;
            assert_int_equal(got, LONG);
            got = -1;
        }
    }
    close_it();
}

// What the device cannot draw, the host draws from logits that are computed again.
static void test_draws_left_to_the_host(void **state) {
    struct engine_turn t[TURNS];
    if (strcmp(test_device(), "cpu")) skip();
    ahead.refuse_one_of = 11;
    for (int follows = 0; follows < 2; follows++) {
        open_as(model, follows);
        for (uint64_t id = 1; id <= TURNS; id++) {
            t[id - 1] = random_turn(id, 6 + (int64_t)id, 32);
            t[id - 1].sampling.temperature = id % 2 ? 1 : 0;
            t[id - 1].sampling.has_seed = true;
        }
        run_all(t, TURNS, follows ? with : without);
        assert_true(ahead.n_refused > 0);
        assert_true(follows == (ahead.n_followed > 0));
        close_it();
    }
    ahead.refuse_one_of = 0;
    for (int i = 0; i < TURNS; i++) outcome_same(&with[i], &without[i]);
}

// A budget ends the thinking of one turn: the forced tokens are drawn by the host, so a flight ends in the middle.
static void think(bool follows, int32_t budget, struct outcome *o) {
    struct engine_turn t[2];
    struct err err = {0};
    open_as("configs/demo-model", follows);
    assert_int_equal(thinking_marks_new(&e->thinking, e->tokenizer, "<think>", "</think>",
                                        "\n</think>\n\n", 12, &err),
                     0);
    t[0] = ask(1, "Once upon a time <think>\n");
    t[0].goes_on = true;
    t[0].sampling.thinking_budget = budget;
    t[1] = ask(2, "<|im_start|>user\nSing.<|im_end|>\n<|im_start|>assistant\n");
    run_all(t, 2, o);
    assert_true(follows == (count_of("parley_engine_steps_overlapped_total") > 0));
    close_it();
}

static void test_thinking_ends(void **state) {
    for (int32_t budget = 7; budget < 13; budget++) {
        think(false, budget, without);
        think(true, budget, with);
        for (int i = 0; i < 2; i++) outcome_same(&with[i], &without[i]);
        assert_non_null(strstr(with[0].text, "</think>"));
    }
}

// The device fails in a step that follows: all turns end, with no token that it has not drawn. Other ranks would wait
// for the failed one until their limit.
static void test_the_device_is_lost(void **state) {
    if (strcmp(test_device(), "cpu") || several_ranks()) {
        print_message("a device fails here on the CPU, and in one rank: not run\n");
        skip();
    }
    alone(1);
    alone(2);
    for (int64_t steps = 0; steps < 3; steps++) {
        start_two();
        ahead.fail_at = steps;
        log_set_level(LOG_OFF);
        while (engine_round(e)) take_all(with);
        log_set_level(LOG_ERROR);
        take_all(with);
        assert_false(flies(e));
        for (int i = 0; i < 2; i++) {
            assert_true(with[i].done);
            assert_int_equal(with[i].finish, FINISH_ERROR);
            assert_int_equal(with[i].error_code, E_DEVICE);
            same_so_far(i);
        }
        close_it();
    }
}

// --- anything in any order -----------------------------------------------------------------------

static void walk_ahead(int64_t blocks, int64_t host_blocks, bool copies_take_time) {
    struct engine *flying = tiered(model, 16, blocks, host_blocks);
    if (copies_take_time) slow_down(flying);
    const int tp = test_ranks("PARLEY_TEST_TP");
    divide(tp, 1);
    struct engine *calm = tiered(model, 16, 100, 0);
    few_penalise = 40;
    ahead_use(flying, true);
    ahead_use_calm(calm);
    walk(flying, calm, 2);
    engine_close(calm);
    engine_close(flying);
}

static void test_walks(void **state) {
    seed = 11;
    walk_ahead(200, 300, false); // room for all
    walk_ahead(70, 300, false);  // caches leave the device and come back
    walk_ahead(70, 0, false);    // caches are dropped
    if (strcmp(test_device(), "cpu") == 0) walk_ahead(70, 300, true);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ends),
        cmocka_unit_test(test_length_is_known_ahead),
        cmocka_unit_test(test_caches_of_stopped_turns),
        cmocka_unit_test(test_cancel_deadline),
        cmocka_unit_test(test_a_turn_arrives),
        cmocka_unit_test(test_a_fork),
        cmocka_unit_test(test_goes_on_elsewhere),
        cmocka_unit_test(test_draws_left_to_the_host),
        cmocka_unit_test(test_thinking_ends),
        cmocka_unit_test(test_the_device_is_lost),
        cmocka_unit_test(test_walks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
