// Turns that are paused for another owner's have the tokens, bits and text of turns that were not,
// wherever their cache went meanwhile. Also everything that can happen to a turn while it is paused.
#include "base/log.h"
#include "tests/golden/tiers_world.h"
#include "tests/unit/tmp_dir.h"

enum { CHUNK = 16, PROMPT = 70, DRAWN = 90, WINDOW = 56, FORKED = PROMPT + 39 }; // the ring wraps
static const char *const qwen = "tests/fixtures/models/qwen3", *const demo = "configs/demo-model";
static struct outcome want, got, others;
static struct tmp_dir dir;

static struct metrics *registry;
static struct metric *n_pauses;

// Few places, so that another owner's turn pauses one that runs.
static struct engine *few_places(const char *model, int32_t places, int64_t blocks,
                                 int64_t host_blocks) {
    struct engine *e = tiered(model, CHUNK, blocks, host_blocks);
    e->core.sched.max_running = places;
    e->core.metrics.pauses = n_pauses;
    metric_set(n_pauses, 0);
    return e;
}
static struct engine *one_place(const char *model, int64_t blocks, int64_t host_blocks) {
    return few_places(model, 1, blocks, host_blocks);
}

static struct engine_turn long_turn(const struct engine *e, uint64_t sequence) {
    struct engine_turn t = drawn_turn(e, sequence, PROMPT, WINDOW, DRAWN);
    t.sampling.top_logprobs = 2;
    return t;
}

static struct engine_turn short_turn(const struct engine *e, uint64_t owner, int64_t n) {
    int32_t log[PROMPT];
    random_log(e, log, n);
    struct engine_turn t = turn_for(e, 100 + owner, log, n, WINDOW, 4);
    t.owner = t.turn = owner;
    t.sampling.max_tokens = 3;
    return t;
}

// Runs rounds until `sequence` is done; its events go to o.
struct heard {
    int parked, released, started;
};
static struct heard listen(struct engine *e, uint64_t sequence, struct outcome *o, int rounds) {
    struct engine_event ev;
    struct heard h = {0};
    for (int i = 0; i < rounds && !o->done; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            h.parked += ev.kind == ENGINE_PARKED && ev.sequence == sequence;
            h.released += ev.kind == ENGINE_RELEASED && ev.sequence == sequence;
            h.started += ev.kind == ENGINE_STARTED && ev.sequence == sequence;
            if (ev.sequence == sequence && ev.kind != ENGINE_PARKED && ev.kind != ENGINE_RELEASED)
                outcome_take(o, &ev);
        }
    }
    return h;
}

// The turn runs while turns of new owners arrive, one in `every` rounds. quick: each gets a place
// within two steps.
static struct heard interrupted(struct engine *e, struct engine_turn t, int every, bool quick) {
    struct heard sum = {0};
    memset(&got, 0, sizeof got);
    submit(e, &t);
    for (uint64_t k = 2; !got.done; k++) {
        assert_true(k < 400);
        struct heard h = listen(e, t.sequence, &got, every);
        struct engine_turn other = short_turn(e, k, quick ? 20 : PROMPT);
        struct engine_event ev;
        memset(&others, 0, sizeof others);
        submit(e, &other);
        for (int rounds = 0; !others.done; rounds++) {
            assert_true(rounds < 200000); // a GPU copies meanwhile
            assert_true(engine_round(e));
            while (engine_poll(e, &ev) == 1) {
                h.parked += ev.kind == ENGINE_PARKED && ev.sequence == t.sequence;
                h.released += ev.kind == ENGINE_RELEASED && ev.sequence == t.sequence;
                if (ev.kind == ENGINE_PARKED || ev.kind == ENGINE_RELEASED) continue;
                h.started += ev.kind == ENGINE_STARTED && ev.sequence == t.sequence;
                if (ev.kind == ENGINE_STARTED && ev.sequence == other.sequence && quick)
                    assert_true(rounds < 2);
                if (ev.sequence != t.sequence && ev.sequence != other.sequence)
                    continue; // of no turn: a snapshot's, say
                outcome_take(ev.sequence == t.sequence ? &got : &others, &ev);
            }
        }
        engine_sequence_release(e, other.sequence);
        sum.parked += h.parked, sum.released += h.released, sum.started += h.started;
    }
    assert_int_equal(sum.started, 1); // said once
    return sum;
}

static void alone(const char *model, struct engine_turn (*make)(const struct engine *, uint64_t)) {
    struct engine *e = tiered(model, CHUNK, 100, 0);
    struct engine_turn t = make(e, 1);
    run_turn(e, &t, &want);
    engine_close(e);
}

