// SipHash-2-4-128 against vectors of its authors' reference code: key 00 .. 0f, input 00, 01, 02
// ...
#include "base/siphash.h"
#include "tests/cmocka.h"
#include <string.h>

static void test_reference_vectors(void **state) {
    static const struct {
        size_t len;
        unsigned char hash[16];
    } vectors[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
          0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
          0x45}},
    };
    unsigned char key[16], input[64];
    for (int i = 0; i < 16; i++) key[i] = (unsigned char)i;
    for (int i = 0; i < 64; i++) input[i] = (unsigned char)i;
    uint64_t k[2];
    memcpy(k, key, 16);
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct hash128 h = siphash128(k, input, vectors[i].len);
        unsigned char got[16];
        memcpy(got, &h.lo, 8);
        memcpy(got + 8, &h.hi, 8);
        assert_memory_equal(got, vectors[i].hash, 16);
    }
}

// Every length up to some words gives another result, and so does changing any bit of input or key.
static void test_every_bit_counts(void **state) {
    struct hash128 seen[1024];
    int n = 0;
    unsigned char input[40] = {0};
    uint64_t key[2] = {1, 2};
    for (size_t len = 0; len <= sizeof input; len++) seen[n++] = siphash128(key, input, len);
    for (int bit = 0; bit < 40 * 8; bit++) {
        input[bit / 8] = (unsigned char)(1 << bit % 8);
        seen[n++] = siphash128(key, input, sizeof input);
        input[bit / 8] = 0;
    }
    for (int bit = 0; bit < 128; bit++) {
        key[bit / 64] ^= UINT64_C(1) << bit % 64;
        seen[n++] = siphash128(key, input, sizeof input);
        key[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            assert_false(seen[i].lo == seen[j].lo && seen[i].hi == seen[j].hi);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference_vectors),
        cmocka_unit_test(test_every_bit_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
