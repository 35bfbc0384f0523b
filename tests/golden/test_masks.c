// Grammars whose masks take many slices (engine/run/masks.c): no round makes more of them than its part, other turns
// draw a token in every step meanwhile, and the tokens are those of masks that are made at once. Work is counted in
// pairs, so no clock matters. On a device that draws, masks are made after the step's launch: a GPU, or the CPU with draws
// of its own (mask_device.h).
#include "engine/grammar/grammar_internal.h"
#include "tests/golden/mask_device.h"
#include "tests/golden/runner.h"

// EFFORT: of a round, less than the engine's, so that smaller grammars need slices. BEYOND: the last transition of a
// slice, and the tokens that are accepted.
enum {
    EFFORT = 8000,
    BEYOND = 4000,
    DRAWN = 20,
    PLACES = 8,
    FORK = 98,
    PLAIN = 99,
    MOST_ROUNDS = 5000
};
static const char *const demo = "configs/demo-model";
static const char dear_regex[] = "(.*[ae].{0,12}){2}[bc].{0,9}x{9}";
static const struct grammar_text *dear;
static struct outcome whole, sliced, forked, plain, plain_alone;
static struct engine *e;
static bool on_device;  // the CPU is such a device
static int64_t n_drawn; // tokens of all turns

static struct grammar *grammar_of(void) {
    struct grammar *g;
    struct err err;
    assert_int_equal(grammars_get(e->grammars, 1, dear, &g, &err), 0);
    return g;
}

// The pairs that the masks of `dear` have reached.
static int64_t pairs(void) {
    struct grammar *g = grammar_of();
    int64_t n = g->machine.reached_in_all;
    grammar_free(g);
    return n;
}

static bool any_waits(void) {
    for (int32_t i = 0; i < e->core.sched.n_running; i++)
        if (e->core.sched.running[i]->needs_mask) return true;
    return false;
}

static struct engine_turn story(uint64_t sequence) {
    static const char text[] = "Once upon a time";
    struct token_list ids;
    struct err err;
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, text, sizeof text - 1, true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, sequence, ids.ids, (int64_t)ids.len, 0, 4);
    token_list_release(&ids);
    t.owner = sequence;
    t.sampling.temperature = 1;
    t.sampling.has_seed = true;
    t.sampling.seed = 5;
    return t;
}

static struct engine_turn plain_story(void) {
    struct engine_turn t = story(PLAIN);
    t.sampling.max_tokens = 260; // longer than any turn beside it
    return t;
}

static struct engine_turn one(uint64_t sequence) {
    struct engine_turn t = story(sequence);
    t.sampling.max_tokens = DRAWN;
    t.sampling.ignore_eos = false;
    t.sampling.grammar = dear;
    return t;
}
static struct engine_turn samples(uint64_t sequence) {
    struct engine_turn t = one(sequence);
    t.sampling.n = 4;
    return t;
}
static struct engine_turn all_places(uint64_t sequence) {
    struct engine_turn t = one(sequence);
    t.sampling.n = PLACES;
    t.sampling.max_tokens = 14;
    return t;
}
static struct engine_turn beams(uint64_t sequence) {
    struct engine_turn t = one(sequence);
    t.sampling.beam_width = 3;
    return t;
}
static struct engine_turn drafted(uint64_t sequence) {
    struct engine_turn t = one(sequence);
    t.sampling.temperature = 0;
    t.sampling.draft_tokens = 4;
    return t;
}
static struct engine_turn thought(uint64_t sequence) {
    struct engine_turn t = one(sequence);
    struct err err;
    if (!e->thinking)
        assert_int_equal(thinking_marks_new(&e->thinking, e->tokenizer, "<think>", "</think>",
                                            "\n</think>\n\n", 12, &err),
                         0);
    t.sampling.thinking_budget = 5;
    t.sampling.max_tokens = 2 * DRAWN;
    return t;
}

