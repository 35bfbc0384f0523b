// Methods of strings, lists and dicts in chat templates.
#include "tests/unit/jinja_fixture.h"

static const struct jinja_sample methods[] = {
    {"{{ s.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b c '.split(none, "
     "1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ ''.split() }}{{ "
     "''.split(',') }}{{ 'abc'.rsplit('b') }}",
     "['Hello', 'World']['a', 'b', '', 'c']['a', 'b,c']['a', 'b c ']['a b', 'c'][' a  b', "
     "'c'][]['']['a', 'c']",
     0},
    {"{{ '  a '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xya'.lstrip('yx') }}|{{ "
     "'a\\n\\n'.rstrip('\\n') }}|{{ ' a '.lstrip() }}|",
     "a|a|a|a|a |", 0},
    {"{{ s.startswith('He') }}{{ s.endswith('ld') }}{{ s.startswith(('x','H')) }}{{ s.find('o') "
     "}}{{ s.rfind('o') }}{{ s.find('zz') }}{{ s.count('l') }}{{ s.count('') }}{{ s.index('W') }}",
     "TrueTrueTrue47-13126", 0},
    {"{{ s.replace('l', 'L') }}{{ s.replace('l', 'L', 1) }}{{ 'abc'.replace('', '-') }}{{ "
     "''.replace('', 'x') }}{{ 'aaa'.replace('aa', 'b') }}{{ 'abc'.replace('', '-', 2) }}",
     "HeLLo WorLdHeLlo World-a-b-c-xba-a-bc", 0},
    {"{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'a\\nb\\n'.splitlines(true) }}{{ ''.splitlines() }}{{ "
     "'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('x') }}{{ "
     "'abc'.rpartition('x') }}",
     "['a', 'b', 'c']['a\\n', 'b\\n'][]('a', '=', 'b=c')('a=b', '=', 'c')('abc', '', '')('', '', "
     "'abc')",
     0},
    {"{{ 'abc'.isalpha() }}{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ "
     "'AB'.isupper() }}{{ 'ab1'.islower() }}{{ ''.isalpha() }}",
     "TrueTrueTrueTrueTrueTrueFalse", 0},
    {"{{ ', '.join(['a','b']) }}{{ '-'.join('abc') }}{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3) }}|{{ "
     "'5'.zfill(3) }}{{ '-5'.zfill(4) }}{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}",
     "a, ba-b-ca  |  a|005-005bcab", 0},
    {"{{ ', '.join([1]) }}", "sequence item 0: expected str instance, int found", E_INVAL},
    {"{{ '{} {}'.format(1, 'a') }}{{ '{0}{1}{0}'.format('x', 'y') }}{{ '{a}'.format(a=3) }}{{ "
     "'{{}}'.format() }}",
     "1 axyx3{}", 0},
    {"{{ s.zz() }}", "'str object' has no attribute 'zz'", E_INVAL},
    {"{{ l.append(4) }}", "access to attribute 'append' of 'list' object is unsafe.", E_INVAL},
    {"{{ d.update({}) }}", "access to attribute 'update' of 'dict' object is unsafe.", E_INVAL},
    {"{{ ''.join(['a']) }}{{ 'x'.join([]) }}{{ s.split('o')[-1] }}{{ s.split(' ')[0].lower() }}{{ "
     "'a</think>b'.split('</think>')[-1].lstrip('\\n') }}",
     "arldhellob", 0},
};

static void test_methods(void **state) {
    JINJA_CHECK(methods);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_methods)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
