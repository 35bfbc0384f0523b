// Statements of chat templates: conditions, loops, assignments, scopes, macros, blocks.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample statements[] = {
    {"{% for x in l %}{% continue %}{% else %}a{% endfor %}{% for x in l %}{% if x == 1 %}{% break "
     "%}"
     "{% endif %}{% else %}b{% endfor %}{% for x in [1] %}{{ x }}{% break %}{% else %}c{% endfor "
     "%}",
     "a1c", 0},
    {"{% for x in l %}{{ loop.index }}/{{ loop.index0 }}/{{ loop.revindex }}/{{ loop.revindex0 "
     "}}/{{ loop.first }}/{{ loop.last }}/{{ loop.length }}/{{ loop.previtem }}/{{ loop.nextitem "
     "}};{% endfor %}",
     "1/0/3/2/True/False/3//1;2/1/2/1/False/False/3/3/2;3/2/1/0/False/True/3/1/;", 0},
    {"{% for x in [] %}a{% else %}none{% endfor %}{% for x in nothing %}a{% else %}undef{% endfor "
     "%}",
     "noneundef", 0},
    {"{% for x in l if x > 1 %}{{ x }}{{ loop.length }}{{ loop.last }} {% endfor %}",
     "32False 22True ", 0},
    {"{% for x in range(10) %}{% if x == 3 %}{% continue %}{% endif %}{% if x == 6 %}{% break %}{% "
     "endif %}{{ x }}{% endfor %}",
     "01245", 0},
    {"{% set x = 1 %}{% for i in l %}{{ x }}{% set x = i %}{{ x }}{% endfor %}{{ x }}", "1311121",
     0},
    {"{% set ns = namespace(x=1, y='q') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ "
     "ns.x }}{{ ns.y }}{{ ns.z is defined }}",
     "7qFalse", 0},
    {"{% set ns = namespace() %}{% set ns.q = 5 %}{{ ns.q }}{{ ns.nope }}", "5", 0},
    {"{% macro m(a, b=2, c='x' ~ b) %}[{{ a }}|{{ b }}|{{ c }}]{% endmacro %}{{ m(1) }}{{ m(1, "
     "c=3) }}{{ m(b=1, a=2) }}{{ m() }}{{ m(1,2,3) }}",
     "[1|2|x2][1|2|3][2|1|x1][|2|x2][1|2|3]", 0},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}",
     "macro 'm' takes not more than 1 argument(s)", E_INVAL},
    {"{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=2) }}", "macro 'm' takes no keyword argument 'b'",
     E_INVAL},
    {"{% macro f(n) %}{{ n }}{% if n > 0 %},{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}",
     "5,4,3,2,1,0", 0},
    {"{% macro w(x) %}<{{ caller(x, 2) }}>{% endmacro %}{% call(a, b) w(7) %}{{ a }}-{{ b }}-{{ s "
     "}}{% endcall %}",
     "<7-2-Hello World>", 0},
    {"{% macro w() %}<{{ caller() }}>{% endmacro %}{% call w() %} in {% endcall %}!", "< in >!", 0},
    {"{% set x %}a {{ s }} b{% endset %}[{{ x }}]{% set y | upper %}abc{% endset %}{{ y }}{% set z "
     "| replace('a','b') | title %}aa aa{% endset %}{{ z }}",
     "[a Hello World b]ABCBb Bb", 0},
    {"{% filter upper %}abc {{ s }}{% endfilter %}{% filter trim | lower %}  ABC  {% endfilter %}",
     "ABC HELLO WORLDabc", 0},
    {"{% with a = 1, b = s %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "1Hello WorldFalse",
     0},
    {"{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}{% for k in d %}{{ k }},{% endfor "
     "%}{% for k, v in d | items %}{{ k }}{% endfor %}",
     "a=1;b=[1, 2, {'c': None}];items=x;k y=1.5;a,b,items,k y,abitemsk y", 0},
    {"{% for a, b in [[1,2],[3,4]] %}{{ a }}{{ b }}{% endfor %}{% set a, b = 1, 2 %}{{ a }}{{ b "
     "}}{% set c, d = [5,6] %}{{ c }}{{ d }}",
     "12341256", 0},
    {"{% for a, b in [[1,2,3]] %}{% endfor %}", "too many values to unpack (expected 2)", E_INVAL},
    {"{% for a, b in [[1]] %}{% endfor %}", "not enough values to unpack (expected 2, got 1)",
     E_INVAL},
    {"{% for a, b in [1] %}{% endfor %}", "cannot unpack non-iterable int object", E_INVAL},
    {"{% for a in 5 %}{% endfor %}", "'int' object is not iterable", E_INVAL},
    {"{% for a in none %}{% endfor %}", "'NoneType' object is not iterable", E_INVAL},
    {"{{ people | groupby('a.b') | list }}{% for g, items in people | groupby('a.b') %}{{ g }}:{{ "
     "items | map(attribute='n') | join }}{% endfor %}",
     "[(1, [{'n': 'y', 'a': {'b': 1}}]), (2, [{'n': 'x', 'a': {'b': 2}}, {'n': 'z', 'a': {'b': "
     "2}}])]1:y2:xz",
     0},
    {"{% if false %}a{% elif n %}b{% elif t %}c{% else %}d{% endif %}{% if false %}{% else %}e{% "
     "endif %}",
     "ce", 0},
    {"{% if true %}{% set q = 5 %}{% endif %}{{ q }}{% if false %}{% set z = 5 %}{% endif %}{{ z "
     "}}",
     "5", 0},
    {"{% generation %}a{{ s }}{% set gg = 1 %}{% endgeneration %}{{ gg is defined }}",
     "aHello WorldFalse", 0},
    {"{% for m in messages[::-1] %}{{ m.role[0] }}{% endfor %}{% for m in messages | reverse %}{{ "
     "m['role'][0] }}{% endfor %}",
     "uauuau", 0},
    {"{% for c in 'añ你' %}[{{ c }}]{% endfor %}{% for x in (1,2) %}{{ x }}{% endfor %}{% for x in "
     "1, 2 %}{{ x }}{% endfor %}",
     "[a][ñ][你]1212", 0},
    {"{% for i in [1,2,3,4] %}{{ loop.cycle('a', 'b') }}{% endfor %}", "abab", 0},
    {"{% for i in [1,2] %}{% for j in [3,4] %}{{ i }}{{ j }}{{ loop.index }}{% endfor %}{{ "
     "loop.index }}{% endfor %}",
     "13114212312422", 0},
    {"{% set loop_messages = messages %}{% for m in loop_messages %}{% if not loop.first and "
     "loop.previtem.role == m.role %}X{% endif %}{% if loop.nextitem is defined %}N{% endif %}{% "
     "endfor %}",
     "NN", 0},
    {"{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}B{{ s }}{% endmacro %}{{ a() }}{% set v "
     "= 1 %}{% macro c() %}{{ v }}{% set v = 2 %}{{ v }}{% endmacro %}{{ c() }}{{ v }}",
     "BHello World121", 0},
    {"{% for x in [1] %}{% macro q() %}{{ x }}{% endmacro %}{{ q() }}{% endfor %}", "1", 0},
    {"{% if x.y is defined %}a{% endif %}", "'x' is undefined", E_INVAL},
    {"{% if 'a' not in d and not (l | length > 5) %}ok{% endif %}{% if messages[0].role == 'user' "
     "and messages[0]['content'] != '' %}ok{% endif %}",
     "ok", 0},
    {"{% set x = {'a': 1} %}{% set y = dict(x, b=2) %}{{ y }}{{ x }}{{ y == {'a':1,'b':2} }}",
     "{'a': 1, 'b': 2}{'a': 1}True", 0},
    {"{% set ns = 5 %}{% set ns.a = 1 %}", "cannot assign attribute on non-namespace object",
     E_INVAL},
    {"{% for k in d | sort %}{{ k }}{% endfor %}{{ 'b' in ['a','b'] and 'q' }}", "abitemsk yq", 0},
};

static void test_statements(void **state) {
    JINJA_CHECK(statements);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_statements)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
