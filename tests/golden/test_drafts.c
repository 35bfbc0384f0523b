// A turn with drafts has the tokens, log-probabilities and text of the same turn without them: of all
// families, greedy and at a high temperature, with penalties, bans, grammars and stop lists, in a ring that
// wraps, beside other turns, over pauses, evictions and forks. The cache that it leaves behind is the same too.
#include "tests/golden/tiers_world.h"

enum { CHUNK = 24, PROMPT = 60, DRAWN = 120, WINDOW = 56 }; // the ring wraps
static const char *const families[] = {"bloom",   "gpt2", "gpt_neox", "gptj",  "llama",
                                       "mistral", "opt",  "qwen2",    "qwen3", "xglm"};
static const char *const qwen = "tests/fixtures/models/qwen3";
static struct outcome want, got, next_want, next_got;
static int32_t expected[DRAWN];

// The answer as a client might expect it: every eleventh token is another one, and one is missing.
static struct engine_turn expecting(struct engine_turn t, const struct outcome *answer) {
    int32_t n = 0;
    for (int64_t i = 0; i < answer->n; i++)
        if (i != 40) expected[n++] = i % 11 == 10 ? answer->ids[i] / 2 : answer->ids[i];
    t.expected = expected;
    t.n_expected = n;
    return t;
}

// The next turn of the sequence: its cache is that of the turn before.
static void go_on(struct engine *e, const struct engine_turn *t, const struct outcome *o,
                  struct outcome *out) {
    static int32_t log[MAX_LOG];
    int64_t n = PROMPT;
    seed = 41;
    random_log(e, log, PROMPT); // as drawn_turn
    memcpy(log + n, o->ids, (size_t)o->n * sizeof *log);
    n += o->n;
    for (int i = 0; i < 9; i++) log[n++] = 5 + i;
    struct engine_turn next = turn_for(e, t->sequence, log, n, t->memory_len, t->sink_len);
    next.n_input = 9;
    next.owner = t->owner;
    next.sampling.max_tokens = 12;
    next.sampling.draft_tokens = t->sampling.draft_tokens;
    run_turn(e, &next, out);
    assert_int_equal(out->n_prefilled, 10);
    assert_int_equal(out->source, CACHE_KEPT);
}

static struct engine_turn turn_like(const struct engine *e, int kind) {
    struct engine_turn t = drawn_turn(e, 1, PROMPT, kind == 1 ? 0 : WINDOW, DRAWN);
    if (kind == 0) { // repeats itself soon
        t.sampling.temperature = 0;
        t.sampling.repetition_penalty = 1;
        t.sampling.frequency_penalty = 0;
    } else if (kind == 1) {
        t.sampling.top_logprobs = 3;
    } else if (kind == 2) {
        t.sampling.temperature = 2;
        t.sampling.top_k = 50;
        t.sampling.top_p = 0.95f;
        t.sampling.top_p_decay = 0.98f;
        t.sampling.top_p_min = 0.3f;
        t.sampling.repetition_penalty = 1;
    }
    return t;
}

static void test_all_families(void **state) {
    static const int32_t most[] = {1, 6, 23};
    int64_t n_repeated = 0, n_rejected = 0;
    for (size_t f = 0; f < sizeof families / sizeof *families; f++) {
        char model[64];
        snprintf(model, sizeof model, "tests/fixtures/models/%s", families[f]);
        struct engine *e = tiered(model, CHUNK, 200, 0);
        for (int kind = 0; kind < 3; kind++) {
            struct engine_turn t = turn_like(e, kind);
            run_turn(e, &t, &want);
            go_on(e, &t, &want, &next_want);
            assert_int_equal(want.n_drafted, 0);
            release(e, 1);
            for (size_t m = 0; m < sizeof most / sizeof *most; m++) {
                t = expecting(turn_like(e, kind), &want);
                t.sampling.draft_tokens = most[m];
                run_turn(e, &t, &got);
                outcome_same(&got, &want);
                go_on(e, &t, &want, &next_got);
                outcome_same(&next_got, &next_want);
                assert_true(got.n_accepted > DRAWN / 4);      // the expected text is nearly right
                n_rejected += got.n_drafted - got.n_accepted; // and not always
                release(e, 1);
            }
            t = turn_like(e, kind); // from its own log alone
            t.sampling.draft_tokens = 8;
            run_turn(e, &t, &got);
            outcome_same(&got, &want);
            if (kind == 0) n_repeated += got.n_accepted;
            release(e, 1);
        }
        engine_close(e);
    }
    assert_true(n_repeated > DRAWN && n_rejected > DRAWN);
}

