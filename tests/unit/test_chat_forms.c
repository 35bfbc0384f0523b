// Our own chat templates: the output of each, and the next turn of a running session.
#include "engine/text/chat_forms.h"
#include "engine/text/chat_template.h"
#include "tests/cmocka.h"
#include "tests/unit/text_model.h"
#include <string.h>

static void check_next(const struct chat_template *c, const struct tokenizer *t,
                       const char *whole) {
    struct err err = {0};
    struct chat_message next = {"user", "What now?"};
    struct token_list ids;
    struct buf text;
    int32_t end = chat_template_end_of_turn(c);
    assert_true(end >= 256);
    size_t end_len;
    const char *end_text = tokenizer_bytes(t, end, &end_len);
    const char *behind = strstr(whole, "Hello!") + strlen("Hello!"),
               *found = strstr(behind, end_text);
    assert_non_null(found);
    token_list_init(&ids);
    buf_init(&text, 1 << 20);
    assert_int_equal(chat_template_render_next(c, &next, 1, end, &ids, &err), 0);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.len, false, &text, &err), 0);
    if (strcmp(buf_z(&text), found + end_len) != 0)
        fail_msg("%s: '%s', not '%s'", chat_template_name(c), buf_z(&text), found + end_len);
    ids.len = 0;
    buf_reset(&text);
    assert_int_equal(chat_template_render_next(c, &next, 1, 'x', &ids, &err), 0);
    assert_int_equal(tokenizer_decode(t, ids.ids, ids.len, false, &text, &err), 0);
    assert_string_equal(buf_z(&text), behind);
    token_list_release(&ids);
    buf_release(&text);
}

static void test_every_form_continues(void **state) {
    struct tokenizer *t = text_model_open_ends();
    struct err err = {0};
    for (size_t i = 0; i < n_chat_forms; i++) {
        struct chat_template *c;
        assert_int_equal(chat_template_open(&c, "/nonexistent", chat_forms[i].name, t, &err), 0);
        assert_string_equal(chat_template_name(c), chat_forms[i].name);
        struct chat_message m[] = {{"user", "Hi"}, {"assistant", "Hello!"}, {"user", "What now?"}};
        struct token_list first, again;
        struct buf whole;
        token_list_init(&first);
        token_list_init(&again);
        buf_init(&whole, 1 << 20);
        assert_int_equal(chat_template_render(c, m, 3, true, false, NULL, &whole, &err), 0);
        check_next(c, t, buf_z(&whole));
        assert_int_equal(chat_template_render(c, m, 1, true, false, &first, NULL, &err), 0);
        assert_int_equal(chat_template_render_next(c, m, 1, -1, &again, &err), 0);
        assert_int_equal(first.len, again.len);
        assert_memory_equal(first.ids, again.ids, first.len * sizeof *first.ids);
        token_list_release(&first);
        token_list_release(&again);
        buf_release(&whole);
        chat_template_close(c);
    }
    tokenizer_close(t);
}

static void test_names_are_complete(void **state) {
    char names[2048];
    snprintf(names, sizeof names, ", %s,", chat_template_names());
    for (size_t i = 0; i < n_chat_forms; i++) {
        char one[64];
        snprintf(one, sizeof one, ", %s,", chat_forms[i].name);
        assert_non_null(strstr(names, one));
        assert_ptr_equal(chat_form_named(chat_forms[i].name), &chat_forms[i]);
    }
}

struct rendering {
    const char *form;
    struct chat_message m[5];
    bool generate;
    const char *want; // NULL: E_INVAL
};

#define Q(text)                                                                                    \
    { "user", text }
#define A(text)                                                                                    \
    { "assistant", text }
#define S(text)                                                                                    \
    { "system", text }