static void test_same_bits(void **state) {
    alone(qwen, long_turn);
    assert_int_equal(want.n, DRAWN);
    assert_int_equal(want.paused_us, 0);
    for (int every = 1; every < 14; every += 3) {
        struct engine *e = one_place(qwen, 100, 0); // its ring stays
        struct heard h = interrupted(e, long_turn(e, 1), every, true);
        assert_int_equal(h.parked + h.released, 0);
        outcome_same(&got, &want);
        assert_int_equal(got.n_prefilled, want.n_prefilled);
        assert_true(got.paused_us > 0);
        engine_close(e);
    }
}

static void test_same_bits_where_others_need_the_blocks(void **state) {
    alone(qwen, long_turn);
    for (int every = 2; every < 14; every += 5) {
        struct engine *e = one_place(qwen, 13, 60); // it parks
        if (every == 7) slow_down(e);
        struct heard h = interrupted(e, long_turn(e, 1), every, false);
        assert_true(h.parked > 0 && h.released == 0);
        outcome_same(&got, &want);
        engine_close(e);
        e = one_place(qwen, 13, 0); // it is dropped, and computed again
        h = interrupted(e, long_turn(e, 1), every, false);
        assert_true(h.released > 0);
        outcome_same(&got, &want);
        assert_int_equal(got.n_prefilled, want.n_prefilled);
        engine_close(e);
        snapshots = dir.path;
        e = one_place(qwen, 13, 0); // through files, or computed again
        snapshots = NULL;
        struct engine_turn t = long_turn(e, 1);
        t.lasting_id = every == 2 ? "two" : every == 7 ? "seven" : "twelve";
        interrupted(e, t, every, false);
        outcome_same(&got, &want);
        engine_close(e);
    }
}

// --- text ----------------------------------------------------------------------------------------

static struct engine_turn story(const struct engine *e, uint64_t sequence) {
    struct token_list ids;
    struct err err;
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, "Once upon a time", 16, true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, sequence, ids.ids, (int64_t)ids.len, 128, 4);
    token_list_release(&ids);
    t.owner = 1;
    t.goes_on = sequence == 1;
    t.sampling.max_tokens = 60;
    return t;
}
static char stop[24];
static struct engine_turn stopped_story(const struct engine *e, uint64_t sequence) {
    struct engine_turn t = story(e, sequence);
    assert_int_equal(sampling_words_add_text(&t.sampling.stop, "stop", stop, strlen(stop), NULL),
                     0);
    return t;
}

static void test_same_text_and_stop_strings(void **state) {
    struct engine *e;
    alone(demo, story);
    size_t from = want.text_len / 2; // a stop string across many tokens, held back over pauses
    memcpy(stop, want.text + from, sizeof stop - 1);
    for (int every = 1; every < 4; every++) {
        alone(demo, story);
        e = one_place(demo, 100, 0);
        interrupted(e, story(e, 1), every, true);
        outcome_same(&got, &want);
        engine_close(e);
        alone(demo, stopped_story);
        assert_int_equal(want.finish, FINISH_STOP);
        e = one_place(demo, 100, 0);
        interrupted(e, stopped_story(e, 1), every, true);
        outcome_same(&got, &want);
        engine_close(e);
    }
}

// --- while it is paused --------------------------------------------------------------------------

// A turn of sequence 1 that has drawn n tokens and was paused for a turn of sequence 2.
static struct engine *paused_after(struct engine *e, struct engine_turn t, int64_t n) {
    struct engine_event ev;
    memset(&got, 0, sizeof got);
    submit(e, &t);
    while (got.n < n) listen(e, 1, &got, 1);
    t = long_turn(e, 2);
    t.owner = 2;
    submit(e, &t);
    assert_true(engine_round(e));
    assert_int_equal(metric_value(n_pauses), 1);
    struct engine_load load;
    engine_load(e, &load);
    assert_true(load.paused == 1 && load.running == 1 && load.queued == 0);
    while (engine_poll(e, &ev) == 1)
        if (ev.sequence == 1) outcome_take(&got, &ev);
    return e;
}

