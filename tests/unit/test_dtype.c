// Number formats: names, sizes, and the conversions against definitions written with ldexp and
// rint.
#include "base/dtype.h"
#include "base/err.h"
#include "base/philox.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdbool.h>
#include <string.h>

static uint32_t bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

static float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void names_and_sizes(void **state) {
    static const struct {
        enum dtype t;
        const char *name;
        size_t size;
    } rows[] = {{DTYPE_F32, "f32", 4}, {DTYPE_F16, "f16", 2},   {DTYPE_BF16, "bf16", 2},
                {DTYPE_I8, "i8", 1},   {DTYPE_I32, "i32", 4},   {DTYPE_I64, "i64", 8},
                {DTYPE_U8, "u8", 1},   {DTYPE_BOOL, "bool", 1}, {DTYPE_F8_E4M3, "f8_e4m3", 1}};
    assert_int_equal(sizeof rows / sizeof *rows, DTYPE_COUNT);
    for (int i = 0; i < DTYPE_COUNT; i++) {
        enum dtype parsed;
        assert_string_equal(dtype_name(rows[i].t), rows[i].name);
        assert_int_equal(dtype_size(rows[i].t), rows[i].size);
        assert_int_equal(dtype_parse(rows[i].name, &parsed), 0);
        assert_int_equal(parsed, rows[i].t);
    }
    enum dtype untouched = DTYPE_I8;
    assert_int_equal(dtype_parse("F32", &untouched), E_INVAL);
    assert_int_equal(dtype_parse("", &untouched), E_INVAL);
    assert_int_equal(untouched, DTYPE_I8);
}

// binary16 by its definition.
static float half_reference(uint16_t h) {
    int exponent = (h >> 10) & 31, fraction = h & 0x3ff;
    double v = exponent == 31  ? (fraction ? NAN : INFINITY)
               : exponent == 0 ? ldexp(fraction, -24)
                               : ldexp(1024 + fraction, exponent - 25);
    return (float)(h & 0x8000 ? -v : v);
}

static void all_halves_to_float(void **state) {
    for (uint32_t h = 0; h < 65536; h++) {
        float got = f16_to_f32((uint16_t)h), want = half_reference((uint16_t)h);
        if (isnan(want)) {
            // Quiet, with sign and payload, as the vector instructions have it.
            assert_int_equal(bits(got), (h & 0x8000) << 16 | 0x7fc00000 | (h & 0x3ff) << 13);
        } else {
            assert_int_equal(bits(got), bits(want));
        }
    }
}

// The nearest half by definition: scale so that a unit is the spacing there, round to even, scale
// back.
static uint16_t nearest_reference(float f) {
    uint16_t sign = signbit(f) ? 0x8000 : 0;
    double v = fabs((double)f);
    if (v >= 65520) return sign | 0x7c00;
    int exponent = v < ldexp(1, -14) ? -14 : ilogb(v);
    double units = rint(ldexp(v, 10 - exponent)); // 0 .. 2048
    // As consecutive integers, halves are ordered: 1024 for each binade.
    return sign | (uint16_t)((exponent + 14) * 1024 + (int)units);
}

static void check_to_half(float f) {
    uint16_t got = f16_from_f32(f), want = nearest_reference(f);
    if (got != want) fail_msg("%a (%08x): %04x, not %04x", f, bits(f), got, want);
#ifdef __FLT16_MAX__
    _Float16 compiler = (_Float16)f;
    uint16_t h;
    memcpy(&h, &compiler, 2);
    if (got != h) fail_msg("%a (%08x): %04x, the compiler %04x", f, bits(f), got, h);
#endif
}

static void halves_survive_the_round_trip(void **state) {
    for (uint32_t h = 0; h < 65536; h++) {
        bool nan = (h & 0x7fff) > 0x7c00;
        assert_int_equal(f16_from_f32(f16_to_f32((uint16_t)h)), nan ? h | 0x200 : h);
    }
}

// Around every half, every midpoint and every border between binades, where rounding can go wrong.
static void floats_beside_halves_and_midpoints(void **state) {
    for (uint32_t h = 0; h < 0x7c00; h++) {
        float low = f16_to_f32((uint16_t)h);
        float high = h == 0x7bff ? 65536.0f : f16_to_f32((uint16_t)(h + 1));
        float middle = (low + high) / 2; // exact: a float has 13 more bits
        const float at[] = {low, middle};
        for (int i = 0; i < 2; i++) {
            for (int step = -2; step <= 2; step++) {
                uint32_t u = bits(at[i]) + (uint32_t)step;
                if (u > 0x7f800000u) continue; // 0 - 1
                check_to_half(from_bits(u));
                check_to_half(from_bits(u | 0x80000000u));
            }
        }
    }
}

