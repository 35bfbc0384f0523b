// The inputs of custom tools' calls, cut at every byte.
#include "tests/cmocka.h"
#include "ws/completion/call_inputs.h"
#include <stdio.h>
#include <string.h>

static const struct chat_syntax hermes = {TOOL_SYNTAX_HERMES, "<think>", "</think>"};

static const struct {
    const char *arguments, *input;
} rows[] = {
    {"{\"input\":\"plain\"}", "plain"},
    {"{ \"input\" :\n \"\" }", ""},
    {"{\"input\": \"a \\\"b\\\" \\\\ \\/ \\n\\t\\b\\f\\r\"}", "a \"b\" \\ / \n\t\b\f\r"},
    {"{\"input\": \"\\u00e9\\u20AC\\ud83d\\uDE00\"}", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"},
    {"{\"input\": \"\\ud83dx\"}", "\xef\xbf\xbdx"},
    {"{\"input\": \"a {\\\"b\\\": [\"}", "a {\"b\": ["},
    {"{\"input\": \"more\", \"other\": 1}", "more"},
    {"{\"input\": 7}", "{\"input\": 7}"},
    {"{\"in\": \"x\"}", "{\"in\": \"x\"}"},
    {"{\"inputs\": \"x\"}", "{\"inputs\": \"x\"}"},
    {"{}", "{}"},
};

struct said { // the pieces, joined
    struct buf text;
    int n_begun, n_ended;
    bool custom;
};

static void take(struct call_inputs *c, struct answer_parser *p, struct said *s) {
    struct answer_piece piece;
    int rc;
    while ((rc = call_inputs_next(c, p, &piece)) == 1) {
        s->n_begun += piece.kind == PIECE_TOOL_BEGIN;
        s->n_ended += piece.kind == PIECE_TOOL_END;
        s->custom = c->is_custom;
        if (piece.kind == PIECE_TOOL_ARGUMENTS) {
            assert_int_equal(s->n_ended, 0);
            assert_true(piece.len > 0);
            buf_add(&s->text, piece.text, piece.len);
        }
    }
    assert_int_equal(rc, 0);
}

// A call of `name`, fed in pieces of `first`, then of `each` bytes.
static struct said say(const char *name, const char *arguments, size_t first, size_t each) {
    char text[512];
    struct said s = {.n_begun = 0};
    struct answer_parser p;
    struct call_inputs c;
    cJSON *tools =
        cJSON_Parse("[{\"function\":{\"name\":\"note\"}},{\"function\":{\"name\":\"f\"}}]");
    cJSON *custom = cJSON_Parse("[\"note\"]");
    snprintf(text, sizeof text, "<tool_call>{\"name\": \"%s\", \"arguments\": %s}</tool_call>",
             name, arguments);
    buf_init(&s.text, 1 << 16);
    answer_parser_init(&p, hermes, tools, false);
    call_inputs_init(&c, custom);
    size_t len = strlen(text);
    for (size_t at = 0, n = first; at < len; at += n, n = each) {
        if (n > len - at) n = len - at;
        answer_parser_feed(&p, text + at, n);
        take(&c, &p, &s);
    }
    answer_parser_end(&p);
    take(&c, &p, &s);
    call_inputs_release(&c);
    answer_parser_release(&p);
    cJSON_Delete(tools);
    cJSON_Delete(custom);
    return s;
}

static void check(const char *name, const char *arguments, const char *wants, size_t first,
                  size_t each) {
    struct said s = say(name, arguments, first, each);
    assert_string_equal(buf_z(&s.text), wants);
    assert_int_equal(s.n_begun, 1);
    assert_int_equal(s.n_ended, 1);
    assert_int_equal(s.custom, strcmp(name, "note") == 0);
    buf_release(&s.text);
}

static void test_every_cut(void **state) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t len = strlen(rows[i].arguments) + 64;
        for (size_t cut = 1; cut <= len; cut++)
            check("note", rows[i].arguments, rows[i].input, cut, SIZE_MAX);
        for (size_t each = 1; each < 4; each++)
            check("note", rows[i].arguments, rows[i].input, each, each);
    }
}

// Functions keep their arguments.
static void test_functions_stay(void **state) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check("f", rows[i].arguments, rows[i].arguments, 3, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cut),
        cmocka_unit_test(test_functions_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
