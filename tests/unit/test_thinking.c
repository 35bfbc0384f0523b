// Where an answer stands in the model's thinking, with the demo model's tokens: marks of several tokens, which
// other tokens run across.
#include "engine/run/thinking.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <string.h>

static struct tokenizer *tokenizer;
static struct thinking_marks *marks;
static const char qwen[] =
    "{{ '<think>\\n' + thought + '\\n</think>\\n\\n' + s.split('</think>')[0] }}";

static int open_marks(void **state) {
    struct err err = {0};
    int rc = tokenizer_open(&tokenizer, "configs/demo-model", &err);
    if (rc == 0)
        rc = thinking_marks_new(&marks, tokenizer, "<think>", "</think>", qwen, sizeof qwen - 1,
                                &err);
    if (rc < 0) fprintf(stderr, "%s\n", err.text);
    return rc;
}

static int close_marks(void **state) {
    thinking_marks_free(marks);
    tokenizer_close(tokenizer);
    return 0;
}

static struct token_list encode(const char *text) {
    struct token_list ids;
    token_list_init(&ids);
    assert_int_equal(tokenizer_encode(tokenizer, text, strlen(text), NULL, &ids, NULL), 0);
    return ids;
}

static struct thinking after(const char *log, bool goes_on) {
    struct thinking t;
    struct token_list ids = encode(log);
    thinking_begin(&t, marks, ids.ids, (int64_t)ids.len, goes_on);
    token_list_release(&ids);
    return t;
}

static void say(struct thinking *t, const char *text) {
    struct token_list ids = encode(text);
    for (size_t i = 0; i < ids.len; i++) thinking_accept(t, ids.ids[i]);
    token_list_release(&ids);
}

static void check_ids(struct thinking_ids ids, const char *text) {
    char all[128] = "";
    for (int32_t i = 0; i < ids.n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &len);
        strncat(all, bytes, len);
    }
    assert_string_equal(all, text);
}

static void the_prompt_decides_where_an_answer_begins(void **state) {
    assert_int_equal(after("<|im_start|>assistant\n", false).state, THINKING_MAY_BEGIN);
    assert_int_equal(after("<|im_start|>assistant\n<think>\n", false).state, THINKING_OPEN);
    assert_int_equal(after("<|im_start|>assistant\n<think>\n\n</think>\n\n", false).state,
                     THINKING_OVER);
    assert_int_equal(after("<|im_start|>assistant\n<think>\nHm", true).state, THINKING_OPEN);
    assert_int_equal(after("<|im_start|>assistant\nSo", true).state, THINKING_OVER);
    // A question is not searched.
    assert_int_equal(
        after("<|im_start|>user\nWhat is <think>?<|im_end|>\n<|im_start|>assistant\n", false).state,
        THINKING_MAY_BEGIN);
    assert_int_equal(after("", false).state, THINKING_MAY_BEGIN);
}

static void marks_are_found_across_tokens(void **state) {
    struct thinking t = after("<|im_start|>assistant\n", false);
    say(&t, " \n<thi");
    assert_int_equal(t.state, THINKING_MAY_BEGIN);
    say(&t, "nk>Hello"); // ">Hello" is one token
    assert_int_equal(t.state, THINKING_OPEN);
    assert_int_equal(t.n_drawn, 0);
    say(&t, " it is </th</think");
    assert_int_equal(t.state, THINKING_OPEN);
    assert_int_equal(t.matched, 7);
    say(&t, ">\n\n");
    assert_int_equal(t.state, THINKING_OVER);
    assert_true(t.n_drawn > 5);

    t = after("<|im_start|>assistant\n", false);
    say(&t, "No <think>");
    assert_int_equal(t.state, THINKING_OVER);
}

