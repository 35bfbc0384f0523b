// Hostile chat templates: each ends soon and within bounded memory, with an error that names line
// and limit. Also refusals when a template is opened, and the origin of bytes.
#include "tests/scale.h"
#include "tests/unit/jinja_fixture.h"
#include <stdlib.h>
#include <time.h>

static const struct jinja_sample hostile[] = {
    {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% for a in range(99999) %}{% for b in range(99999) %}{% set x = [b] %}{% endfor %}"
     "{% endfor %}",
     "MiB", E_LIMIT},
    {"{% for a in range(9999) %}{% set x = l | sort | sort | sort | sort | sort | sort %}"
     "{% set y = range(9999) | max %}{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% for a in range(999) %}{% for b in 'ab' * 999 %}{% if b == 'a' and a is odd %}{% endif %}"
     "{% endfor %}{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% macro f() %}{{ f() }}{% endmacro %}\n{{ f() }}", "nested deeper than 500", E_LIMIT},
    {"{{ range(10**12) | length }}",
     "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).", E_LIMIT},
    {"{{ 'abcdefgh' * 10**15 }}", "takes more than 64 MiB", E_LIMIT},
    {"{{ [1] * 10**15 }}", "takes more than 64 MiB", E_LIMIT},
    {"{% set ns = namespace(s='aa') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}"
     "{% endfor %}",
     "takes more than 64 MiB", E_LIMIT},
    {"{% set ns = namespace(s='aa') %}{% for i in range(99) %}"
     "{% set ns.s = ns.s.replace('a', 'aaaaaaaaaa') %}{% endfor %}",
     "takes more than 64 MiB", E_LIMIT},
    {"{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}",
     "lists inside one another deeper than 64", E_LIMIT},
    {"{% set ns = namespace(x=[1]) %}{% for i in range(500) %}"
     "{% set ns.x = [ns.x] | groupby(0) | list %}{% endfor %}",
     "lists inside one another deeper than 64", E_LIMIT},
    {"{% set ns = namespace(x=[1], y=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
     "{% set ns.y = [ns.y, ns.y] %}{% endfor %}{{ ns.x == ns.y }}",
     "too many steps", E_LIMIT},
    // Work that was not counted once: keys of nested dicts, long keys, white space before a number,
    // arguments searched for each field, parameter and item.
    {"{% set ns = namespace(d=1) %}{% for i in range(90000) %}{% set ns.d = {(ns.d,): 1} %}"
     "{% endfor %}{{ ns.d }}",
     "unhashable type: 'dict'", E_INVAL},
    {"{% set ns = namespace(d=1) %}{% for i in range(9000) %}{% set ns.d = (ns.d,) %}{% endfor %}"
     "{{ {ns.d: 1} }}",
     "lists inside one another deeper than 64", E_LIMIT},
    {"{% set ns = namespace(d=(1,)) %}{% for i in range(62) %}{% set ns.d = (ns.d, ns.d) %}"
     "{% endfor %}{{ {ns.d: 1} }}",
     "too many steps", E_LIMIT},
    {"{% set k = 'a' * 1000000 %}{% set d = {k: 1} %}{% set j = 'a' * 1000000 %}"
     "{% for i in range(90000) %}{% if d[j] %}{% endif %}{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% set s = ' ' * 1000000 %}{% for i in range(90000) %}{% if s | int %}{% endif %}"
     "{% if s | float %}{% endif %}{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
     "{% endfor %}{{ ns.x | tojson }}",
     "too many steps", E_LIMIT},
    {"{% set s = 'a' * 1000000 %}{{ s.rfind('b' + 'a' * 500000) }}", "too many steps", E_LIMIT},
    {"{% set s = ' ' * 1000000 %}{% for i in range(9999) %}{{ s.strip() }}{% endfor %}",
     "too many steps", E_LIMIT},
    {"{% set s = 'a' * 1000000 %}{{ s.strip('b' * 999 + 'a') }}", "at most 256 characters",
     E_LIMIT},
    {"{% for i in range(99999) %}{{ 'x' * 10000 }}{% endfor %}", "too many steps", E_LIMIT},
    {"{{ 'a' | indent(10**9) }}", "indent by more than 1024", E_LIMIT},
    {"{{ 'a' | center(10**12) }}", "more than 1048576 characters", E_LIMIT},
    {"{{ 'a'.ljust(10**12) }}", "more than 1048576 characters wide", E_LIMIT},
    {"{{ [1] | tojson(indent=10**12) }}", "indents by at most 64", E_LIMIT},
    {"{{ 10**1000 }}", "a whole number past 64 bits", E_LIMIT},
    {"{{ (-9223372036854775807 - 1) // -1 }}", "a whole number past 64 bits", E_LIMIT},
    {"{{ 9223372036854775807 + 1 }}", "a whole number past 64 bits", E_LIMIT},
    {"{{ 1**(10**18) }}{{ (-1)**(10**18 + 1) }}", "1-1", 0},
    {"{{ 'abc'[-(10**18):10**18:10**18] }}{{ [1,2,3][::-9223372036854775807-1] }}", "a[3]", 0},
    {"{% set ns = namespace() %}{% set ns.a = ns %}{{ ns == ns }}{{ ns.a.a.a == ns }}", "TrueTrue",
     0},
};