static void test_ends_while_paused(void **state) {
    alone(demo, stopped_story);
    assert_true(want.n > 12);
    for (int how = 0; how < 4; how++) {
        struct engine *e = one_place(demo, 100, 0);
        struct engine_turn t = stopped_story(e, 1);
        if (how == 1) t.sampling.deadline_us = 600000000; // moved below: no machine is too slow
        // In the midst of the stop string: what is held back must come with the end.
        paused_after(e, t, want.n - 2);
        if (how == 0) engine_turn_cancel(e, 1, 1);
        if (how == 1) e->core.next_deadline_us = e->core.caches.sequences->turn->deadline_us = 1;
        if (how == 2) engine_stop(e);
        if (how == 3) engine_sequence_release(e, 1); // waits for its end
        bool goes_on = engine_round(e);
        assert_int_equal(goes_on, how != 2);
        struct engine_event ev;
        while (how == 2 && engine_poll(e, &ev) == 1)
            if (ev.sequence == 1) outcome_take(&got, &ev);
        listen(e, 1, &got, 200000);
        static const enum engine_finish ends[] = {FINISH_CANCELLED, FINISH_DEADLINE,
                                                  FINISH_SHUTDOWN, FINISH_STOP};
        assert_int_equal(got.finish, ends[how]);
        if (how < 3) {
            assert_int_equal(got.n, want.n - 2);
            struct buf text;
            struct err err;
            buf_init(&text, 1 << 20);
            assert_int_equal(engine_detokenize(e, got.ids, (size_t)got.n, true, &text, &err), 0);
            assert_non_null(strstr(got.text, buf_z(&text) + 4)); // the whole of it
            buf_release(&text);
        } else {
            outcome_same(&got, &want);
        }
        engine_close(e);
    }
}

// A fork of a paused turn's sequence begins with its cache; the turn itself goes on as it was.
static void test_fork_of_a_paused_turn(void **state) {
    alone(qwen, long_turn);
    struct engine *e = one_place(qwen, 100, 0);
    paused_after(e, long_turn(e, 1), 40);
    struct engine_event ev;
    int64_t shared = 0;
    assert_int_equal(engine_sequence_fork(e, 1, 3, FORKED), 0);
    assert_true(engine_round(e));
    while (engine_poll(e, &ev) == 1) {
        if (ev.kind == ENGINE_FORKED) shared = ev.n_cached;
        if (ev.sequence == 1) outcome_take(&got, &ev);
    }
    assert_int_equal(shared, FORKED);
    listen(e, 1, &got, 200000);
    outcome_same(&got, &want);
    int32_t log[FORKED];
    struct engine_turn t = long_turn(e, 3);
    memcpy(log, t.ids, PROMPT * sizeof *log);
    memcpy(log + PROMPT, want.ids, (FORKED - PROMPT) * sizeof *log);
    free(t.ids);
    t.ids = malloc(sizeof log);
    memcpy(t.ids, log, sizeof log);
    t.n_ids = FORKED;
    t.n_input = 0;
    t.sampling.repetition_penalty = 1;
    t.sampling.frequency_penalty = 0;
    t.sampling.max_tokens = 5;
    struct engine_turn same = t;
    same.ids = malloc(sizeof log);
    memcpy(same.ids, log, sizeof log);
    memset(&others, 0, sizeof others);
    submit(e, &t);
    listen(e, 3, &others, 200000);
    engine_close(e);
    e = tiered(qwen, CHUNK, 100, 0);
    run_turn(e, &same, &want);
    outcome_same(&others, &want);
    engine_close(e);
}

static struct engine_turn very_long_turn(const struct engine *e, uint64_t sequence) {
    struct engine_turn t = long_turn(e, sequence);
    t.sampling.max_tokens = 400;
    return t;
}

// The owner with many turns continues too: beside any number of others, each gets its share of the
// steps.
static void test_no_owner_starves(void **state) {
    struct engine *e = one_place(qwen, 200, 0);
    struct outcome *o = calloc(4, sizeof *o);
    struct engine_event ev;
    struct engine_turn t;
    alone(qwen, very_long_turn);
    for (uint64_t s = 1; s <= 4; s++) {
        t = very_long_turn(e, s);
        t.owner = s % 3; // two of one owner
        submit(e, &t);
    }
    int n = 0;
    for (int rounds = 0; n < 4; rounds++) {
        assert_true(rounds < 2000);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            outcome_take(&o[ev.sequence - 1], &ev);
            n += ev.kind == ENGINE_DONE;
        }
    }
    for (int i = 0; i < 4; i++) outcome_same(&o[i], &want);
    assert_true(metric_value(n_pauses) >= 5);
    free(o);
    engine_close(e);
}

// --- branches ---

