// Turns with branches: samples and beams have the same bits alone, beside other turns, over pauses and
// evictions, and in a ring that has wrapped; the winner's cache is the session's afterwards; whatever ends
// the turn, every block comes back.
#include "tests/golden/tiers_world.h"

enum { CHUNK = 16, PROMPT = 70, DRAWN = 30, WINDOW = 56, WIDTH = 4 }; // the ring wraps
static const char *const qwen = "tests/fixtures/models/qwen3";

struct answers { // what the turn's events said of all branches
    struct outcome o;
    int32_t n, len[BEAMS_MAX];
    int32_t ids[BEAMS_MAX][DRAWN];
    float logprobs[BEAMS_MAX][DRAWN];
    double scores[BEAMS_MAX];
    enum engine_finish finish[BEAMS_MAX];
    int32_t streamed[BEAMS_MAX];
};
static struct answers want, got, other;

static void take(struct answers *a, const struct engine_event *ev) {
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        assert_in_range(ev->branch, 0, BEAMS_MAX - 1);
        a->streamed[ev->branch]++;
    }
    if (ev->kind == ENGINE_TOKEN && ev->branch > 0) return;
    if (ev->kind == ENGINE_PARKED || ev->kind == ENGINE_RELEASED) return;
    outcome_take(&a->o, ev);
    if (ev->kind != ENGINE_DONE || !ev->branches) return;
    a->n = ev->branches->n;
    for (int32_t i = 0; i < a->n; i++) {
        const struct engine_branch *b = &ev->branches->of[i];
        assert_in_range(b->n, 0, DRAWN);
        a->len[i] = b->n;
        memcpy(a->ids[i], b->ids, (size_t)b->n * sizeof *b->ids);
        memcpy(a->logprobs[i], b->logprobs, (size_t)b->n * sizeof *b->logprobs);
        a->scores[i] = b->score;
        a->finish[i] = b->finish;
    }
    // The answer is the first.
    assert_int_equal(a->o.n, a->len[0]);
    assert_memory_equal(a->o.ids, a->ids[0], (size_t)a->o.n * sizeof *a->o.ids);
    assert_memory_equal(a->o.logprobs, a->logprobs[0], (size_t)a->o.n * sizeof *a->o.logprobs);
}

static void hear_rounds(struct engine *e, uint64_t sequence, struct answers *a, int rounds) {
    struct engine_event ev;
    for (int i = 0; i < rounds && !a->o.done; i++) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.sequence == sequence) take(a, &ev);
        }
    }
}

static void run(struct engine *e, struct engine_turn *t, struct answers *a) {
    memset(a, 0, sizeof *a);
    submit(e, t);
    hear_rounds(e, t->sequence, a, 100000);
    assert_true(a->o.done);
}

static void assert_same_answers(const struct answers *a, const struct answers *b) {
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->o.n, b->o.n);
    assert_int_equal(a->o.finish, b->o.finish);
    for (int32_t i = 0; i < a->n; i++) {
        size_t n = (size_t)a->len[i];
        assert_int_equal(a->len[i], b->len[i]);
        assert_memory_equal(a->ids[i], b->ids[i], n * sizeof(int32_t));
        assert_memory_equal(a->logprobs[i], b->logprobs[i], n * sizeof(float));
        assert_true(a->scores[i] == b->scores[i]);
        assert_int_equal(a->finish[i], b->finish[i]);
    }
}

enum kind { SAMPLES, BEAMS };
static struct engine_turn branching(const struct engine *e, uint64_t sequence, enum kind kind) {
    struct engine_turn t = drawn_turn(e, sequence, PROMPT, WINDOW, DRAWN);
    if (kind == BEAMS) {
        t.sampling.beam_width = WIDTH;
        t.sampling.beam_search_diversity_rate = -0.05f;
        // Some beams end early, and the search goes on.
        t.sampling.ignore_eos = false;
        t.sampling.end_id = 276;
        t.sampling.early_stopping = false;
    } else {
        t.sampling.n = WIDTH;
        t.sampling.ignore_eos = false;
        t.sampling.end_id = 150;
    }
    return t;
}

static void assert_all_free(struct engine *e) {
    assert_int_equal(e->core.caches.pool.n_free, e->info.n_blocks);
    assert_int_equal(e->core.sched.n_reserved, 0);
    assert_int_equal(e->core.sched.n_places, 0);
}

static void alone(enum kind kind, struct answers *a) {
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    struct engine_turn t = branching(e, 1, kind);
    run(e, &t, a);
    assert_int_equal(a->n, WIDTH);
    release(e, 1);
    assert_all_free(e);
    engine_close(e);
}

static void test_samples_are_streamed(void **state) {
    alone(SAMPLES, &want);
    for (int32_t i = 0; i < WIDTH; i++) assert_int_equal(want.streamed[i], want.len[i]);
    for (int32_t i = 1; i < WIDTH; i++)
        assert_memory_not_equal(want.ids[0], want.ids[i], sizeof(int32_t) * 4);
}