// Templates run on the thread that serves every connection, so none may run long. (Many of these
// end by the bound of steps, not by the bound that they are about.)
static void test_soon_over(void **state) {
    const double most = 0.3 / (test_scale() < 1 ? 0.1 : 1); // seconds; sanitizers take ten times
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        struct timespec from, to;
        struct buf got;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
        int rc = jinja_run_text(hostile[i].text, &got);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
        double took = (double)(to.tv_sec - from.tv_sec) + (double)(to.tv_nsec - from.tv_nsec) / 1e9;
        if (rc != hostile[i].code && rc != E_LIMIT) fail_msg("%s: %d", hostile[i].text, rc);
        if (took > most) fail_msg("%s\n   takes %.2f s", hostile[i].text, took);
        buf_release(&got);
    }
}

static void test_hostile(void **state) {
    struct timespec from, to;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        // One that ends by the bound of steps does so after fewer, too.
        bool by_steps = strcmp(hostile[i].want, "too many steps") == 0;
        jinja_more_steps = by_steps ? test_scaled(10000000) : 10000000;
        jinja_check(&hostile[i], 1);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &to);
    jinja_more_steps = 0;
    // The longest takes a second where nothing checks it
    assert_true(to.tv_sec - from.tv_sec < 120);
}

// front, n times part, back
static void check_long(const char *front, const char *part, size_t n, const char *back, int code) {
    struct buf text, got;
    buf_init(&text, 1 << 24);
    buf_addz(&text, front);
    for (size_t i = 0; i < n; i++) buf_addz(&text, part);
    buf_addz(&text, back);
    int rc = jinja_run_text(buf_z(&text), &got);
    if (rc != code) fail_msg("%s%s...: %d, %s", front, part, rc, buf_z(&got));
    if (code) assert_non_null(strstr(buf_z(&got), "line 1"));
    buf_release(&text);
    buf_release(&got);
}

static void test_deep_and_long(void **state) {
    jinja_more_steps = 10000000;
    check_long("{{ ", "(", 5000, "", E_LIMIT);
    check_long("{{ ", "[", 5000, "", E_LIMIT);
    check_long("{{ ", "not ", 5000, "1 }}", E_LIMIT);
    check_long("{{ ", "-", 5000, "1 }}", E_LIMIT);
    check_long("{{ ", "1 if 0 else ", 5000, "2 }}", E_LIMIT);
    check_long("{{ 1", " + 1", 50000, " }}", E_LIMIT);
    check_long("{{ 1", " + 1", 300, " }}", 0);
    check_long("{{ 1", " ~ 1", 50000, " }}", 0);
    check_long("{{ 1", " | string", 50000, " }}", E_LIMIT);
    check_long("{{ d", ".a", 50000, " }}", E_LIMIT);
    check_long("{{ d", "()", 50000, " }}", E_LIMIT);
    check_long("", "{% if 1 %}", 5000, "", E_LIMIT);
    check_long("{% if 0 %}", "{% elif 0 %}", 50000, "{% endif %}", 0);
    check_long("", "{#", 50000, "", E_FORMAT);
    check_long("{{ '", "\\\\", 50000, "", E_FORMAT);
    check_long("{{ ", "a", 256, " }}", E_LIMIT);
    check_long("{{ d.", "a", 255, " is defined }}", 0);
    // Arguments are looked through for each field.
    check_long("{{ ('{}' * 90000).format(", "1,", 90000, ") }}", E_LIMIT);
    jinja_more_steps = 0;
}

