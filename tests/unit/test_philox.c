// Philox: the known-answer vectors of Random123 (kat_vectors, philox4x32 10), and the draw.
#include "base/philox.h"
#include "tests/cmocka.h"

static void known_answers(void **state) {
    static const struct {
        uint64_t key;
        uint32_t counter[4], want[4];
    } rows[] = {
        {0, {0, 0, 0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {~0ull, {~0u, ~0u, ~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {0x299f31d0a4093822, // the words a4093822 299f31d0, low one first
         {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        philox4x32(rows[i].key, rows[i].counter, out);
        for (int k = 0; k < 4; k++) assert_int_equal(out[k], rows[i].want[k]);
    }
}

static void draw_is_the_first_word_in_24_bits(void **state) {
    uint64_t seed = 0x0123456789abcdef, position = 0x500000007;
    uint32_t counter[4] = {7, 5, 9, 0}, out[4];
    philox4x32(seed, counter, out);
    assert_true(philox_uniform(seed, position, 9) == (float)((out[0] >> 8) / 16777216.0));
    assert_true(philox_uniform(seed, position, 8) != philox_uniform(seed, position, 9));
    assert_true(philox_uniform(seed, position + 1, 9) != philox_uniform(seed, position, 9));
    assert_true(philox_uniform(seed + 1, position, 9) != philox_uniform(seed, position, 9));
}

static void draws_fill_the_unit_interval(void **state) {
    int tenths[10] = {0};
    double sum = 0;
    for (uint64_t p = 0; p < 100000; p++) {
        float u = philox_uniform(42, p, 0);
        assert_true(u >= 0 && u < 1);
        sum += u;
        tenths[(int)(u * 10)]++;
    }
    // Six standard deviations either side: a fixed seed gives the same draws for ever.
    assert_true(sum / 100000 > 0.4945 && sum / 100000 < 0.5055);
    for (int i = 0; i < 10; i++) assert_in_range(tenths[i], 9430, 10570);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_answers),
        cmocka_unit_test(draw_is_the_first_word_in_24_bits),
        cmocka_unit_test(draws_fill_the_unit_interval),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