static void closings_are_written_as_the_template_writes_them(void **state) {
    check_ids(thinking_closing(marks, 0, true), "\n</think>\n\n");
    check_ids(thinking_closing(marks, 0, false), "</think>\n\n");
    check_ids(thinking_closing(marks, 5, true), "nk>\n\n");
    check_ids(thinking_gap(marks), "\n\n");
    struct thinking_marks *plain;
    static const char text[] = "'<think></think>' + content";
    assert_int_equal(
        thinking_marks_new(&plain, tokenizer, "<think>", "</think>", text, sizeof text - 1, NULL),
        0);
    check_ids(thinking_closing(plain, 0, true), "</think>");
    assert_int_equal(thinking_gap(plain).n, 0);
    thinking_marks_free(plain);
}

static void a_forced_closing_is_followed_token_by_token(void **state) {
    struct thinking t = after("<|im_start|>assistant\n<think>\n", false);
    say(&t, "Hm, hm");
    int64_t drawn = t.n_drawn;
    thinking_close(&t);
    while (t.forced.n > 0) thinking_accept(&t, t.forced.ids[0]);
    assert_int_equal(t.state, THINKING_OVER);
    assert_int_equal(t.n_drawn, drawn);

    t = after("<|im_start|>assistant\n<think>\n", false);
    thinking_close(&t);
    say(&t, "x"); // what another engine drew
    assert_int_equal(t.forced.n, 0);
    assert_int_equal(t.state, THINKING_OPEN);
}

static bool has(struct thinking_ids ids, const char *token) {
    for (int32_t i = 0; i < ids.n; i++) {
        size_t len;
        const char *bytes = tokenizer_bytes(tokenizer, ids.ids[i], &len);
        if (len == strlen(token) && memcmp(bytes, token, len) == 0) return true;
    }
    return false;
}

static void tokens_across_a_mark_are_listed(void **state) {
    assert_true(has(thinking_spills(marks, 7), ">\n\n"));
    assert_true(has(thinking_spills(marks, 7), ">Hello"));
    assert_false(has(thinking_spills(marks, 7), ">"));
    assert_int_equal(thinking_spills(marks, 0).n, 0);
    assert_true(has(thinking_openings(marks, 0), "<"));
    assert_true(has(thinking_openings(marks, 1), "th"));
    assert_false(has(thinking_openings(marks, 6), ">\n\n"));
    for (int32_t i = 0; i < 7; i++) assert_true(thinking_openings(marks, i).n > 0);
}

// gpt-oss: what closes the thinking is a message's end and the header of the answer.
static void a_channel_ends_with_the_header_of_the_answer(void **state) {
    static const char header[] = "<|start|>assistant<|channel|>final<|message|>";
    struct thinking_marks *own = marks, *channel;
    assert_int_equal(thinking_marks_new_before(&channel, tokenizer,
                                               "<|channel|>analysis<|message|>", "<|end|>", header,
                                               "<|end|>\n\n", 9, NULL),
                     0);
    marks = channel;
    struct thinking t = after("<|start|>assistant", false);
    assert_int_equal(t.state, THINKING_MAY_BEGIN);
    say(&t, "<|channel|>analysis<|message|>");
    assert_int_equal(t.state, THINKING_OPEN);
    say(&t, "One thing, and another");
    thinking_close(&t);
    check_ids(t.forced, "<|end|><|start|>assistant<|channel|>final<|message|>");
    say(&t, "<|end|>");
    assert_int_equal(t.state, THINKING_OVER);
    t = after("<|start|>assistant", false);
    say(&t, "<|channel|>final<|message|>No thought.");
    assert_int_equal(t.state, THINKING_OVER);
    marks = own;
    thinking_marks_free(channel);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_channel_ends_with_the_header_of_the_answer),
        cmocka_unit_test(the_prompt_decides_where_an_answer_begins),
        cmocka_unit_test(marks_are_found_across_tokens),
        cmocka_unit_test(closings_are_written_as_the_template_writes_them),
        cmocka_unit_test(a_forced_closing_is_followed_token_by_token),
        cmocka_unit_test(tokens_across_a_mark_are_listed),
    };
    return cmocka_run_group_tests(tests, open_marks, close_marks);
}
