// Random names: form, and that no two are alike.
#include "base/random_id.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

#define N 10000

static const char hex[] = "0123456789abcdef";

static int compare(const void *a, const void *b) {
    return strcmp(a, b);
}

static void names_are_hexadecimal_and_differ(void **state) {
    static char ids[N][RANDOM_ID_LEN + 1];
    uint32_t digits[RANDOM_ID_LEN] = {0}; // for each place a bit mask of the digits seen there
    for (int i = 0; i < N; i++) {
        random_id(ids[i]);
        assert_int_equal(strlen(ids[i]), RANDOM_ID_LEN);
        assert_int_equal(strspn(ids[i], hex), RANDOM_ID_LEN);
        for (int k = 0; k < RANDOM_ID_LEN; k++) digits[k] |= 1u << (strchr(hex, ids[i][k]) - hex);
    }
    for (int k = 0; k < RANDOM_ID_LEN; k++) assert_int_equal(digits[k], 0xffff);
    qsort(ids, N, sizeof ids[0], compare);
    for (int i = 1; i < N; i++) assert_string_not_equal(ids[i - 1], ids[i]);
}

static void seeds_use_every_bit(void **state) {
    uint64_t ones = 0, zeros = 0;
    for (int i = 0; i < 200; i++) {
        uint64_t v = random_u64();
        ones |= v;
        zeros |= ~v;
    }
    assert_true(ones == UINT64_MAX && zeros == UINT64_MAX);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_hexadecimal_and_differ),
        cmocka_unit_test(seeds_use_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