// Beams that take all places but one run on beside another owner's turn, whose tokens come in the next steps. (Paused,
// they would compute all of their beams again before they could be paused for the next turn.)
static void test_another_owner_beside_beams(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 600, 0);
    struct engine_event ev;
    struct engine_turn beams = drawn_turn(e, 1, 20, 0, 60);
    beams.owner = 1;
    beams.sampling.ignore_eos = true;
    beams.sampling.beam_width = BEAMS_MAX;
    e->core.metrics.pauses = n_pauses;
    metric_set(n_pauses, 0);
    assert_true(e->max_running > 2 && e->max_running <= BEAMS_MAX);
    submit(e, &beams);
    for (int i = 0; i < 8; i++) assert_true(engine_round(e));
    int n_done = 0;
    for (uint64_t k = 2; k < 8; k++) {
        struct engine_turn other = short_turn(e, k, CHUNK);
        memset(&others, 0, sizeof others);
        submit(e, &other);
        for (int rounds = 0; !others.done; rounds++) {
            assert_true(rounds < 6);
            assert_true(engine_round(e));
            while (engine_poll(e, &ev) == 1) {
                n_done += ev.sequence == 1 && ev.kind == ENGINE_DONE;
                if (ev.sequence == other.sequence) outcome_take(&others, &ev);
            }
            if (rounds == 2) assert_true(others.n > 0);
        }
        assert_int_equal(others.n, 3);
    }
    assert_int_equal(n_done, 0);
    for (int i = 0; !n_done; i++) {
        assert_true(i < 200);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            n_done += ev.kind == ENGINE_DONE;
            if (ev.kind == ENGINE_DONE) assert_int_equal(ev.finish, FINISH_LENGTH);
        }
    }
    assert_int_equal(metric_value(n_pauses), 0);
    engine_close(e);
}

// --- idle turns ----------------------------------------------------------------------------------

static void test_idle_turns_run_aside(void **state) {
    alone(qwen, long_turn);
    struct engine *e = few_places(qwen, 2, 100, 0);
    for (uint64_t s = 11; s <= 13; s++) {
        struct engine_turn idle = long_turn(e, s);
        idle.priority = ENGINE_IDLE;
        submit(e, &idle);
    }
    struct engine_load load;
    for (int i = 0; i < 12; i++) assert_true(engine_round(e));
    engine_load(e, &load);
    assert_true(load.idle_running == 2 && load.idle_queued == 1 && load.running == 2);
    struct engine_turn t = long_turn(e, 1); // of the same owner
    memset(&got, 0, sizeof got);
    submit(e, &t);
    struct engine_event ev;
    int64_t steps = 0, idle_tokens = 0;
    static struct outcome idle[3];
    memset(idle, 0, sizeof idle);
    for (; !got.done; steps++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            idle_tokens += ev.sequence > 10 && ev.kind == ENGINE_TOKEN && got.n > 0;
            outcome_take(ev.sequence > 10 ? &idle[ev.sequence - 11] : &got, &ev);
        }
    }
    outcome_same(&got, &want);
    // It gets a place at once and loses no step; beside its tokens at most as many of the others
    // are computed.
    assert_in_range(steps, 1, (PROMPT + CHUNK - 1) / CHUNK + DRAWN + 1);
    assert_in_range(idle_tokens, 1, DRAWN + 2);
    int64_t done = idle[0].done + idle[1].done + idle[2].done;
    for (int rounds = 0; done < 3; rounds++) {
        assert_true(rounds < 2000 && engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            outcome_take(&idle[ev.sequence - 11], &ev);
            done += ev.kind == ENGINE_DONE;
        }
    }
    for (int i = 0; i < 3; i++) outcome_same(&idle[i], &want);
    assert_true(metric_value(n_pauses) >= 1);
    engine_close(e);
}

static int set_up(void **state) {
    log_set_level(LOG_ERROR);
    tmp_dir_open(&dir);
    registry = metrics_new();
    n_pauses = metrics_gauge(registry, "pauses", "Pauses", NULL);
    return 0;
}
static int tear_down(void **state) {
    tmp_dir_close(&dir);
    metrics_free(registry);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_bits),
        cmocka_unit_test_setup_teardown(test_same_bits, runner_with_int8, runner_with_auto),
        cmocka_unit_test_setup_teardown(test_same_bits, runner_with_fp8, runner_with_auto),
        cmocka_unit_test(test_same_bits_where_others_need_the_blocks),
        cmocka_unit_test_setup_teardown(test_same_bits_where_others_need_the_blocks,
                                        runner_with_int8, runner_with_auto),
        cmocka_unit_test(test_same_text_and_stop_strings),
        cmocka_unit_test(test_ends_while_paused),
        cmocka_unit_test(test_fork_of_a_paused_turn),
        cmocka_unit_test(test_no_owner_starves),
        cmocka_unit_test(test_another_owner_beside_beams),
        cmocka_unit_test(test_idle_turns_run_aside),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
