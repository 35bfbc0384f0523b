// config.ini as a list of keys: keys are found, errors name their line, and a hostile text costs
// little.
#include "engine/model/ft_ini.h"
#include "tests/unit/tmp_dir.h"
#include <time.h>

static int parse(struct ft_ini *ini, const char *text, struct err *err) {
    memset(err, 0, sizeof *err);
    return ft_ini_parse(ini, "config.ini", text, strlen(text), err);
}

static void finds_keys_whatever_their_case(void **state) {
    struct ft_ini ini;
    struct err err;
    const char *text;
    int64_t n = 0;
    double eps = 0;
    bool on = false;
    assert_int_equal(parse(&ini,
                           "\xef\xbb\xbf; written by hand\r\n[GPT]\r\n  Head_Num = 12 ; of 64\n"
                           "layernorm_eps=1e-5\nmodel_name: a = b\nhas_adapters = True\n"
                           "empty =\n\n[task_0]\nhead_num=3",
                           &err),
                     0);
    assert_true(ft_ini_has_section(&ini, "gpt") && ft_ini_has_section(&ini, "task_0"));
    assert_false(ft_ini_has_section(&ini, "gptj"));
    assert_int_equal(ft_ini_int(&ini, "gpt", "head_num", 1, 100, &n, &err), FT_INI_PRESENT);
    assert_int_equal(n, 12);
    assert_int_equal(ft_ini_int(&ini, "task_0", "head_num", 1, 100, &n, &err), FT_INI_PRESENT);
    assert_int_equal(n, 3);
    assert_int_equal(ft_ini_double(&ini, "gpt", "layernorm_eps", 0, 1, &eps, &err), FT_INI_PRESENT);
    assert_true(eps == 1e-5);
    assert_int_equal(ft_ini_bool(&ini, "gpt", "has_adapters", &on, &err), FT_INI_PRESENT);
    assert_true(on);
    assert_int_equal(ft_ini_string(&ini, "gpt", "nothing", &text), FT_INI_ABSENT);
    size_t unused;
    assert_string_equal(ft_ini_unused(&ini, "gpt", &unused), "model_name");
    assert_int_equal(unused, 2);
    assert_int_equal(ft_ini_string(&ini, "gpt", "model_name", &text), FT_INI_PRESENT);
    assert_string_equal(text, "a = b");
    assert_int_equal(ft_ini_string(&ini, "gpt", "empty", &text), FT_INI_PRESENT);
    assert_string_equal(text, "");
    assert_null(ft_ini_unused(&ini, "gpt", &unused));
    ft_ini_release(&ini);
}

static void names_the_line_that_is_wrong(void **state) {
    static const struct {
        const char *text;
        int code;
        const char *names;
    } cases[] = {
        {"[gpt]\nhead_num\n", E_FORMAT, "config.ini:2: neither"},
        {"[gpt\nhead_num=1\n", E_FORMAT, "config.ini:1: neither"},
        {"[gpt]\n=1\n", E_FORMAT, "config.ini:2: a value without a key"},
        {"[gpt]\na=1\n[other]\n[gpt]\nb=2\n", E_FORMAT, "config.ini:4: a second section gpt"},
        {"[gpt]\n[GPT]\n", E_FORMAT, "config.ini:2: a second section"},
        {"[gpt]\nhead_num=1\nHEAD_NUM=2\n", E_FORMAT, "config.ini:3: a second HEAD_NUM"},
        {"[gpt]\njunk\nhead_num=1\nhead_num=2\n", E_FORMAT, "config.ini:2: neither"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ft_ini ini;
        struct err err;
        assert_int_equal(parse(&ini, cases[i].text, &err), cases[i].code);
        if (!strstr(err.text, cases[i].names)) fail_msg("case %zu: %s", i, err.text);
        ft_ini_release(&ini);
    }
}

static void values_of_another_kind(void **state) {
    static const char *const numbers[] = {"",    "x",    "1.5", "12x",
                                          "1 2", "0x10", "-1",  "99999999999999999999"};
    static const char *const reals[] = {"", "x", "nan", "inf", "-1e-5", "2"};
    static const char *const words[] = {"", "2", "y", "truee"};
    char text[100];
    for (int kind = 0; kind < 3; kind++) {
        const char *const *values = kind == 0 ? numbers : kind == 1 ? reals : words;
        size_t n = kind == 0 ? 8 : kind == 1 ? 6 : 4;
        for (size_t i = 0; i < n; i++) {
            struct ft_ini ini;
            struct err err;
            int64_t whole = 7;
            double real = 7;
            bool on = true;
            snprintf(text, sizeof text, "[gpt]\nkey = %s\n", values[i]);
            assert_int_equal(parse(&ini, text, &err), 0);
            int rc = kind == 0   ? ft_ini_int(&ini, "gpt", "key", 0, 100, &whole, &err)
                     : kind == 1 ? ft_ini_double(&ini, "gpt", "key", 0, 1, &real, &err)
                                 : ft_ini_bool(&ini, "gpt", "key", &on, &err);
            if (rc != E_FORMAT) fail_msg("'%s' of kind %d: %d", values[i], kind, rc);
            assert_non_null(strstr(err.text, "config.ini: 'key' is '"));
            assert_true(whole == 7 && real == 7 && on);
            ft_ini_release(&ini);
        }
    }
}

static void hostile_texts_are_bounded(void **state) {
    struct ft_ini ini;
    struct err err;
    size_t cap = FT_INI_MAX_BYTES + 1;
    char *text = malloc(cap + 1);
    assert_non_null(text);

    memset(text, 'a', cap);
    assert_int_equal(ft_ini_parse(&ini, "big", text, cap, &err), E_LIMIT);
    ft_ini_release(&ini);
    assert_int_equal(ft_ini_parse(&ini, "line", text, cap - 1, &err), E_LIMIT);
    assert_non_null(strstr(err.text, "too long"));
    ft_ini_release(&ini);
    assert_int_equal(ft_ini_parse(&ini, "nul", "[gpt]\na=\0b\n", 12, &err), E_FORMAT);
    ft_ini_release(&ini);

    // As many keys, and sections, as the size allows.
    clock_t start = clock();
    size_t at = (size_t)sprintf(text, "[gpt]\n");
    for (int i = 0; at + 20 < cap; i++) at += (size_t)sprintf(text + at, "k%d=\n", i);
    assert_int_equal(ft_ini_parse(&ini, "keys", text, at, &err), E_LIMIT);
    ft_ini_release(&ini);
    at = 0;
    for (int i = 0; at + 20 < cap; i++) at += (size_t)sprintf(text + at, "[s%d]\n", i);
    assert_int_equal(ft_ini_parse(&ini, "sections", text, at, &err), E_LIMIT);
    ft_ini_release(&ini);
    assert_true((double)(clock() - start) / CLOCKS_PER_SEC < 5);

    assert_int_equal(ft_ini_parse(&ini, "empty", NULL, 0, &err), 0);
    assert_int_equal(ini.n, 0);
    ft_ini_release(&ini);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_keys_whatever_their_case),
        cmocka_unit_test(names_the_line_that_is_wrong),
        cmocka_unit_test(values_of_another_kind),
        cmocka_unit_test(hostile_texts_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