// 8-bit caches quantise each position once, and a rejected draft's position is written again.
static void test_eight_bits(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    struct engine_turn t = turn_like(e, 2);
    run_turn(e, &t, &want);
    release(e, 1);
    t = expecting(turn_like(e, 2), &want);
    t.sampling.draft_tokens = 9;
    run_turn(e, &t, &got);
    outcome_same(&got, &want);
    assert_true(got.n_accepted > 0);
    engine_close(e);
}

// What ends a turn ends it at the same token, also in the midst of accepted drafts.
static void test_ends(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    struct engine_turn t = turn_like(e, 1);
    run_turn(e, &t, &want);
    static struct outcome whole;
    whole = want;
    for (int kind = 0; kind < 40; kind++) {
        struct outcome *o = &want;
        for (int drafted = 0; drafted < 2; drafted++, o = &got) {
            release(e, 1);
            t = turn_like(e, 1);
            if (drafted) t = expecting(t, &whole);
            t.sampling.draft_tokens = drafted ? 7 : 0;
            if (kind < 12) {
                t.sampling.max_tokens = 1 + kind;
            } else if (kind < 24) {
                t.sampling.ignore_eos = false;
                t.sampling.end_id = whole.ids[kind];
            } else if (kind < 36) {
                struct err err = {0};
                assert_int_equal(
                    sampling_words_add_ids(&t.sampling.stop, "stop", whole.ids + kind, 2, &err), 0);
            } else {
                t.session_len = PROMPT + kind;
            }
            run_turn(e, &t, o);
        }
        outcome_same(&got, &want);
        if (kind > 2 && kind < 12) assert_int_equal(got.n, 1 + kind);
        assert_true(got.n <= whole.n);
    }
    engine_close(e);
}

// What changes logits from token to token.
static void test_bans_and_grammars(void **state) {
    static const char *const grammars[] = {"[a-z ]{1,40}(x|y)*", "([0-9]{2}[,;]){1,30}"};
    struct engine *e = engine_for("configs/demo-model", CHUNK, 8, 0);
    for (int kind = 0; kind < 4; kind++) {
        struct outcome *o = &want;
        int32_t bad[] = {want.ids[8], want.ids[9]}; // of the answer before
        for (int drafted = 0; drafted < 2; drafted++, o = &got) {
            struct err err = {0};
            struct engine_turn t = drawn_turn(e, 1, PROMPT, WINDOW, DRAWN);
            t.sampling.ignore_eos = false;
            t.sampling.temperature = kind % 2 ? 1.5f : 0.0f;
            if (kind < 2) {
                const char *text = grammars[kind];
                assert_int_equal(
                    grammar_text_new(&t.sampling.grammar, GRAMMAR_REGEX, text, strlen(text), &err),
                    0);
            } else {
                t.sampling.min_tokens = 50;
                assert_int_equal(
                    sampling_words_add_ids(&t.sampling.bad_words, "bad_words", bad, 2, &err), 0);
            }
            t.sampling.draft_tokens = drafted ? 8 : 0;
            if (drafted) t = expecting(t, &want);
            run_turn(e, &t, o);
            grammar_text_free(t.sampling.grammar);
            release(e, 1);
        }
        outcome_same(&got, &want);
        assert_true(got.n_accepted > 0);
    }
    engine_close(e);
}

