// Events: long text is cut between characters and none of it is lost; an error's sentence comes after
// the text.
#include "engine/run/emit.h"

#include "base/utf8.h"
#include "tests/cmocka.h"
#include <string.h>

static struct queue events;
static struct clock_fake fake;
static struct emitter emit;
static struct live_turn turn;

static int set_up(void **state) {
    clock_fake_init(&fake, 0);
    clock_fake_advance(&fake, 1000);
    memset(&turn, 0, sizeof turn);
    turn.spec.sequence = 3;
    turn.spec.turn = 9;
    emit = (struct emitter){.queue = &events, .clock = &fake.clock};
    return queue_init(&events, sizeof(struct engine_event), 32, NULL, NULL, NULL);
}

static int tear_down(void **state) {
    queue_release(&events);
    return 0;
}

static size_t collect(char *text, struct engine_event *last, int *n_tokens) {
    size_t len = 0;
    *n_tokens = 0;
    while (queue_try_pop(&events, last) == 1) {
        assert_int_equal(last->sequence, 3);
        assert_int_equal(last->turn, 9);
        assert_true(utf8_valid(last->text, last->text_len));
        *n_tokens += last->kind == ENGINE_TOKEN && last->id >= 0;
        memcpy(text + len, last->text, last->text_len);
        len += last->text_len;
    }
    return len;
}

static void test_long_text_is_cut_between_characters(void **state) {
    char text[1200], got[1300];
    for (size_t lead = 0; lead < 4; lead++) { // every offset of a cut within a character
        memset(text, 'a', lead);
        for (size_t i = lead; i + 4 <= sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 4);
        size_t len = lead + (sizeof text - lead) / 4 * 4;
        struct sampled s = {
            .id = 5, .logprob = -1.5f, .n_alternatives = 1, .alternatives = {{7, -2.0f}}};
        struct engine_event last;
        int n_tokens;
        emit_token(&emit, &turn, 0, &s, text, len);
        assert_int_equal(collect(got, &last, &n_tokens), len);
        assert_memory_equal(got, text, len);
        assert_int_equal(n_tokens, 1);
        assert_int_equal(last.id, -1);
        assert_int_equal(last.n_alternatives, 0);
    }
}

static void test_token_without_text(void **state) {
    struct sampled s = {.id = 5, .n_alternatives = 2, .alternatives = {{7, -2.0f}, {8, -3.0f}}};
    struct engine_event ev;
    emit_token(&emit, &turn, 0, &s, "", 0);
    assert_int_equal(queue_try_pop(&events, &ev), 1);
    assert_int_equal(ev.id, 5);
    assert_int_equal(ev.text_len, 0);
    assert_int_equal(ev.n_alternatives, 2);
    assert_int_equal(ev.alternatives[1].id, 8);
    assert_int_equal(queue_try_pop(&events, &ev), 0);
}

static void test_done_carries_the_tail_and_the_times(void **state) {
    char text[500], got[600];
    memset(text, 'x', sizeof text);
    struct engine_event last;
    int n_tokens;
    turn.submitted_us = 100;
    turn.started_us = 250;
    turn.first_us = 600;
    turn.last_us = 900;
    turn.n_generated = 4;
    turn.n_prefilled = 8;
    emit_done(&emit, &turn, FINISH_EOS, NULL, text, sizeof text, 3, false);
    assert_int_equal(collect(got, &last, &n_tokens), sizeof text);
    assert_int_equal(n_tokens, 0);
    assert_int_equal(last.kind, ENGINE_DONE);
    assert_int_equal(last.queue_us, 150);
    assert_int_equal(last.prefill_us, 350);
    assert_int_equal(last.decode_us, 300);
    assert_int_equal(last.n_generated, 4);
    assert_int_equal(last.n_prefilled, 8);
    assert_int_equal(last.blocks, 3);
}

static struct engine_event done_event(void) {
    struct engine_event ev;
    emit_done(&emit, &turn, FINISH_CANCELLED, NULL, "", 0, 0, false);
    assert_int_equal(queue_try_pop(&events, &ev), 1);
    return ev;
}

static void expect_times(int64_t queue_us, int64_t prefill_us, int64_t decode_us,
                         int64_t paused_us) {
    struct engine_event ev = done_event();
    assert_int_equal(ev.queue_us, queue_us);
    assert_int_equal(ev.prefill_us, prefill_us);
    assert_int_equal(ev.decode_us, decode_us);
    assert_int_equal(ev.paused_us, paused_us);
}

