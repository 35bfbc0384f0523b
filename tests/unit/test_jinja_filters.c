// Filters of chat templates.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample filters[] = {
    {"{{ 'ﬁŉΐ' | upper }} {{ 'ﬄ'.capitalize() }} {{ 'ŉ'.title() }} {{ 'ΟΔΟΣ Σ ΑΣ. ΑΣ.Α \u0301Σ' | "
     "lower }} {{ 'İX' | lower }}",
     "FI\u02bcN\u0399\u0308\u0301 Ffl ʼN οδος σ ας. ασ.α \u0301σ i\u0307x", 0},
    {"{{ '²③' .isdigit() }}{{ '½'.isdigit() }}{{ '½ a_b é ²' | wordcount }}", "TrueFalse4", 0},
    {"{{ 'a\\nb\\r' | indent(blank=true) }}|{{ '\\r' | indent }}|", "a\n    b||", 0},
    {"{{ d | attr('a') is defined }}{{ (d | attr('get'))('a') }}{{ -0.4 | round(0, 'ceil') }}{{ l "
     "| "
     "groupby(none) | map(attribute=0) | join }}{% for x in l %}{{ loop is iterable }}{% endfor %}",
     "False10.0123TrueTrueTrue", 0},
    {"{{ raise_exception('') }}", "line 1: the template raises an exception and does not say why",
     E_INVAL},
    {"{{ true | abs }}{{ true | round }}{{ 'ß' | capitalize }}{{ 'ß' | title }}{{ 'ßa b'.title() "
     "}}",
     "11SsSSSsa B", 0},
    {"{{ '1_000' | int }}{{ '_1' | int(7) }}{{ '1__0' | int(7) }}{{ '1_0.5' | float }}{{ 'inf' | "
     "int(3) }}{{ 'nan(1)' | float(2) }}",
     "10007710.532", 0},
    {"{{ '99999999999999999999' | int }}", "a whole number past 64 bits", E_LIMIT},
    {"{{ '1e30' | int }}", "a whole number past 64 bits", E_LIMIT},
    {"{{ nothing | int }}", "'nothing' is undefined", E_INVAL},
    {"{{ nothing | float(1) }}", "'nothing' is undefined", E_INVAL},
    {"{{ 0.5 is odd }}{{ 3.0 is odd }}{{ 4.5 is even }}{{ 4.5 is divisibleby(3) }}",
     "FalseTrueFalseFalse", 0},
    {"{{ l | truncate(5) }}", "a string is expected, not 'list'", E_INVAL},
    {"{{ 5 | indent }}", "a string is expected, not 'int'", E_INVAL},
    {"{{ '%s' | format(a=1) }}", "format takes arguments by position only", E_UNSUPPORTED},
    {"{{ {(1, 2): 3} | tojson }}", "keys must be str, int, float, bool or None, not tuple",
     E_INVAL},
    {"{{ [1] | tojson(indent=-1) }}", "[\n1\n]", 0},
    {"{{ messages[2].content[1:7] }}{{ messages[2].content | length }}{{ messages[2].content | "
     "upper }}{{ messages[2].content[::-1] }}",
     "aïve 你12NAÏVE 你好 SS 👍👍 ß 好你 evïan", 0},
    {"{{ d.items() | list }}{{ d['items'] }}{{ d.keys() | list }}{{ d.values() | list }}{{ "
     "d.get('a') }}{{ d.get('zz') }}{{ d.get('zz', 5) }}",
     "[('a', 1), ('b', [1, 2, {'c': None}]), ('items', 'x'), ('k y', 1.5)]x['a', 'b', 'items', 'k "
     "y'][1, [1, 2, {'c': None}], 'x', 1.5]1None5",
     0},
    {"{{ s.upper() }}{{ s.lower() }}{{ 'hELLO wORLD-x y'.title() }}{{ 'hELLO'.capitalize() }}{{ "
     "\"they're bill's\".title() }}{{ 'a-b (c d' | title }}{{ \"they're\" | title }}{{ "
     "'éa'.upper() }}",
     "HELLO WORLDhello worldHello World-X YHelloThey'Re Bill'SA-B (C DThey'reÉA", 0},
    {"{{ '%s is %d%%' % ('a', 5) }}{{ '%s' % 'x' }}{{ '%s-%s' | format('a', 1) }}", "a is 5%xa-1",
     0},
    {"{{ d.zz }}{{ d['zz'] }}{{ x }}{{ x is defined }}{{ x is undefined }}{{ d.zz is defined }}{{ "
     "not x }}{{ x == y }}{{ x == none }}{{ x | length }}{{ 'a' in x }}{{ x | default('q') }}{{ e "
     "| default('q') }}{{ e | default('q', true) }}{{ n | d('z') }}{{ n | default('z', "
     "boolean=true) }}",
     "FalseTrueFalseTrueTrueFalse0FalseqqNonez", 0},
    {"{{ l | sort }}{{ words | sort }}{{ words | sort(case_sensitive=true) }}{{ l | "
     "sort(reverse=true) }}{{ people | sort(attribute='a.b') | map(attribute='n') | list }}{{ "
     "words | unique | list }}",
     "[1, 2, 3]['A', 'a', 'b', 'c']['A', 'a', 'b', 'c'][3, 2, 1]['y', 'x', 'z']['b', 'A', 'c']", 0},
    {"{{ l | first }}{{ l | last }}{{ [] | first }}{{ l | min }}{{ l | max }}{{ l | sum }}{{ "
     "people | sum(attribute='a.b') }}{{ [] | sum }}{{ words | max }}{{ words | min }}{{ people | "
     "max(attribute='a.b') }}",
     "3213650cA{'n': 'x', 'a': {'b': 2}}", 0},
    {"{{ l | join }}{{ l | join(', ') }}{{ people | join('-', attribute='n') }}{{ 'abc' | "
     "join('.') }}{{ d | join(',') }}{{ [1,'a',none] | join }}",
     "3123, 1, 2x-y-za.b.ca,b,items,k y1aNone", 0},
    {"{{ l | reverse | list }}{{ s | reverse }}{{ s | list }}{{ d | list }}{{ l | length }}{{ d | "
     "count }}{{ l | batch(2) | list }}{{ l | batch(2, 0) | list }}",
     "[2, 1, 3]dlroW olleH['H', 'e', 'l', 'l', 'o', ' ', 'W', 'o', 'r', 'l', 'd']['a', 'b', "
     "'items', 'k y']34[[3, 1], [2]][[3, 1], [2, 0]]",
     0},
    {"{{ words | map('upper') | list }}{{ people | map(attribute='a.b') | list }}{{ people | "
     "map(attribute='q', default='dd') | list }}{{ words | map('replace', 'a', 'z') | join }}",
     "['B', 'A', 'C', 'A'][2, 1, 2]['dd', 'dd', 'dd']bAcz", 0},
    {"{{ l | select('gt', 1) | list }}{{ l | reject('odd') | list }}{{ [0,1,'',n,'a'] | select | "
     "list }}{{ people | selectattr('n', 'equalto', 'x') | list }}{{ people | rejectattr('a.b', "
     "'eq', 2) | map(attribute='n') | list }}{{ people | selectattr('n') | list | length }}{{ "
     "people | selectattr('q', 'defined') | list }}{{ l | select('in', [1,2]) | list }}",
     "[3, 2][2][1, 'a'][{'n': 'x', 'a': {'b': 2}}]['y']3[][1, 2]", 0},
    {"{{ d | dictsort }}{{ {'b':1,'A':2} | dictsort }}{{ {'b':1,'A':2} | dictsort(by='value') }}{{ "
     "{'b':1,'A':2} | dictsort(true) }}{{ {'b':1,'A':2} | dictsort(reverse=true) }}",
     "[('a', 1), ('b', [1, 2, {'c': None}]), ('items', 'x'), ('k y', 1.5)][('A', 2), ('b', "
     "1)][('b', 1), ('A', 2)][('A', 2), ('b', 1)][('b', 1), ('A', 2)]",
     0},
    {"{{ d | tojson }}{{ s | tojson }}{{ 'q\"\\\\\\n\\t\\x01é👍</' | tojson }}{{ 'é👍\\x7f' | "
     "tojson(ensure_ascii=true) }}{{ [1.5,1.0,none,true] | tojson }}{{ {'b':1,'a':[]} | "
     "tojson(sort_keys=true) }}{{ {'b':[1,{}],'a':[]} | tojson(indent=2) }}{{ [1,2] | "
     "tojson(separators=(',', ':')) }}{{ {1:2, none:3, true:4} | tojson }}",
     "{\"a\": 1, \"b\": [1, 2, {\"c\": null}], \"items\": \"x\", \"k y\": 1.5}\"Hello "
     "World\"\"q\\\"\\\\\\n\\t\\u0001é👍</\"\"\\u00e9\\ud83d\\udc4d\\u007f\"[1.5, 1.0, null, "
     "true]{\"a\": [], \"b\": 1}{\n  \"b\": [\n    1,\n    {}\n  ],\n  \"a\": []\n}[1,2]{\"1\": 4, "
     "\"null\": 3}",
     0},
    {"{{ x | tojson }}", "Object of type Undefined is not JSON serializable", E_INVAL},
    {"{{ '  a ' | trim }}|{{ 'xax' | trim('x') }}|{{ s | replace('o', '0') }}{{ s | replace('l', "
     "'L', 1) }}{{ 5 | string + 'a' }}{{ 'aBc dE' | capitalize }}{{ s | lower }}{{ s | wordcount "
     "}}",
     "a|a|Hell0 W0rldHeLlo World5aAbc dehello world2", 0},
    {"{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb\\n' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(1, "
     "blank=true) }}|{{ 'a\\nb' | indent('> ') }}|{{ '' | indent }}|{{ 'a\\nb' | "
     "indent(first=true) }}",
     "a\n    b\n\n    c|  a\n  b\n|a\n \n b|a\n> b||    a\n    b", 0},
    {"{{ 'foo bar baz qux' | truncate(9) }}|{{ 'foo bar baz qux' | truncate(9, true) }}|{{ 'foo "
     "bar baz qux' | truncate(11) }}|{{ 'foo bar baz qux' | truncate(11, false, '...', 0) }}|{{ "
     "'ab' | center(7) }}|{{ 'abc' | center(8) }}|",
     "foo...|foo ba...|foo bar baz qux|foo bar...|   ab  |  abc   |", 0},
    {"{{ '5' | int }}{{ '5.7' | int }}{{ 'x' | int }}{{ 'x' | int(9) }}{{ 3.9 | int }}{{ -3.9 | "
     "int }}{{ '0x1A' | int(0, 16) }}{{ '1_000' | int }}{{ ' 7 ' | int }}{{ '1.5' | float }}{{ 'x' "
     "| float }}{{ 2 | float }}{{ true | int }}{{ none | int }}",
     "55093-326100071.50.02.010", 0},
    {"{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 2.1 | round(0, 'ceil') }}{{ 2.19 "
     "| round(1, 'floor') }}{{ 5 | round }}{{ -5 | abs }}{{ -1.5 | abs }}{{ 42 | round(1) }}",
     "2.04.02.673.02.1551.542", 0},
    {"{{ '<a href=\"x\">&\\'' | e }}{{ '<b>' | safe }}{{ '<' | escape }}",
     "&lt;a href=&#34;x&#34;&gt;&amp;&#39;<b>&lt;", 0},
    {"{{ range(5) | list }}{{ range(1, 10, 3) | list }}{{ range(5, 0, -2) | list }}{{ range(0) | "
     "list }}{{ dict(a=1, b=2) }}{{ dict({'a':1}, b=2) }}",
     "[0, 1, 2, 3, 4][1, 4, 7][5, 3, 1][]{'a': 1, 'b': 2}{'a': 1, 'b': 2}", 0},
    {"{{ range(1000000) | length }}",
     "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).", E_LIMIT},
    {"{{ 'a' | upper | lower ~ 'B' | lower }}{{ -1 | abs }}{{ 'x' ~ -1 | abs }}{{ 1 + -2 }}{{ 2 * "
     "-3 }}{{ +5 }}",
     "ab1x1-1-65", 0},
    {"{{ messages | map(attribute='role') | join(',') }}{{ messages[-1]['role'] }}{{ messages[1:] "
     "| length }}{{ messages | selectattr('role','equalto','user') | list | length }}{{ (messages "
     "| last).role }}",
     "user,assistant,useruser22user", 0},
    {"{{ 10 ** 18 }}{{ 7 // -2 }}{{ 7 % -3 }}{{ 5.5 % 2 }}{{ true + 1 }}{{ 3 * 1.5 }}{{ 1e3 | int "
     "}}",
     "1000000000000000000-4-21.524.51000", 0},
    {"{{ [1,2,3] | map('string') | join(',') }}{{ ['a','b'] | map('tojson') | join }}{{ "
     "[[1,2],[3]] | map('length') | list }}{{ [[1,2],[3]] | map('first') | list }}{{ [[3,4]] | "
     "map(attribute=0) | list }}",
     "1,2,3\"a\"\"b\"[2, 1][1, 3][3]", 0},
    {"{{ 'x' if messages | selectattr('role', 'eq', 'system') | list else 'y' }}{{ 'a' 'b' ~ 'c' "
     "}}",
     "yabc", 0},
    {"{{ l | attr('x') is defined }}{{ (l | tojson) }}{{ d | attr('zz') is defined }}",
     "False[3, 1, 2]False", 0},
};

static void test_filters(void **state) {
    JINJA_CHECK(filters);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_filters)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