static const struct rendering renderings[] = {
    {"chatml",
     {Q("a"), A("b")},
     false,
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n"},
    {"chatml", {{"tool", "a"}}, false, NULL},
    {"qwen2.5",
     {Q("a")},
     true,
     "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
     "assistant.<|im_end|>\n"
     "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"},
    {"qwen2.5",
     {S(""), Q("a")},
     false,
     "<|im_start|>system\n<|im_end|>\n<|im_start|>user\na<|im_end|>\n"},
    {"qwen3",
     {Q("q"), A("<think>\nhm\n</think>\n\nyes")},
     false,
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n<think>\nhm\n</"
     "think>\n\nyes<|im_end|>\n"},
    {"qwen3",
     {Q("q"), A("<think>\nhm\n</think>\n\nyes"), Q("r")},
     false,
     "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nr<|im_"
     "end|>\n"},
    {"llama2",
     {S("be"), Q(" a "), A(" b "), Q("c")},
     true,
     "<s>[INST] <<SYS>>\nbe\n<</SYS>>\n\n a [/INST] b </s><s>[INST] c [/INST]"},
    {"llama2", {S("be"), Q("  ")}, true, "<s>[INST] <<SYS>>\nbe\n<</SYS>> [/INST]"},
    {"llama2", {A("b")}, true, NULL},
    {"llama3",
     {S(" be"), Q("a\n")},
     true,
     "<s><|start_header_id|>system<|end_header_id|>\n\nbe<|eot_id|><|start_header_id|>user<|end_"
     "header_id|>\n\na"
     "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama3.1",
     {Q("a")},
     false,
     "<s><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December "
     "2023\nToday Date: 26 Jul "
     "2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\na<|eot_id|>"},
    {"mistral", {Q("a"), A("b"), Q("c")}, true, "<s>[INST] a [/INST]b</s>[INST] c [/INST]"},
    // Layouts that the template refuses: the system prompt goes into the user's message.
    {"mistral", {S("be"), Q("a")}, true, "<s>[INST] be\n\na [/INST]"},
    {"mistral-v1", {S("be"), Q("a"), A("b")}, true, "<s> [INST] be\n\na [/INST] b</s>"},
    {"mistral-v3",
     {S("be"), Q("a"), A(" b"), Q("c")},
     true,
     "<s>[INST] a[/INST] b</s>[INST] be\n\nc[/INST]"},
    {"mistral-nemo",
     {S("be"), Q("a"), A(" b"), Q("c")},
     true,
     "<s>[INST]a[/INST] b</s>[INST]be\n\nc[/INST]"},
    {"mistral-nemo", {S("be"), Q("a"), A("b")}, true, "<s>[INST]a[/INST]b</s>"},
    {"gemma",
     {Q(" a"), A("b ")},
     true,
     "<s><start_of_turn>user\na<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n<start_of_turn>"
     "model\n"},
    {"gemma",
     {S("be"), Q("a")},
     true,
     "<s><start_of_turn>user\nbe\n\na<end_of_turn>\n<start_of_turn>model\n"},
    {"gemma", {Q("a"), Q("b")}, true, NULL},
    {"phi3", {S(""), Q("a")}, false, "<|system|>\n<|end|>\n<|user|>\na<|end|>\n</s>"},
    {"phi3.5", {S(""), Q("a")}, true, "<|user|>\na<|end|>\n<|assistant|>\n"},
    {"zephyr",
     {S("be"), Q("a"), A("b")},
     true,
     "<|system|>\nbe</s>\n<|user|>\na</s>\n<|assistant|>\nb</s>\n<|assistant|>\n"},
    {"glm4",
     {Q("a"), A(" b ")},
     true,
     "[gMASK]<sop><|user|>\na<|assistant|>\n<think></think>\nb<|assistant|>"},
    {"deepseek-r1",
     {Q("a"), A("<think>x</think>\nb"), S("late")},
     false,
     "<s>late<｜User｜>a<｜Assistant｜>\nb<｜end▁of▁sentence｜>"},
    {"command-r", {Q("a"), S("be")}, true, NULL},
};

static void test_renderings(void **state) {
    struct tokenizer *t = text_model_open_ends();
    struct err err = {0};
    for (size_t i = 0; i < sizeof renderings / sizeof *renderings; i++) {
        const struct rendering *r = &renderings[i];
        struct chat_template *c;
        struct buf text;
        size_t n = 0;
        while (n < 5 && r->m[n].role) n++;
        buf_init(&text, 1 << 20);
        assert_int_equal(chat_template_open(&c, "", r->form, t, &err), 0);
        int rc = chat_template_render(c, r->m, n, r->generate, false, NULL, &text, &err);
        if (rc != (r->want ? 0 : E_INVAL)) fail_msg("%s (%zu): %d %s", r->form, i, rc, err.text);
        if (r->want && strcmp(buf_z(&text), r->want) != 0)
            fail_msg("%s (%zu): '%s', not '%s'", r->form, i, buf_z(&text), r->want);
        buf_release(&text);
        chat_template_close(c);
    }
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_form_continues),
        cmocka_unit_test(test_names_are_complete),
        cmocka_unit_test(test_renderings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