static void take(struct outcome *o, uint64_t sequence) {
    struct engine_event ev;
    while (engine_poll(e, &ev) == 1) {
        n_drawn += ev.kind == ENGINE_TOKEN;
        if (ev.sequence == PLAIN)
            outcome_take(&plain, &ev);
        else if (ev.sequence == FORK && ev.kind != ENGINE_FORKED)
            outcome_take(&forked, &ev);
        else if (ev.sequence == sequence && o && (ev.kind != ENGINE_TOKEN || ev.branch == 0))
            outcome_take(o, &ev);
    }
}

static void close_engine(void) {
    if (e) engine_close(e);
    e = NULL;
}

static void open_engine(void) {
    struct err err;
    if (!dear)
        assert_int_equal(
            grammar_text_new(&dear, GRAMMAR_REGEX, dear_regex, sizeof dear_regex - 1, &err), 0);
    e = engine_for(demo, 64, 16, 1 << 24);
    e->core.mask_effort = EFFORT;
    if (on_device) mask_device_use(e->backend);
    n_drawn = 0;
    memset(&plain, 0, sizeof plain);
}

// The outcome of a turn whose masks are made at once.
static void run_whole(struct engine_turn (*make)(uint64_t)) {
    open_engine();
    e->core.mask_effort = INT64_MAX / 2;
    struct engine_turn t = make(1);
    memset(&whole, 0, sizeof whole);
    submit(e, &t);
    for (int rounds = 0; !whole.done; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        assert_true(engine_round(e));
        assert_false(any_waits());
        take(&whole, 1);
    }
    assert_int_equal(whole.finish, FINISH_EOS);
    if (on_device && make == one) assert_int_equal(mask_device.n_rows, n_drawn);
    close_engine();
}

// Tokens that the other turn has drawn. What a device draws is emitted a round later, unless another turn ends in the
// same round.
static int64_t plain_drawn(void) {
    for (int32_t i = 0; i < e->core.sched.n_running; i++) {
        const struct live_turn *t = (const struct live_turn *)e->core.sched.running[i];
        if (t->spec.sequence == PLAIN) return t->n_generated;
    }
    return plain.n;
}

// One round. The other turn draws a token, if it decodes; a second one where a step was under way before. Returns whether
// the turns with `dear` wait.
static bool bounded_round(struct outcome *o, uint64_t sequence) {
    int64_t before = pairs(), n = plain_drawn();
    bool draws = n > 0 && !plain.done;
    assert_true(engine_round(e));
    take(o, sequence);
    assert_in_range(pairs() - before, 0, EFFORT + BEYOND);
    if (draws) assert_in_range(plain_drawn(), n + 1, n + 2);
    return any_waits();
}

static void check_kind(struct engine_turn (*make)(uint64_t)) {
    run_whole(make);
    open_engine();
    struct engine_turn p = plain_story(), t = make(1);
    submit(e, &p);
    submit(e, &t);
    memset(&sliced, 0, sizeof sliced);
    int waited = 0;
    for (int rounds = 0; !sliced.done; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        waited += bounded_round(&sliced, 1);
    }
    assert_true(waited > DRAWN / 2); // else the masks were cheap
    outcome_same(&sliced, &whole);
    while (!plain.done) bounded_round(NULL, 0);
    if (plain_alone.done) outcome_same(&plain, &plain_alone);
    plain_alone = plain;
    close_engine();
}

static void masks_are_made_in_slices(void **state) {
    check_kind(one);
    check_kind(samples);
    check_kind(beams);
    check_kind(drafted);
    check_kind(thought);
}

// A turn that is cancelled, given back or paused while its mask is being made; another one with the same grammar
// goes on.
static void turns_that_leave(void **state) {
    run_whole(one);
    for (int how = 0; how < 3; how++) {
        for (int slices = 1; slices < 8; slices += 6) {
            open_engine();
            struct engine_turn left = one(2), t = one(1);
            left.sampling.seed = 6;
            submit(e, &left);
            for (int n = 0, rounds = 0; n < slices; rounds++) {
                assert_true(rounds < MOST_ROUNDS);
                n += bounded_round(NULL, 0);
            }
            submit(e, &t);
            memset(&sliced, 0, sizeof sliced);
            if (how == 0) engine_turn_cancel(e, 2, 1);
            if (how == 1) engine_turn_yield(e, 2, 1);
            if (how == 2) engine_sequence_release(e, 2); // when it is over
            for (int rounds = 0; !sliced.done; rounds++) {
                assert_true(rounds < MOST_ROUNDS);
                bounded_round(&sliced, 1);
            }
            outcome_same(&sliced, &whole);
            struct grammar *g = grammar_of();
            if (how < 2) assert_null(g->maker);
            grammar_free(g);
            close_engine();
        }
    }
}