static void random_floats_to_half(void **state) {
    uint32_t counter[4] = {0}, out[4];
    for (counter[0] = 0; counter[0] < 500000; counter[0]++) {
        philox4x32(1, counter, out);
        for (int i = 0; i < 4; i++)
            if (!isnan(from_bits(out[i]))) check_to_half(from_bits(out[i]));
    }
    check_to_half(INFINITY);
    check_to_half(-INFINITY);
    assert_int_equal(f16_from_f32(from_bits(0x7fc00000)), 0x7e00);
    // Signalling, payload out of reach
    assert_int_equal(f16_from_f32(from_bits(0xff800001)), 0xfe00);
}

static void bf16_rounds_to_nearest_even(void **state) {
    for (uint32_t h = 0; h < 65536; h++) {
        float low = bf16_to_f32((uint16_t)h);
        if (isnan(low)) {
            assert_true(isnan(bf16_to_f32(bf16_from_f32(low))));
            continue;
        }
        assert_int_equal(bf16_from_f32(low), h);
        if ((h & 0x7fff) == 0x7f80) continue;
        uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(bf16_from_f32(from_bits(middle - 1)), h);
        assert_int_equal(bf16_from_f32(from_bits(middle)), h + (h & 1));
        assert_int_equal(bf16_from_f32(from_bits(middle + 1)), h + 1);
    }
    assert_true(isnan(bf16_to_f32(bf16_from_f32(from_bits(0x7f800001))))); // not infinity
}

// e4m3 by its definition.
static float e4m3_reference(uint8_t b) {
    int exponent = (b >> 3) & 15, fraction = b & 7;
    double v = (b & 0x7f) == 0x7f ? NAN
               : exponent == 0    ? ldexp(fraction, -9)
                                  : ldexp(8 + fraction, exponent - 10);
    return (float)(b & 0x80 ? -v : v);
}

static void all_e4m3_to_float(void **state) {
    for (int b = 0; b < 256; b++) {
        float got = e4m3_to_f32((uint8_t)b), want = e4m3_reference((uint8_t)b);
        if (isnan(want))
            assert_int_equal(bits(got), (uint32_t)(b & 0x80) << 24 | 0x7fc00000);
        else
            assert_int_equal(bits(got), bits(want));
        assert_int_equal(e4m3_from_f32(got), b);
    }
    assert_true(e4m3_to_f32(0x7e) == E4M3_LARGEST);
}

// The nearest of all codes; of two as near, the even one; above the largest, the largest.
static uint8_t nearest_e4m3(float f) {
    int best = 0;
    double v = fabs((double)f);
    for (int b = 1; b < 0x7f; b++) {
        double off = fabs(e4m3_reference((uint8_t)b) - v);
        double least = fabs(e4m3_reference((uint8_t)best) - v);
        if (off < least || (off == least && b % 2 == 0)) best = b;
    }
    return (uint8_t)(best | (signbit(f) ? 0x80 : 0));
}

static void check_to_e4m3(float f) {
    uint8_t got = e4m3_from_f32(f), want = nearest_e4m3(f);
    if (got != want) fail_msg("%a (%08x): %02x, not %02x", f, bits(f), got, want);
}

// Around every code, every midpoint and every border between binades; past the largest.
static void floats_to_e4m3(void **state) {
    uint32_t counter[4] = {0}, out[4];
    for (int b = 0; b < 0x7e; b++) {
        float low = e4m3_reference((uint8_t)b), high = e4m3_reference((uint8_t)(b + 1));
        const float at[] = {low, (low + high) / 2};
        for (int i = 0; i < 2; i++)
            for (int step = -2; step <= 2; step++) {
                uint32_t u = bits(at[i]) + (uint32_t)step;
                if (u > 0x7f800000u) continue; // 0 - 1
                check_to_e4m3(from_bits(u));
                check_to_e4m3(from_bits(u | 0x80000000u));
            }
    }
    for (counter[0] = 0; counter[0] < 20000; counter[0]++) {
        philox4x32(1, counter, out);
        for (int i = 0; i < 4; i++) {
            check_to_e4m3(from_bits((out[i] & 0x87ffffffu) | 0x38000000u)); // about 2^-15 to 2
            check_to_e4m3(from_bits((out[i] & 0x83ffffffu) | 0x40000000u)); // 2 to 512
        }
    }
    static const float beyond[] = {447.9f, 448, 449, 463.9f, 464, 465, 512, 1e10f, 3.4e38f};
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) check_to_e4m3(beyond[i]);
    check_to_e4m3(1e-45f);
    assert_int_equal(e4m3_from_f32(INFINITY), 0x7e);
    assert_int_equal(e4m3_from_f32(-INFINITY), 0xfe);
    assert_int_equal(e4m3_from_f32(from_bits(0x7fc00000)), 0x7f);
    assert_int_equal(e4m3_from_f32(from_bits(0xff800001)), 0xff);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(all_halves_to_float),
        cmocka_unit_test(halves_survive_the_round_trip),
        cmocka_unit_test(floats_beside_halves_and_midpoints),
        cmocka_unit_test(random_floats_to_half),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
        cmocka_unit_test(all_e4m3_to_float),
        cmocka_unit_test(floats_to_e4m3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