// Over pauses in every step: the cache stays, is parked, or is dropped.
static void paused(enum kind kind, int every, int64_t blocks, int64_t host) {
    struct engine *e = tiered(qwen, CHUNK, blocks, host);
    e->core.sched.max_running = WIDTH;
    struct engine_turn t = branching(e, 1, kind);
    memset(&got, 0, sizeof got);
    submit(e, &t);
    for (uint64_t k = 2; !got.o.done; k++) {
        int32_t log[PROMPT];
        struct engine_event ev;
        bool over = false;
        assert_true(k < 400);
        hear_rounds(e, 1, &got, every);
        seed = (uint32_t)k;
        random_log(e, log, PROMPT);
        struct engine_turn o = turn_for(e, 100 + k, log, PROMPT, WINDOW, 4);
        o.owner = k;
        o.sampling.max_tokens = 3;
        submit(e, &o);
        for (int rounds = 0; !over; rounds++) {
            assert_true(rounds < 100000);
            assert_true(engine_round(e));
            while (engine_poll(e, &ev) == 1) {
                if (ev.sequence == 1) take(&got, &ev);
                over |= ev.sequence == o.sequence && ev.kind == ENGINE_DONE;
            }
        }
        engine_sequence_release(e, o.sequence);
    }
    assert_true(got.o.paused_us > 0);
    assert_same_answers(&got, &want);
    engine_close(e);
}

static void test_same_bits_over_pauses(void **state) {
    for (int kind = SAMPLES; kind <= BEAMS; kind++) {
        alone((enum kind)kind, &want);
        for (int every = 3; every < 16; every += 4) {
            paused((enum kind)kind, every, 200, 0);
            paused((enum kind)kind, every, 46, 60);
            paused((enum kind)kind, every, 46, 0);
        }
    }
}

// Two searches and three samplers at once, in steps of few tokens.
static void test_same_bits_beside_others(void **state) {
    alone(BEAMS, &want);
    struct engine *e = tiered(qwen, CHUNK, 400, 0);
    struct engine_turn a = branching(e, 1, BEAMS), b = branching(e, 2, SAMPLES);
    memset(&got, 0, sizeof got);
    memset(&other, 0, sizeof other);
    submit(e, &b);
    hear_rounds(e, 2, &other, 7);
    submit(e, &a);
    struct engine_event ev;
    while (!got.o.done || !other.o.done) {
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) take(ev.sequence == 1 ? &got : &other, &ev);
    }
    assert_same_answers(&got, &want);
    alone(SAMPLES, &want);
    assert_same_answers(&other, &want);
    release(e, 1);
    release(e, 2);
    assert_all_free(e);
    engine_close(e);
}

// The second turn after a turn with branches: its cache is the winner's, and its beams are those of a
// fresh session over the same log.
static void second_turn(enum kind first, enum kind second) {
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    struct engine_turn t = branching(e, 1, first);
    run(e, &t, &got);
    int32_t log[PROMPT + DRAWN + 9];
    seed = 41;
    random_log(e, log, PROMPT);
    memcpy(log + PROMPT, got.o.ids, (size_t)got.o.n * sizeof *log);
    int64_t n = PROMPT + got.o.n;
    for (int i = 0; i < 9; i++) log[n++] = 20 + i;
    for (uint64_t sequence = 1; sequence <= 2; sequence++) {
        struct engine_turn next = branching(e, sequence, second);
        next.ids = realloc(next.ids, (size_t)n * sizeof *log);
        memcpy(next.ids, log, (size_t)n * sizeof *log);
        next.n_ids = n;
        next.n_input = sequence == 1 ? 9 : n;
        run(e, &next, sequence == 1 ? &other : &want);
    }
    assert_int_equal(other.o.source, CACHE_KEPT);
    assert_int_equal(other.o.n_cached, PROMPT + got.o.n - 1);
    assert_same_answers(&other, &want);
    release(e, 1);
    release(e, 2);
    assert_all_free(e);
    engine_close(e);
}

static void test_the_winners_cache_is_the_sessions(void **state) {
    second_turn(BEAMS, BEAMS);
    second_turn(SAMPLES, BEAMS);
    second_turn(BEAMS, SAMPLES);
}

