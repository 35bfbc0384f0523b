// One turn without a model: the longest log, and the text of its tokens.
#include "engine/run/live_turn.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

enum { N_VOCAB = 5000 }; // more than the tokenizer knows

static struct tokenizer *tokenizer;
static struct turn_slot slot;
static struct live_turn *turn;
static struct buf scratch, text;

static int open_tokenizer(void **state) {
    struct err err;
    return tokenizer_open(&tokenizer, "configs/demo-model", &err);
}

static int close_tokenizer(void **state) {
    tokenizer_close(tokenizer);
    return 0;
}

static struct engine_turn spec(void) {
    struct engine_turn s = {.sequence = 1, .turn = 1, .n_ids = 3, .n_input = 3, .session_len = 100};
    sampling_params_init(&s.sampling);
    return s;
}

static void begin(const char *stop) {
    struct engine_turn s = spec();
    if (stop) {
        sampling_words_add_text(&s.sampling.stop, "stop", stop, strlen(stop), NULL);
    }
    s.ids = calloc(3, sizeof *s.ids);
    turn = live_turn_new(&s, 1000);
    memset(&slot, 0, sizeof slot);
    assert_int_equal(sampler_init(&slot.sampler, N_VOCAB, NULL), 0);
    turn->slot = &slot;
    buf_init(&scratch, 1 << 16);
    buf_init(&text, 1 << 16);
    assert_int_equal(live_turn_begin(turn, &slot, tokenizer, NULL, 0, &scratch, &text, NULL), 0);
}

static void end(void) {
    live_turn_free(turn);
    sampler_release(&slot.sampler);
    detokenizer_release(&slot.detokenizer);
    buf_release(&scratch);
    buf_release(&text);
}

// Appends the ids of a text until a stop string is met; returns whether one was.
static bool say(const char *words) {
    struct token_list ids;
    bool stopped = false;
    token_list_init(&ids);
    assert_int_equal(tokenizer_encode(tokenizer, words, strlen(words), NULL, &ids, NULL), 0);
    for (size_t i = 0; i < ids.len && !stopped; i++) {
        int rc = live_turn_append(turn, ids.ids[i], &scratch, &text);
        assert_true(rc >= 0);
        stopped = rc == 1;
    }
    token_list_release(&ids);
    return stopped;
}

static void test_longest_log(void **state) {
    struct engine_turn s = spec();
    assert_int_equal(live_turn_max_log(&s), 100); // to the session's bound
    s.sampling.max_tokens = 10;
    assert_int_equal(live_turn_max_log(&s), 13);
    s.sampling.max_tokens = 1000;
    assert_int_equal(live_turn_max_log(&s), 100);
    s.score_only = true;
    assert_int_equal(live_turn_max_log(&s), 3);
}

static void test_deadline_far_away_does_not_wrap(void **state) {
    struct engine_turn s = spec();
    s.sampling.deadline_us = INT64_MAX - 1;
    struct live_turn *t = live_turn_new(&s, 1000);
    assert_int_equal(t->deadline_us, INT64_MAX);
    live_turn_free(t);
}

static void test_text_comes_out_whole(void **state) {
    begin(NULL);
    assert_false(say("A caf\xc3\xa9, and then a story."));
    assert_int_equal(live_turn_flush(turn, &scratch, &text), 0);
    assert_string_equal(buf_z(&text), "A caf\xc3\xa9, and then a story.");
    assert_int_equal(turn->n_log, 3 + turn->n_generated);
    end();
}

static void test_stop_string_is_cut_out(void **state) {
    begin("and then");
    assert_true(say("A walk, and then a story."));
    assert_string_equal(buf_z(&text), "A walk, ");
    end();
}

static void test_held_back_tail_is_shown_at_the_end(void **state) {
    begin("and then");
    assert_false(say("A walk, and the"));
    assert_string_equal(buf_z(&text), "A walk, ");
    assert_int_equal(live_turn_flush(turn, &scratch, &text), 0);
    assert_string_equal(buf_z(&text), "A walk, and the");
    end();
}

static void test_token_past_the_tokenizer_says_nothing(void **state) {
    begin(NULL);
    assert_int_equal(live_turn_append(turn, N_VOCAB - 1, &scratch, &text), 0);
    assert_int_equal(text.len, 0);
    assert_int_equal(turn->n_generated, 1);
    end();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_longest_log),
        cmocka_unit_test(test_deadline_far_away_does_not_wrap),
        cmocka_unit_test(test_text_comes_out_whole),
        cmocka_unit_test(test_stop_string_is_cut_out),
        cmocka_unit_test(test_held_back_tail_is_shown_at_the_end),
        cmocka_unit_test(test_token_past_the_tokenizer_says_nothing),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
