// The build id of this very program, as its file has it.
#include "base/build_id.h"
#include "tests/cmocka.h"
#include <stdio.h>
#include <string.h>

static unsigned char program[64 << 20];

static size_t read_program(void) {
    FILE *f = fopen("/proc/self/exe", "rb");
    assert_non_null(f);
    size_t n = fread(program, 1, sizeof program, f);
    fclose(f);
    return n;
}

// A note of type 3 (NT_GNU_BUILD_ID) and name "GNU" is followed by the id's bytes.
static void is_that_of_the_file(void **state) {
    char id[BUILD_ID_DIGITS + 1], found[BUILD_ID_DIGITS + 1] = "";
    memset(id, 'x', sizeof id);
    build_id(id);
    const unsigned char *at = memmem(program, read_program(), "\3\0\0\0GNU", 8);
    for (int i = 0; at && i < BUILD_ID_DIGITS / 2; i++) sprintf(found + 2 * i, "%02x", at[8 + i]);
    assert_string_equal(id, found); // both empty where the linker writes none
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_that_of_the_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