// A running turn is forked before its prompt's end, after a round that left it without its mask, and the fork gets the
// same turn; then the first session is rewound, in a round of the fork's, and gets it again.
static void turns_that_are_forked_and_rewound(void **state) {
    run_whole(one);
    open_engine();
    struct engine_turn t = one(1), f = one(FORK), again = one(1);
    again.turn = 2;
    submit(e, &t);
    memset(&sliced, 0, sizeof sliced);
    memset(&forked, 0, sizeof forked);
    for (int rounds = 0, waited = 0; sliced.n < 5 || waited == 0; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        waited = bounded_round(&sliced, 1);
    }
    assert_int_equal(engine_sequence_fork(e, 1, FORK, f.n_ids), 0);
    submit(e, &f);
    for (int rounds = 0; !sliced.done; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        bounded_round(&sliced, 1);
    }
    outcome_same(&sliced, &whole);
    submit(e, &again);
    memset(&sliced, 0, sizeof sliced);
    for (int rounds = 0; !sliced.done || !forked.done; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        bounded_round(&sliced, 1);
    }
    outcome_same(&forked, &whole);
    outcome_same(&sliced, &whole);
    assert_int_equal(sliced.source, CACHE_KEPT);
    close_engine();
}

// A GPU takes this way by itself, in the tests above.
static void all_on_device(void **state, bool refuses) {
    if (strcmp(test_device(), "cpu") != 0 || several_ranks()) skip();
    on_device = true;
    mask_device.refuses = refuses;
    check_kind(one);
    assert_true(mask_device.n_rows > n_drawn); // rows whose masks were not complete in time
    check_kind(thought);
    check_kind(samples);
    check_kind(beams);
    check_kind(drafted);
    turns_that_leave(state);
    turns_that_are_forked_and_rewound(state);
}
static void late_masks_are_made_in_slices(void **state) {
    all_on_device(state, false);
}
static void late_masks_of_draws_left_to_the_host(void **state) {
    all_on_device(state, true);
}

// A turn with branches in all places is paused for another owner's; its branches keep their positions.
static void a_turn_that_is_paused(void **state) {
    run_whole(all_places);
    open_engine();
    struct engine_turn p = plain_story(), t = all_places(1);
    p.sampling.max_tokens = 60;
    submit(e, &t);
    memset(&sliced, 0, sizeof sliced);
    for (int n = 0, rounds = 0; n < 9; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        n += bounded_round(&sliced, 1);
    }
    e->core.sched.max_running = e->core.sched.n_places; // no place is left for p
    submit(e, &p);
    for (int rounds = 0; !plain.done; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        bounded_round(&sliced, 1);
    }
    for (int rounds = 0; !sliced.done; rounds++) {
        assert_true(rounds < MOST_ROUNDS);
        bounded_round(&sliced, 1);
    }
    assert_true(sliced.paused_us > 0);
    outcome_same(&sliced, &whole);
    close_engine();
}

// A test that has failed leaves no engine, whose grammars the next test would find complete.
static int tear_down(void **state) {
    close_engine();
    on_device = false;
    return 0;
}

int test_main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(masks_are_made_in_slices, tear_down),
        cmocka_unit_test_teardown(turns_that_leave, tear_down),
        cmocka_unit_test_teardown(turns_that_are_forked_and_rewound, tear_down),
        cmocka_unit_test_teardown(late_masks_are_made_in_slices, tear_down),
        cmocka_unit_test_teardown(late_masks_of_draws_left_to_the_host, tear_down),
        cmocka_unit_test_teardown(a_turn_that_is_paused, tear_down),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    grammar_text_free(dear);
    mask_device_release();
    return rc;
}
