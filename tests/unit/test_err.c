// Errors: codes keep their words, sentences stay whole, errno finds its code.
#include "base/err.h"
#include "base/utf8.h"
#include "tests/cmocka.h"
#include <errno.h>
#include <string.h>

static void set_returns_code_and_fills_sentence(void **state) {
    struct err err;
    assert_int_equal(err_set(&err, E_NOTFOUND, "%s: no tensor named '%s'", "a.bin", "wte"),
                     E_NOTFOUND);
    assert_int_equal(err.code, E_NOTFOUND);
    assert_string_equal(err.text, "a.bin: no tensor named 'wte'");
}

static void null_err_is_allowed(void **state) {
    assert_int_equal(err_set(NULL, E_BUSY, "x"), E_BUSY);
    errno = ENOENT;
    assert_int_equal(err_errno(NULL, "x"), E_NOTFOUND);
}

static void own_text_may_be_wrapped(void **state) {
    struct err err;
    err_set(&err, E_FORMAT, "byte 3");
    err_set(&err, err.code, "%s: %s", "file.json", err.text);
    assert_string_equal(err.text, "file.json: byte 3");
}

static void long_text_is_cut_between_characters(void **state) {
    char text[600];
    for (size_t shift = 0; shift < 3; shift++) { // the cut falls on each byte of a character
        memset(text, 'a', sizeof text);
        for (size_t i = shift; i + 3 < sizeof text; i += 3) memcpy(text + i, "\u20ac", 3);
        text[sizeof text - 1] = '\0';
        struct err err;
        err_set(&err, E_LIMIT, "%s", text);
        assert_true(strlen(err.text) >= sizeof err.text - 3);
        assert_true(utf8_valid(err.text, strlen(err.text)));
        assert_memory_equal(err.text, text, strlen(err.text));
    }
}

static void line_breaks_become_blanks(void **state) {
    struct err err;
    err_set(&err, E_NOTFOUND, "%s: gone", "evil\nname\x1b[2J");
    assert_string_equal(err.text, "evil name [2J: gone");
}

static void errno_finds_its_code(void **state) {
    static const struct {
        int number, code;
    } rows[] = {{ENOMEM, E_NOMEM},  {ENOSPC, E_FULL},  {EDQUOT, E_FULL}, {ENOENT, E_NOTFOUND},
                {EACCES, E_DENIED}, {EPERM, E_DENIED}, {EIO, E_IO},      {EISDIR, E_IO}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err;
        errno = rows[i].number;
        assert_int_equal(err_errno(&err, "%s", "f"), rows[i].code);
        assert_memory_equal(err.text, "f: ", 3);
        assert_string_equal(err.text + 3, strerror(rows[i].number));
    }
}

static void every_code_has_its_own_word(void **state) {
    for (int a = 0; a >= E_INTERNAL; a--) {
        assert_string_not_equal(err_name(a), "unknown");
        for (int b = 0; b > a; b--) assert_string_not_equal(err_name(a), err_name(b));
    }
    assert_string_equal(err_name(0), "ok");
    assert_string_equal(err_name(E_NOMEM), "no_memory");
    assert_string_equal(err_name(E_FULL), "full");
    assert_string_equal(err_name(E_UNSUPPORTED), "unsupported");
    assert_string_equal(err_name(E_CLOSED), "closed");
    assert_string_equal(err_name(E_CANCELLED), "cancelled");
    assert_string_equal(err_name(E_INTERNAL), "internal");
    assert_string_equal(err_name(E_INTERNAL - 1), "unknown");
    assert_string_equal(err_name(1), "unknown");
}

static void facts_are_for_one_failure(void **state) {
    struct err err;
    assert_int_equal(err_key(&err, E_INVAL, "top_p", "%s is %d", "top_p", 2), E_INVAL);
    assert_string_equal(err.text, "top_p is 2");
    assert_string_equal(err.facts.key, "top_p");
    assert_int_equal(err.facts.most, 0);
    struct err_facts full = {.need = 24, .left = 23, .most = 99, .at_least = true};
    assert_int_equal(err_full(&err, &full, "%d", 24), E_FULL);
    assert_string_equal(err.facts.key, "");
    assert_int_equal(err.facts.need, 24);
    assert_true(err.facts.at_least);
    err_key(&err, E_INVAL, "a_name_that_is_longer_than_any_key_can_be", "x");
    assert_string_equal(err.facts.key, "");
    assert_int_equal(err.facts.most, 0);
    err_set(&err, E_IO, "x");
    assert_int_equal(err.facts.need, 0);
    assert_int_equal(err_key(NULL, E_INVAL, "k", "x"), E_INVAL);
    assert_int_equal(err_full(NULL, &full, "x"), E_FULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_returns_code_and_fills_sentence),
        cmocka_unit_test(null_err_is_allowed),
        cmocka_unit_test(own_text_may_be_wrapped),
        cmocka_unit_test(long_text_is_cut_between_characters),
        cmocka_unit_test(line_breaks_become_blanks),
        cmocka_unit_test(facts_are_for_one_failure),
        cmocka_unit_test(errno_finds_its_code),
        cmocka_unit_test(every_code_has_its_own_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
