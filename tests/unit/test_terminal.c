// Text with terminal control sequences is made harmless before it is printed.
#include "tests/cmocka.h"
#include "ws/cli/terminal.h"
#include <stdlib.h>
#include <string.h>

static void expect(const char *text, size_t len, const char *want) {
    char *got = NULL;
    size_t got_len;
    FILE *f = open_memstream(&got, &got_len);
    terminal_write(f, text, len);
    fclose(f);
    assert_string_equal(got, want);
    free(got);
}
#define EXPECT(text, want) expect(text, sizeof(text) - 1, want)

static void plain_text_stays(void **state) {
    EXPECT("two\nlines\tand \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xa0", // the last: U+00A0
           "two\nlines\tand \xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xc2\xa0");
    EXPECT("", "");
}

static void controls_become_pictures(void **state) {
    EXPECT("\x1b]0;title\x07", "\xe2\x90\x9b]0;title\xe2\x90\x87");
    EXPECT("a\rb\x08\x7f", "a\xe2\x90\x8d"
                           "b\xe2\x90\x88\xe2\x90\xa1");
    EXPECT("a\0b", "a\xe2\x90\x80"
                   "b");
}

static void what_terminals_obey_or_hide_is_replaced(void **state) {
    EXPECT("\xc2\x9b"
           "31m",
           "\xef\xbf\xbd"
           "31m"); // CSI as one C1 character
    EXPECT("\x9b"
           "31m",
           "\xef\xbf\xbd"
           "31m"); // and as a byte
    EXPECT("\xe2\x80\xae"
           "x\xe2\x81\xa9",
           "\xef\xbf\xbd"
           "x\xef\xbf\xbd"); // directions
    EXPECT("\xff\xe2\x82", "\xef\xbf\xbd\xef\xbf\xbd");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain_text_stays),
                                       cmocka_unit_test(controls_become_pictures),
                                       cmocka_unit_test(what_terminals_obey_or_hide_is_replaced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