// Turns with drafts beside each other, a prompt that comes, a fork in the midst, and few blocks.
static void test_company(void **state) {
    enum { TURNS = 4 };
    static struct outcome alone[TURNS + 1], all[TURNS + 1], forked;
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    for (uint64_t i = 0; i <= TURNS; i++) {
        struct engine_turn t = turn_like(e, (int)i % 3);
        t.sequence = i + 1, t.turn = i + 1, t.sampling.seed = 100 + i;
        run_turn(e, &t, &alone[i]);
    }
    engine_close(e);
    for (int32_t blocks = 200; blocks >= 60; blocks -= 70) {
        e = tiered(qwen, CHUNK, blocks, blocks == 60 ? 60 : 0);
        memset(all, 0, sizeof all);
        int done = 0; // rounds pass while a device copies, so that their number says nothing
        for (int rounds = 0; done <= TURNS; rounds++) {
            if (rounds % 5 == 0 && rounds / 5 <= TURNS) {
                uint64_t i = (uint64_t)rounds / 5;
                struct engine_turn t = expecting(turn_like(e, (int)i % 3), &alone[i]);
                t.sequence = i + 1, t.turn = i + 1, t.sampling.seed = 100 + i;
                t.sampling.draft_tokens = 1 + (int32_t)i * 3;
                t.owner = i % 2 + 1;
                t.share_group = i % 2 + 1;
                submit(e, &t);
            }
            if (rounds == 12) assert_int_equal(engine_sequence_fork(e, 1, 50, PROMPT + 5), 0);
            assert_true(engine_round(e));
            struct engine_event ev;
            while (engine_poll(e, &ev) == 1) {
                if (ev.sequence > TURNS + 1 || ev.kind == ENGINE_PARKED ||
                    ev.kind == ENGINE_RELEASED || ev.kind == ENGINE_FORKED)
                    continue;
                outcome_take(&all[ev.sequence - 1], &ev);
                done += ev.kind == ENGINE_DONE;
            }
        }
        for (int i = 0; i <= TURNS; i++) {
            outcome_same(&all[i], &alone[i]);
            assert_true(all[i].n_accepted > 0);
        }
        // The fork goes on from the same tokens.
        struct engine_turn t = turn_like(e, 0);
        int32_t *ids = realloc(t.ids, (PROMPT + 5) * sizeof *ids);
        memcpy(ids + PROMPT, alone[0].ids, 5 * sizeof *ids);
        t.ids = ids, t.n_ids = PROMPT + 5, t.sequence = 50, t.share_group = 1;
        t.sampling.max_tokens = DRAWN - 5, t.sampling.draft_tokens = 5;
        memset(&forked, 0, sizeof forked);
        submit(e, &t);
        while (!forked.done) {
            struct engine_event ev;
            assert_true(engine_round(e));
            while (engine_poll(e, &ev) == 1)
                if (ev.sequence == 50 && ev.kind != ENGINE_FORKED) outcome_take(&forked, &ev);
        }
        assert_memory_equal(forked.ids, alone[0].ids + 5, (DRAWN - 5) * sizeof *forked.ids);
        engine_close(e);
    }
}

// A turn that is paused for another owner's goes on with its drafts.
static void test_pauses(void **state) {
    for (int64_t host = 0; host <= 60; host += 60) {
        struct engine *e = tiered(qwen, CHUNK, 100, 0);
        struct engine_turn t = turn_like(e, 2);
        run_turn(e, &t, &want);
        engine_close(e);
        e = tiered(qwen, CHUNK, 13, host);
        e->core.sched.max_running = 1;
        t = expecting(turn_like(e, 2), &want);
        t.sampling.draft_tokens = 3;
        memset(&got, 0, sizeof got);
        submit(e, &t);
        uint64_t others = 0;
        bool busy = false;
        for (int rounds = 0; !got.done; rounds++) {
            if (rounds % 6 == 5 && !busy) {
                struct engine_turn o = drawn_turn(e, 100 + others, PROMPT, WINDOW, 2);
                o.owner = 2 + others++;
                busy = true;
                submit(e, &o);
            }
            assert_true(engine_round(e));
            struct engine_event ev;
            while (engine_poll(e, &ev) == 1) {
                if (ev.sequence == 1 && ev.kind != ENGINE_PARKED && ev.kind != ENGINE_RELEASED)
                    outcome_take(&got, &ev);
                if (ev.sequence > 1 && ev.kind == ENGINE_DONE) {
                    busy = false;
                    engine_sequence_release(e, ev.sequence);
                }
            }
        }
        outcome_same(&got, &want);
        assert_true(got.paused_us > 0 && got.n_accepted > 0);
        engine_close(e);
    }
}

// Turns with branches have no drafts, and a wrong id is refused.
static void test_no_drafts(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 200, 0);
    struct engine_turn t = turn_like(e, 0);
    struct err err = {0};
    t.sampling.draft_tokens = 8;
    t.sampling.beam_width = 3;
    run_turn(e, &t, &got);
    assert_int_equal(got.n_drafted, 0);
    const int32_t wrong[] = {7, e->info.n_vocab};
    t = turn_like(e, 0);
    t.expected = wrong, t.n_expected = 2;
    assert_int_equal(engine_turn_submit(e, &t, &err), E_INVAL);
    free(t.ids);
    engine_close(e);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_families),
        cmocka_unit_test_setup_teardown(test_eight_bits, runner_with_int8, runner_with_auto),
        cmocka_unit_test_setup_teardown(test_eight_bits, runner_with_fp8, runner_with_auto),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_bans_and_grammars),
        cmocka_unit_test(test_company),
        cmocka_unit_test(test_pauses),
        cmocka_unit_test(test_no_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