// The clock stands at 1000: turns end then.
static void test_pauses_are_in_no_other_time(void **state) {
    turn.submitted_us = 100;
    turn.started_us = 200;
    live_turn_paused(&turn, 300);
    live_turn_paused(&turn, 310);   // it is paused already
    expect_times(100, 100, 0, 700); // cancelled during its prompt
    live_turn_goes_on(&turn, 350);
    live_turn_goes_on(&turn, 360);
    expect_times(100, 750, 0, 50);
    live_turn_drew(&turn, 400);
    live_turn_drew(&turn, 500);
    expect_times(100, 150, 100, 50);
    live_turn_paused(&turn, 520);
    expect_times(100, 150, 100, 530); // cancelled between two tokens
    live_turn_goes_on(&turn, 620);
    expect_times(100, 150, 100, 150); // and before the next one
    live_turn_drew(&turn, 640);
    expect_times(100, 150, 140, 150);
}

static void test_never_started_turn_spent_its_time_in_the_queue(void **state) {
    struct engine_event ev;
    turn.submitted_us = 100;
    emit_done(&emit, &turn, FINISH_CANCELLED, NULL, "", 0, 0, false);
    assert_int_equal(queue_try_pop(&events, &ev), 1);
    assert_int_equal(ev.queue_us, 900);
    assert_int_equal(ev.prefill_us, 0);
    assert_int_equal(ev.decode_us, 0);
}

static void test_error_says_its_sentence_after_the_words(void **state) {
    struct err err;
    struct engine_event ev;
    err_set(&err, E_DEVICE, "it broke");
    emit_done(&emit, &turn, FINISH_ERROR, &err, "half a wor", 10, 0, false);
    assert_int_equal(queue_try_pop(&events, &ev), 1);
    assert_int_equal(ev.kind, ENGINE_TOKEN);
    assert_int_equal(ev.id, -1);
    assert_memory_equal(ev.text, "half a wor", 10);
    assert_int_equal(queue_try_pop(&events, &ev), 1);
    assert_int_equal(ev.kind, ENGINE_DONE);
    assert_int_equal(ev.error_code, E_DEVICE);
    assert_int_equal(ev.text_len, 8);
    assert_memory_equal(ev.text, "it broke", 8);
}

static void count_wake(void *ctx) {
    ++*(int *)ctx;
}

// Events between hold and let_go wake the owner once, complete and in order; more than EMIT_TOGETHER
// are sent in several parts.
static void test_held_events_are_told_together(void **state) {
    int wakes = 0;
    struct engine_event ev;
    events.wake = count_wake;
    events.wake_ctx = &wakes;
    for (int n = 1; n <= 2 * EMIT_TOGETHER + 3; n += EMIT_TOGETHER / 2 + 1) {
        int parts = (n + EMIT_TOGETHER - 1) / EMIT_TOGETHER;
        wakes = 0;
        emit_hold(&emit);
        for (int i = 0; i < n; i++) {
            struct sampled s = {.id = 100 + i};
            assert_int_equal(queue_count(&events), 0);
            emit_token(&emit, &turn, 0, &s, "word", 4);
            for (int at = i + 1 - EMIT_TOGETHER; (i + 1) % EMIT_TOGETHER == 0 && at <= i; at++) {
                assert_int_equal(queue_try_pop(&events, &ev), 1); // a full part has gone
                assert_int_equal(ev.id, 100 + at);
            }
        }
        assert_int_equal(queue_count(&events), 0);
        emit_let_go(&emit);
        for (int i = n / EMIT_TOGETHER * EMIT_TOGETHER; i < n; i++) {
            assert_int_equal(queue_try_pop(&events, &ev), 1);
            assert_int_equal(ev.id, 100 + i);
            assert_memory_equal(ev.text, "word", 4);
        }
        assert_int_equal(queue_try_pop(&events, &ev), 0);
        assert_int_equal(wakes, parts);
    }
    emit_let_go(&emit); // of nothing
    assert_int_equal(queue_count(&events), 0);
    wakes = 0;
    emit_token(&emit, &turn, 0, &(struct sampled){.id = 1}, "", 0); // nothing is held any more
    assert_int_equal(wakes, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_long_text_is_cut_between_characters, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_token_without_text, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_done_carries_the_tail_and_the_times, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_pauses_are_in_no_other_time, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_never_started_turn_spent_its_time_in_the_queue, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_error_says_its_sentence_after_the_words, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_held_events_are_told_together, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
