// White space, comments and raw text around the tags of chat templates.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample whitespace[] = {
    {"{%- if true -%}   a   {%- endif -%}   b", "ab", 0},
    {"  {% if true %}\n    x\n  {% endif %}\ny", "    x\ny", 0},
    {"a\n  {%- if true %}\n\n b\n  {% endif -%}\n\nc", "a\n b\nc", 0},
    {"a  {# comment #}  b\n  {# comment #}\nc {#- x -#} d", "a    b\ncd", 0},
    {"  {%+ if true %}x{% endif +%}\ny", "  x\ny", 0},
    {"{{ 'a' -}}\n   {{- 'b' }}\n {{ 'c' }}\nd", "ab\n c\nd", 0},
    {"{% raw %}{{ x }} {% if %}{% endraw %}\nz", "{{ x }} {% if %}z", 0},
    {"a\n   {%- raw -%}  {{ q }}  {%- endraw -%}  b", "a{{ q }}b", 0},
    {"trailing\n\n", "trailing\n", 0},
};

static void test_whitespace(void **state) {
    JINJA_CHECK(whitespace);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_whitespace)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
