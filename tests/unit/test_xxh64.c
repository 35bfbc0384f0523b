// XXH64 against the specification's vectors, and against itself: every flipped bit changes it.
#include "base/xxh64.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

// The sanity buffer of the reference implementation's self test.
static void sanity(unsigned char *out, size_t n) {
    uint64_t g = UINT32_C(2654435761);
    for (size_t i = 0; i < n; i++) {
        out[i] = (unsigned char)(g >> 56);
        g *= UINT64_C(11400714785074694797);
    }
}

static void test_vectors(void **state) {
    unsigned char b[222];
    sanity(b, sizeof b);
    const uint64_t prime32 = UINT32_C(2654435761);
    static const struct {
        size_t n;
        uint64_t plain, seeded;
    } cases[] = {
        {0, UINT64_C(0xEF46DB3751D8E999), UINT64_C(0xAC75FDA2929B17EF)},
        {1, UINT64_C(0xE934A84ADB052768), UINT64_C(0x5014607643A9B4C3)},
        {4, UINT64_C(0x9136A0DCA57457EE), UINT64_C(0xCAAB286BD8E9FDB5)},
        {14, UINT64_C(0x8282DCC4994E35C8), UINT64_C(0xC3BD6BF63DEB6DF0)},
        {222, UINT64_C(0xB641AE8CB691C174), UINT64_C(0x20CB8AB7AE10C14A)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(xxh64(b, cases[i].n, 0), cases[i].plain);
        assert_int_equal(xxh64(b, cases[i].n, prime32), cases[i].seeded);
    }
    assert_int_equal(xxh64("abc", 3, 0), UINT64_C(0x44BC2CF5AD770999));
}

static void test_every_bit_counts(void **state) {
    unsigned char b[1000];
    sanity(b, 222);
    memset(b + 222, 7, sizeof b - 222);
    uint64_t whole = xxh64(b, sizeof b, 0);
    for (size_t bit = 0; bit < sizeof b * 8; bit++) {
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
        assert_int_not_equal(xxh64(b, sizeof b, 0), whole);
        b[bit / 8] ^= (unsigned char)(1 << bit % 8);
    }
    for (size_t n = 0; n < sizeof b; n++) assert_int_not_equal(xxh64(b, n, 0), whole);
    // Wherever it lies.
    unsigned char *moved = malloc(sizeof b + 8);
    assert_non_null(moved);
    for (int at = 0; at < 8; at++) {
        memcpy(moved + at, b, sizeof b);
        assert_int_equal(xxh64(moved + at, sizeof b, 0), whole);
    }
    free(moved);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
