// Turns that are given back and go on with another engine, or with the same one, behind the tokens that
// they drew: the tokens, bits, text and end of a turn that was left alone, wherever it is cut.
#include "base/log.h"
#include "tests/golden/tiers_world.h"

enum { CHUNK = 16, PROMPT = 70, DRAWN = 90, WINDOW = 56 }; // the ring wraps
static const char *const qwen = "tests/fixtures/models/qwen3", *const demo = "configs/demo-model";
static struct outcome want, got;
static char stop[24];
static const struct grammar_text *regex;

static struct engine_turn long_turn(const struct engine *e) {
    struct engine_turn t = drawn_turn(e, 1, PROMPT, WINDOW, DRAWN);
    t.sampling.top_logprobs = 2;
    return t;
}
static struct engine_turn story(const struct engine *e) {
    struct token_list ids;
    struct err err;
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, "Once upon a time", 16, true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, 1, ids.ids, (int64_t)ids.len, 128, 4);
    token_list_release(&ids);
    t.goes_on = true;
    t.sampling.max_tokens = 60;
    return t;
}
// Tokens that are drafted and checked (engine/run/drafts.h).
static struct engine_turn drafted_turn(const struct engine *e) {
    struct engine_turn t = long_turn(e);
    t.sampling.temperature = 0;
    t.sampling.repetition_penalty = 1;
    t.sampling.frequency_penalty = 0;
    t.sampling.draft_tokens = 4;
    return t;
}
static struct engine_turn stopped_story(const struct engine *e) {
    struct engine_turn t = story(e);
    assert_int_equal(sampling_words_add_text(&t.sampling.stop, "stop", stop, strlen(stop), NULL),
                     0);
    return t;
}
// Thinking that a budget closes, and a grammar behind it.
static struct engine_turn thought(const struct engine *e) {
    static const char text[] = "Once upon a time <think>\n", color[] = "(red|green) [a-z]{3,20}";
    struct token_list ids;
    struct err err;
    struct engine *open = (struct engine *)e;
    if (!e->thinking)
        assert_int_equal(thinking_marks_new(&open->thinking, e->tokenizer, "<think>", "</think>",
                                            "\n</think>\n\n", 12, &err),
                         0);
    token_list_init(&ids);
    assert_int_equal(engine_tokenize(e, text, sizeof text - 1, true, &ids, &err), 0);
    struct engine_turn t = turn_for(e, 1, ids.ids, (int64_t)ids.len, 128, 4);
    token_list_release(&ids);
    t.goes_on = true;
    t.sampling.max_tokens = 60;
    t.sampling.temperature = 2;
    t.sampling.has_seed = true;
    t.sampling.seed = 5;
    t.sampling.thinking_budget = 23;
    t.sampling.ignore_eos = false;
    if (!regex)
        assert_int_equal(grammar_text_new(&regex, GRAMMAR_REGEX, color, sizeof color - 1, &err), 0);
    t.sampling.grammar = regex;
    return t;
}

// Until it is done, or has n tokens more and is given back. True: it is done.
static bool run_part(struct engine *e, struct engine_turn *t, int64_t n) {
    struct engine_event ev;
    int64_t before = got.n;
    bool asked = false;
    submit(e, t);
    for (int rounds = 0; !got.done; rounds++) {
        assert_true(rounds < 10 * MAX_LOG);
        if (got.n - before >= n && !asked) engine_turn_yield(e, t->sequence, t->turn), asked = true;
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) outcome_take(&got, &ev);
    }
    if (got.finish != FINISH_YIELDED) return true;
    got.done = false;
    return false;
}

static void check_turn(const char *model, struct engine_turn (*make)(const struct engine *)) {
    struct engine *two[2] = {tiered(model, CHUNK, 100, 0), tiered(model, CHUNK, 100, 0)};
    struct engine_turn t = make(two[0]);
    run_turn(two[0], &t, &want);
    for (int64_t every = 1; every < 20; every += every < 3 ? 1 : 5) {
        for (int n_engines = 1; n_engines <= 2; n_engines++) { // one: the cache is there
            memset(&got, 0, sizeof got);
            for (int part = 0;; part++) {
                struct engine *e = two[part % n_engines];
                t = make(e);
                int64_t n = t.n_ids;
                t.ids = realloc(t.ids, (size_t)(n + got.n) * sizeof *t.ids);
                memcpy(t.ids + n, got.ids, (size_t)got.n * sizeof *t.ids);
                t.n_ids = n + got.n;
                t.n_drawn = got.n;
                if (run_part(e, &t, every)) break;
            }
            assert_int_equal(got.n, want.n);
            assert_memory_equal(got.ids, want.ids, (size_t)want.n * sizeof *want.ids);
            assert_memory_equal(got.logprobs, want.logprobs,
                                (size_t)want.n * sizeof *want.logprobs);
            assert_string_equal(got.text, want.text);
            assert_int_equal(got.finish, want.finish);
        }
    }
    engine_close(two[0]);
    engine_close(two[1]);
}

static void the_same_bits(void **state) {
    check_turn(qwen, long_turn);
    check_turn(qwen, drafted_turn);
}

static void the_same_text_and_stop_strings(void **state) {
    check_turn(demo, story);
    memcpy(stop, want.text + want.text_len / 2, sizeof stop - 1);
    check_turn(demo, stopped_story);
    assert_int_equal(want.finish, FINISH_STOP);
}

static void the_same_thinking_and_grammar(void **state) {
    check_turn(demo, thought);
    assert_int_equal(want.finish, FINISH_EOS);
    assert_true(strstr(want.text, "\n</think>\n\nred ") ||
                strstr(want.text, "\n</think>\n\ngreen "));
}

static void what_does_not_fit_is_refused(void **state) {
    struct engine *e = tiered(qwen, CHUNK, 100, 0);
    struct err err;
    struct engine_turn t = long_turn(e);
    t.n_drawn = t.n_ids;
    assert_int_equal(engine_turn_submit(e, &t, &err), E_INVAL);
    t.n_drawn = 1; // its input and this are more than the log
    t.n_input = t.n_ids;
    assert_int_equal(engine_turn_submit(e, &t, &err), E_INVAL);
    t.n_input = 0;
    t.sampling.n = 2;
    assert_int_equal(engine_turn_submit(e, &t, &err), E_INVAL);
    free(t.ids);
    engine_turn_yield(e, 1, 5); // unknown
    engine_close(e);
}

static int set_up(void **state) {
    log_set_level(LOG_ERROR);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bits),
        cmocka_unit_test(the_same_text_and_stop_strings),
        cmocka_unit_test(the_same_thinking_and_grammar),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
