// Types that resemble a list in Python (ranges, views of dicts, generators), groups, and strings
// marked as safe: equal where Python's are equal, refused where Jinja's output would differ.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample lazy[] = {
    // A generator is true whatever is in it, and has no length, no elements and no text.
    {"{{ 1 if [] | select else 2 }}{{ 1 if [] | select | list else 2 }}", "12", 0},
    {"{% if messages | selectattr('role', 'eq', 'nobody') %}yes{% endif %}", "yes", 0},
    {"{{ (l | map('string'))[0] is defined }}{{ (l | map('string') | list)[0] }}", "False3", 0},
    {"{{ l | map('string') | length }}", "object of type 'generator' has no len()", E_INVAL},
    {"{{ l | map('string') }}", "a 'generator' has no text", E_UNSUPPORTED},
    {"{{ l | reverse | tojson }}", "Object of type generator is not JSON serializable", E_INVAL},
    {"{{ l | map('string') | last }}", "'generator' object is not reversible", E_INVAL},
    {"{{ l | reverse is sequence }}{{ l | reverse is iterable }}{{ l | reverse == l }}",
     "FalseTrueFalse", 0},
    {"{% set g = l | select %}{% for x in g %}{{ x }}{% endfor %}{{ g | join }}",
     "a generator is gone through twice: |list makes it a list", E_UNSUPPORTED},
    {"{% set g = l | select | list %}{% for x in g %}{{ x }}{% endfor %}{{ g | join }}", "312312",
     0},
    {"{{ l | batch(2) | list }}{{ l | unique | list }}{{ d | items | first }}",
     "[[3, 1], [2]][3, 1, 2]('a', 1)", 0},
    {"{{ l | select + l }}", "unsupported operand type(s) for +: 'generator' and 'list'", E_INVAL},
    // A view of a dict has a length, a range elements too.
    {"{{ d.keys() | length }}{{ 1 if {}.items() else 2 }}{{ d.keys()[0] is defined }}", "42False",
     0},
    {"{{ d.keys() is sequence }}{{ 'a' in d.keys() }}{{ d.keys() | list }}",
     "FalseTrue['a', 'b', 'items', 'k y']", 0},
    {"{{ d.keys() }}", "a 'dict_view' has no text", E_UNSUPPORTED},
    {"{{ d.keys() == d.keys() }}", "views of dicts are not compared", E_UNSUPPORTED},
    {"{{ range(3) | length }}{{ range(3)[1] }}{{ range(3)[1:] | list }}{{ 1 if range(0) else 2 }}",
     "31[1, 2]2", 0},
    {"{{ range(3) == range(3) }}{{ range(3) == [0, 1, 2] }}{{ range(3) is sequence }}",
     "TrueFalseTrue", 0},
    {"{{ range(3) }}", "a 'range' has no text", E_UNSUPPORTED},
    {"{{ range(2) + [1] }}", "unsupported operand type(s) for +: 'range' and 'list'", E_INVAL},
    // Of what is false nothing is taken, whatever it is (Functionary's template does so with no tools).
    {"{% set t = none %}{{ t | selectattr('a', 'equalto', 1) | list | length }}{{ 0 | map('upper') "
     "| list }}"
     "{{ '' | reject | list }}{{ t | map(attribute='a') | list }}{{ t | rejectattr('a') | list }}",
     "0[][][][]", 0},
    {"{{ 1 | select | list }}", "'int' object is not iterable", E_INVAL},
    // Groups are tuples with names.
    {"{% for g in people | groupby('a.b') %}{{ g.grouper }}:{{ g.list | length }}:{{ g[0] }};"
     "{% endfor %}",
     "1:1:1;2:2:2;", 0},
    {"{{ people | groupby('n', 1) }}", "groupby with a default is not supported", E_UNSUPPORTED},
    {"{{ [[1], [2]] | sum(start=[]) }}", "[1, 2]", 0},
    {"{% for a, b in [[1, 2], [3, 4]] if a %}{{ loop.previtem }}{% endfor %}", "(1, 2)", 0},
};

static const struct jinja_sample safe[] = {
    {"{{ '<' | safe }}{{ '<' | e }}{{ '<' | e | e }}{{ '<' | safe | e }}{{ ('<' | e) ~ '<' }}",
     "<&lt;&lt;<&lt;<", 0},
    {"{{ '<' | safe | length }}{{ ('ab' | safe)[0] }}{{ 'a' | safe == 'a' }}", "1aTrue", 0},
    // As markupsafe.Markup: the other string of a sum is escaped, and the sum is safe.
    {"{{ ('<' | safe) + '<' + '&' }} {{ '<' + ('<' | e | trim) }} {{ '\"' + \"'\" + ('>' | safe) "
     "}}",
     "<&lt;&amp; &lt;&lt; &#34;&#39;>", 0},
    {"{{ ('<' | safe) + ('<' | safe) }} {{ 'a' + '{\"b\": 1}' | safe + '[' }}", "<< a{\"b\": 1}[",
     0},
    {"{% set x = '<' + '>' + ('<' | safe) %}{{ x }} {{ '<' + '>' + ('<' | safe) + '<' + '>' }}",
     "&lt;&gt;< &lt;&gt;<&lt;&gt;", 0},
    {"{{ ('<' | safe) + 1 }}", "can only concatenate str (not \"int\") to str", E_INVAL},
    {"{{ ('<' | safe) * 2 }}", "'*' with a string marked as safe is not supported", E_UNSUPPORTED},
    {"{{ ('<' | safe).upper() }}", "methods of a string marked as safe are not supported",
     E_UNSUPPORTED},
    {"{{ ['<' | safe] }}", "a string marked as safe inside a list", E_UNSUPPORTED},
};

static void test_lazy(void **state) {
    JINJA_CHECK(lazy);
}
static void test_safe(void **state) {
    JINJA_CHECK(safe);
}

int main(void) {
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_lazy),
                                              cmocka_unit_test(test_safe)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