// Ended in each of its steps, by a cancel, a deadline or a stop of the engine; what was drawn is reported,
// and a turn without branches over the cut log finds what its cache says.
static void test_ends_in_the_middle(void **state) {
    for (int kind = SAMPLES; kind <= BEAMS; kind++) {
        for (int rounds = 1; rounds < 30; rounds += 3) {
            struct engine *e = tiered(qwen, CHUNK, 200, 0);
            struct engine_turn t = branching(e, 1, (enum kind)kind);
            bool deadline = rounds % 2;
            memset(&got, 0, sizeof got);
            submit(e, &t);
            hear_rounds(e, 1, &got, rounds);
            if (got.o.done) {
                engine_close(e);
                continue;
            }
            if (deadline) {
                e->core.caches.sequences->turn->deadline_us = 1;
                e->core.next_deadline_us = 1;
            } else {
                engine_turn_cancel(e, 1, 1);
            }
            hear_rounds(e, 1, &got, 2);
            assert_int_equal(got.o.finish, deadline ? FINISH_DEADLINE : FINISH_CANCELLED);
            if (got.o.n > 0) assert_in_range(got.n, 2, WIDTH);
            int32_t log[PROMPT + DRAWN + 1];
            seed = 41;
            random_log(e, log, PROMPT);
            memcpy(log + PROMPT, got.o.ids, (size_t)got.o.n * sizeof *log);
            int64_t n = PROMPT + got.o.n;
            log[n++] = 33;
            static struct outcome kept, fresh;
            for (uint64_t sequence = 1; sequence <= 2; sequence++) {
                struct engine_turn next = turn_for(e, sequence, log, n, WINDOW, 4);
                next.sampling.max_tokens = 8;
                run_turn(e, &next, sequence == 1 ? &kept : &fresh);
            }
            assert_memory_equal(kept.ids, fresh.ids, 8 * sizeof(int32_t));
            assert_memory_equal(kept.logprobs, fresh.logprobs, 8 * sizeof(float));
            release(e, 1);
            release(e, 2);
            assert_all_free(e);
            engine_close(e);
        }
    }
}

// A fork in the middle of a search shares only tokens in which all beams agree.
static void test_fork_in_the_middle(void **state) {
    for (int kind = SAMPLES; kind <= BEAMS; kind++) {
        alone((enum kind)kind, &want);
        struct engine *e = tiered(qwen, CHUNK, 400, 0);
        struct engine_turn t = branching(e, 1, (enum kind)kind);
        memset(&got, 0, sizeof got);
        submit(e, &t);
        hear_rounds(e, 1, &got, 20);
        assert_false(got.o.done);
        assert_int_equal(engine_sequence_fork(e, 1, 2, PROMPT + DRAWN), 0);
        hear_rounds(e, 1, &got, 100000);
        assert_same_answers(&got, &want);
        int32_t log[PROMPT + 1];
        seed = 41;
        random_log(e, log, PROMPT);
        log[PROMPT] = 33;
        static struct outcome forked, fresh;
        for (uint64_t sequence = 2; sequence <= 3; sequence++) {
            struct engine_turn next = turn_for(e, sequence, log, PROMPT + 1, WINDOW, 4);
            next.sampling.max_tokens = 8;
            run_turn(e, &next, sequence == 2 ? &forked : &fresh);
        }
        assert_memory_equal(forked.logprobs, fresh.logprobs, 8 * sizeof(float));
        engine_close(e);
    }
}

static void test_memory(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 40, 0);
    struct engine_turn t = branching(e, 1, BEAMS);
    struct err err = {0};
    t.sampling.beam_width = BEAMS_MAX; // more than the places, and more than the cache
    assert_int_equal(engine_turn_submit(e, &t, &err), E_NOMEM);
    assert_non_null(strstr(err.text, "branches"));
    free(t.ids);
    engine_close(e);
    e = tiered(qwen, CHUNK, 700, 0);
    for (int kind = SAMPLES; kind <= BEAMS; kind++) {
        t = branching(e, 1, (enum kind)kind);
        *(kind == BEAMS ? &t.sampling.beam_width : &t.sampling.n) = BEAMS_MAX;
        run(e, &t, &got);
        assert_int_equal(got.n, BEAMS_MAX);
        release(e, 1);
        assert_all_free(e);
    }
    // The widest reservation is never exceeded: idle caches fill the rest of a pool that just fits.
    engine_close(e);
    e = tiered(qwen, CHUNK, 46, 0);
    for (int i = 0; i < 3; i++) {
        for (uint64_t idle = 10; idle < 14; idle++) {
            struct engine_turn o = branching(e, idle, SAMPLES);
            o.sampling.n = 1;
            o.ids[0] = (int32_t)idle;
            run(e, &o, &other);
        }
        t = branching(e, 1, BEAMS);
        run(e, &t, &got);
        assert_int_equal(got.n, WIDTH);
    }
    engine_close(e);
}

static void test_refused(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    struct err err = {0};
    for (int i = 0; i < 7; i++) {
        struct engine_turn t = branching(e, 1, BEAMS);
        if (i == 0) t.sampling.beam_width = 0;
        if (i == 1) t.sampling.beam_width = 1000;
        if (i == 2) t.sampling.n = 2;
        if (i == 3) t.sampling.n = t.sampling.beam_width = 0;
        if (i == 4) t.sampling.top_logprobs = 1;
        if (i == 5) t.sampling.len_penalty = NAN;
        if (i == 6) sampling_words_add_text(&t.sampling.stop, "stop", "x", 1, NULL);
        assert_int_equal(engine_turn_submit(e, &t, &err), E_INVAL);
        free(t.ids);
    }
    engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_are_streamed),
        cmocka_unit_test(test_same_bits_over_pauses),
        cmocka_unit_test(test_same_bits_beside_others),
        cmocka_unit_test(test_the_winners_cache_is_the_sessions),
        cmocka_unit_test(test_ends_in_the_middle),
        cmocka_unit_test(test_fork_in_the_middle),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("branches", tests, NULL, NULL);
}