static const struct jinja_sample refused[] = {
    {"{% macro f(a) %}{{ varargs }}{% endmacro %}", "'varargs' in a macro is not supported",
     E_UNSUPPORTED},
    {"{% macro f() %}{% for k in kwargs %}{% endfor %}{% endmacro %}",
     "'kwargs' in a macro is not supported", E_UNSUPPORTED},
    {"{{ a\u3000b }}", "'b' where '}}' is expected", E_FORMAT},
    {"{{ \u201ca\u201d }}", "a character that is part of no name", E_FORMAT},
    {"{% if x %}", "no 'endif' for the block of line 1", E_FORMAT},
    {"{% for x in y %}{% else %}", "no 'endfor' for the block of line 1", E_FORMAT},
    {"a\n{% endif %}", "line 2: unexpected 'endif'", E_FORMAT},
    {"{% if %}{% endif %}", "'%}' where an expression is expected", E_FORMAT},
    {"{{ }}", "'}}' where an expression is expected", E_FORMAT},
    {"{{ a b }}", "'b' where '}}' is expected", E_FORMAT},
    {"{{ a.5x }}", "'5x' is not a number", E_FORMAT},
    {"{{ (1, 2 }}", "unexpected '}'", E_FORMAT},
    {"{{ (1, 2", "a tag is not closed by '}}'", E_FORMAT},
    {"{{ 1) }}", "unexpected ')'", E_FORMAT},
    {"{{ $ }}", "unexpected '$'", E_FORMAT},
    {"{{ '\\xz1' }}", "a \\x or \\u is cut short", E_FORMAT},
    {"{{ '\\ud800' }}", "a \\u that is not a character", E_FORMAT},
    {"{{ 99999999999999999999 }}", "'99999999999999999999' is not a number", E_FORMAT},
    {"{% break %}", "'break' outside a loop", E_FORMAT},
    {"{% for x in l %}{% macro f() %}{% continue %}{% endmacro %}{% endfor %}",
     "'continue' outside a loop", E_FORMAT},
    {"{% macro f(a=1, b) %}{% endmacro %}",
     "a parameter without a default after one with a default", E_FORMAT},
    {"{% call x %}{% endcall %}", "a call block needs a call", E_FORMAT},
    {"{% raw %}", "raw without endraw", E_FORMAT},
    {"{% include 'x' %}", "no tag named 'include'", E_UNSUPPORTED},
    {"\n\n{% do x %}", "line 3: no tag named 'do'", E_UNSUPPORTED},
    {"{% for x in y recursive %}{% endfor %}", "'recursive' loops are not supported",
     E_UNSUPPORTED},
    {"{{ f(*x) }}", "arguments unpacked with * are not supported", E_UNSUPPORTED},
    {"{{ x | pprint }}", "line 1: no filter named 'pprint'", E_UNSUPPORTED},
    {"{{ x is escaped }}", "line 1: no test named 'escaped'", E_UNSUPPORTED},
    {"\n{{ '%.2f' % 3.1 }}", "line 2: only %s and %d are supported in a format", E_UNSUPPORTED},
    {"{{ '{:>5}'.format(1) }}", "format() knows {}, {0} and {name} only", E_UNSUPPORTED},
    {"{{ strftime_now('%Q') }}", "strftime_now has no %Q", E_UNSUPPORTED},
    {"{{ range }}", "a 'function' has no text", E_UNSUPPORTED},
    {"a\n{{ s | replace('x') }}", "line 2: replace() missing the argument 'new'", E_INVAL},
    {"{{ s | trim('a', 'b') }}", "trim() takes at most 1 arguments", E_INVAL},
    {"{{ s | trim(q=1) }}", "trim() got an unexpected keyword argument 'q'", E_INVAL},
    {"{{ s | trim('a', chars='b') }}", "trim() got multiple values for argument 'chars'", E_INVAL},
};

static void test_refused(void **state) {
    JINJA_CHECK(refused);
}

// Origins follow the bytes: what a template prints of a marked text is marked, and nothing else.
static void test_origins(void **state) {
    static const struct {
        const char *text, *want, *origins;
    } cases[] = {
        {"a{{ u }}b", "a xY b", "011110"},
        {"{{ u | trim ~ 'x' }}", "xYx", "110"},
        {"{{ u | upper }}{{ u | replace('x', '--') }}", " XY  --Y ", "111110011"},
        {"{{ 'xx' | replace('x', u) }}", " xY  xY ", "11111111"},
        {"{{ [u, 1] }}", "[' xY ', 1]", "00111100000"},
        {"{{ u[::-1] }}{{ u[1] }}{{ u | tojson }}", " Yx x\" xY \"", "11111011110"},
        {"{{ u * 2 }}{{ u.split() | join('-') }}", " xY  xY xY", "1111111111"},
        {"{{ 'é' ~ u.strip() | title }}", "éXy", "0011"},
        {"{{ u | length }}{{ 'x' in u }}{{ u == u }}", "4TrueTrue", "000000000"},
        {"{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(u) | trim('<') }}", " xY >", "11110"},
    };
    static const uint8_t origin[] = {1, 1, 1, 1};
    struct tm now = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        struct jinja_template *t;
        struct jinja_run r;
        struct jinja_string s;
        assert_int_equal(jinja_open(&t, cases[i].text, strlen(cases[i].text), &err), 0);
        assert_int_equal(jinja_begin(&r, 4, &now, &err), 0);
        assert_int_equal(jinja_set(&r, "u", jinja_str((struct jinja_string){" xY ", origin, 4})),
                         0);
        assert_int_equal(jinja_render(&r, t, &s), 0);
        if (!jinja_string_is(s, cases[i].want)) fail_msg("%zu: '%.*s'", i, (int)s.len, s.s);
        assert_int_equal(strlen(cases[i].origins), s.len);
        for (size_t k = 0; k < s.len; k++)
            if (jinja_string_origin(s, k) != cases[i].origins[k] - '0')
                fail_msg("%s: byte %zu", cases[i].text, k);
        jinja_end(&r);
        jinja_close(t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hostile),       cmocka_unit_test(test_soon_over),
        cmocka_unit_test(test_deep_and_long), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
