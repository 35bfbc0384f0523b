// Expressions of chat templates: operators, comparisons, parts of values, errors.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample expressions[] = {
    {"{{ 0 // -0.5 }} {{ -0.3 // 1 }} {{ 7.5 // -2 }} {{ -7.5 % 2 }} {{ 0.0 % -3 }} {{ 1e20 // 3.0 "
     "}} "
     "{{ 0.3 // 0.1 }} {{ 0.3 % 0.1 }} {{ nope is sameas(nope2) }}",
     "-0.0 -1.0 -4.0 0.5 -0.0 3.333333333333333e+19 2.0 0.09999999999999998 False", 0},
    {"{{ 0x1e5 }}{{ [[1, [2]]].0.1.0 }}{{ 'a\\N{x}' is defined }}",
     "a backslash before N or a character beyond ASCII is not supported", E_FORMAT},
    {"{{ 0x1e5 }} {{ 0xE }} {{ [[1, [2]]].0.1.0 }} {{ naïve is defined }}", "485 14 2 False", 0},
    {"{{ '\\é' }}", "a backslash before N or a character beyond ASCII is not supported", E_FORMAT},
    {"{{ 0.0 ** -1 }}", "0.0 cannot be raised to a negative power", E_INVAL},
    {"{{ (-8) ** 0.5 }}", "a power that is not a finite number", E_UNSUPPORTED},
    {"{{ 10.0 ** 400 }}", "a power that is not a finite number", E_UNSUPPORTED},
    {"{{ 1 + 2 * 3 ** 2 - 7 // 2 % 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** -1 }} {{ -2 "
     "** 2 }} {{ 1.5 // 0.4 }} {{ -1.5 % 0.4 }}",
     "18 -4 2 3.5 0.5 4 3.0 0.10000000000000009", 0},
    {"{{ 1 < 2 < 3 }} {{ 1 < 2 > 5 }} {{ 'a' < 'b' }} {{ [1,2] < [1,3] }} {{ 1 == 1.0 }} {{ true "
     "== 1 }} {{ none == false }}",
     "True False True True True True False", 0},
    {"{{ 0.1 }} {{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-5 }} {{ 0.0001 }} {{ 123456789.125 }} {{ "
     "big }} {{ 1e300 * 1e10 }} {{ -0.0 }} {{ -f }}",
     "0.1 1.0 1e+16 1000000000000000.0 1.5e-05 0.0001 123456789.125 1e+20 inf -0.0 -0.1", 0},
    {"{{ [1, 'a', none, true, 1.5, \"it's\", 'q\"', 'a\\nb\\\\'] }} {{ (1,) }} {{ (1,2) }} {{ "
     "{'a': 1, 2: [3]} }} {{ () }} {{ [] }}",
     "[1, 'a', None, True, 1.5, \"it's\", 'q\"', 'a\\nb\\\\'] (1,) (1, 2) {'a': 1, 2: [3]} () []",
     0},
    {"{{ s[0] }}{{ s[-1] }}{{ s[1:3] }}{{ s[::-1] }}{{ s[:-1] }}{{ s[::2] }}{{ s[100:] }}{{ s[5:2] "
     "}}{{ s[-3:] }}{{ s[3:0:-1] }}{{ s[:2:-2] }}",
     "HdeldlroW olleHHello WorlHloWrdrldlledrWo", 0},
    {"{{ l[0] }}{{ l[-1] }}{{ l[1:] }}{{ l[::-1] }}{{ l[5] is defined }}{{ l[5] }}{{ l.0 }}{{ "
     "d['b'][2].c }}{{ d.b.1 }}{{ d['k y'] }}",
     "32[1, 2][2, 1, 3]False3None21.5", 0},
    {"{{ 'a' ~ 1 ~ none ~ true ~ [1] }}{{ 1 ~ 2 }}{{ 'a' * 3 }}{{ [1] * 2 }}{{ 2 * 'ab' }}{{ 'a' * "
     "-1 }}|{{ [1] + [2] }}{{ (1,) + (2,) }}",
     "a1NoneTrue[1]12aaa[1, 1]abab|[1, 2](1, 2)", 0},
    // Sums that are printed part by part, beside the same sums as values.
    {"{{ 'a' + 'b' + 'c' }} {{ 'a' + ('b' + 'c') }} {{ 1 + 2 + 3 }} {{ [1] + [2] + [3] }} {{ ('a' "
     "+ "
     "'b')|length }} {{ '' + '' }}|",
     "abc abc 6 [1, 2, 3] 2 |", 0},
    {"{% macro m(x) %}<{{ x + x }}>{% endmacro %}{{ 'a' + m('b') + 'c' }}{% set t %}{{ 'd' + "
     "m('e') "
     "}}{% endset %}{{ t + t }}",
     "a<bb>cd<ee>d<ee>", 0},
    {"{{ 'a' + 'b' + 1 }}", "can only concatenate str (not \"int\") to str", E_INVAL},
    {"{{ 1 + 2 + 'b' }}", "unsupported operand type(s) for +: 'int' and 'str'", E_INVAL},
    {"{{ 'a' + '<b' + ('<c'|safe) }} {{ ('a'|safe) + 'b' + '<' }}", "a&lt;b<c ab&lt;", 0},
    {"{{ 'a' + 'b' + nope }}", "'nope' is undefined", E_INVAL},
    {"{% for x in [d, d, {'zz': 1}] %}{{ x.zz is defined }} {{ x.yy is defined }} {% endfor "
     "%}{{ d.zz + 'a' }}",
     "'dict object' has no attribute 'zz'", E_INVAL},
    {"{{ 'a' + 1 }}", "can only concatenate str (not \"int\") to str", E_INVAL},
    {"{{ 1 + 'a' }}", "unsupported operand type(s) for +: 'int' and 'str'", E_INVAL},
    {"{{ 'a' + none }}", "can only concatenate str (not \"NoneType\") to str", E_INVAL},
    {"{{ none + 'a' }}", "unsupported operand type(s) for +: 'NoneType' and 'str'", E_INVAL},
    {"{{ [1] + 'a' }}", "can only concatenate list (not \"str\") to list", E_INVAL},
    {"{{ 1 - 'a' }}", "unsupported operand type(s) for -: 'int' and 'str'", E_INVAL},
    {"{{ 'a' - 'b' }}", "unsupported operand type(s) for -: 'str' and 'str'", E_INVAL},
    {"{{ 1 / 0 }}", "division by zero", E_INVAL},
    {"{{ 1 // 0 }}", "integer division or modulo by zero", E_INVAL},
    {"{{ 1 % 0 }}", "integer modulo by zero", E_INVAL},
    {"{{ 1 < 'a' }}", "'<' not supported between instances of 'int' and 'str'", E_INVAL},
    {"{{ none < 1 }}", "'<' not supported between instances of 'NoneType' and 'int'", E_INVAL},
    {"{{ x + 1 }}", "'x' is undefined", E_INVAL},
    {"{{ x.y }}", "'x' is undefined", E_INVAL},
    {"{{ x['y'] }}", "'x' is undefined", E_INVAL},
    {"{{ x() }}", "'x' is undefined", E_INVAL},
    {"{{ d.zz.y }}", "'dict object' has no attribute 'zz'", E_INVAL},
    {"{{ n.x }}", "", 0},
    {"{{ n.x.y }}", "'None' has no attribute 'x'", E_INVAL},
    {"{{ 5() }}", "'int' object is not callable", E_INVAL},
    {"{{ s() }}", "'str' object is not callable", E_INVAL},
    {"{{ 'a' in 5 }}", "argument of type 'int' is not iterable", E_INVAL},
    {"{{ 5 in 'a' }}", "'in <string>' requires string as left operand, not int", E_INVAL},
    {"{{ 'a' in 'abc' }}{{ 'x' not in 'abc' }}{{ 1 in l }}{{ 'a' in d }}{{ not 1 in l }}{{ 'z' not "
     "in d }}{{ 1 in (1,2) }}",
     "TrueTrueTrueTrueFalseTrueTrue", 0},
    {"{{ 'y' if t else 'n' }}{{ 'y' if n }}{{ 'y' if n else 'm' if e else 'k' }}{{ ('a' if t) ~ "
     "'b' }}",
     "ykab", 0},
    {"{{ t and 'x' }}{{ e or 'y' }}{{ n and 1 }}{{ not t }}{{ not n and t }}{{ 1 and 0 or 2 }}",
     "xyNoneFalseTrue2", 0},
    {"{{ s is string }}{{ l is sequence }}{{ d is mapping }}{{ l is iterable }}{{ s is iterable "
     "}}{{ 5 is number }}{{ t is number }}{{ t is boolean }}{{ 5 is integer }}{{ f is float }}{{ n "
     "is none }}{{ n is not none }}{{ t is true }}{{ 1 is true }}{{ t is false }}{{ d is sequence "
     "}}{{ 5 is iterable }}{{ l is mapping }}{{ range is callable }}{{ x is iterable }}{{ n is "
     "iterable }}",
     "TrueTrueTrueTrueTrueTrueTrueTrueTrueTrueTrueFalseTrueFalseFalseTrueFalseFalseTrueTrueFalse",
     0},
    {"{{ 4 is even }}{{ 3 is odd }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}{{ 1 is eq 1 "
     "}}{{ 1 is equalto(2) }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 1 is ge 2 }}{{ 1 is in l }}{{ 'x' is "
     "in(s) }}{{ 'AB' is upper }}{{ 'ab' is lower }}{{ n is sameas none }}{{ 1 is sameas true }}{{ "
     "'upper' is filter }}{{ 'zz' is filter }}{{ 'odd' is test }}",
     "TrueTrueTrueFalseTrueFalseTrueTrueFalseTrueFalseTrueTrueTrueFalseTrueFalseTrue", 0},
    {"{{ 1 is defined and 2 is defined }}{{ s is string or false }}{{ 'a' if s is string else 'b' "
     "}}{{ not s is string }}{{ s is not string }}{{ (s is string) == true }}",
     "TrueTrueaFalseFalseTrue", 0},
    {"{{ raise_exception('boom ' ~ 5) }}", "boom 5", E_INVAL},
    {"{{ strftime_now('%d %b %Y %B %A %a %H:%M:%S %p %I %j %y %m %% %Y-%m-%d') }}{{ "
     "strftime_now('%-d/%-m') }}{{ strftime_now('%F %T') }}",
     "15 Jan 2026 January Thursday Thu 09:30:00 AM 09 015 26 01 % 2026-01-1515/12026-01-15 "
     "09:30:00",
     0},
    {"{{ \"a\" \"b\" 'c' }}{{ 'it\\'s' }}{{ \"\\u00e9\\x41\\101\\q\\\nz\" }}", "abcit'séAA\\qz", 0},
    {"{{ {'a': {'b': 1}}.a.b }}{{ {'a':{}} }}{{ [[1,[2]]][0][1][0] }}{{ (1, 2)[1] }}",
     "1{'a': {}}22", 0},
    {"{{ 0x1F }}{{ 0b11 }}{{ 0o17 }}{{ 1_000 }}{{ 1.5e3 }}{{ 2e0 }}", "3131510001500.02.0", 0},
    {"{{ s.__class__ }}", "", 0},
    {"{{ loop }}{{ loop is defined }}", "False", 0},
    {"{{ s is string and (l is not string) }}{{ (1 if false else 2) + 3 }}{{ 1 if 2 is even else 0 "
     "}}",
     "True51", 0},
    {"{{ 'abc'[1] }}{{ 'abc'[-4] is defined }}{{ d.b[-1].c is none }}{{ [1,2,3][1:][0] }}",
     "bFalseTrue2", 0},
    {"{{ none }}{{ None }}{{ True }}{{ false }}{{ [none, true] }}", "NoneNoneTrueFalse[None, True]",
     0},
};

static void test_expressions(void **state) {
    JINJA_CHECK(expressions);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_expressions)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
