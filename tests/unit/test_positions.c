// Slopes and sinusoids against their published values.
#include "engine/model/positions.h"
#include "tests/cmocka.h"
#include <math.h>

static void near(double got, double expected) {
    if (!(fabs(got - expected) <= 3e-7 * fabs(expected) + 1e-7))
        fail_msg("%.9g, not %.9g", got, expected);
}

static void slopes_of_a_power_of_two(void **state) {
    float s[16];
    alibi_slopes(s, 8); // the paper's: 1/2, 1/4 ... 1/256
    for (int i = 0; i < 8; i++) assert_true(s[i] == exp2f((float)-(i + 1)));
    alibi_slopes(s, 16);
    for (int i = 0; i < 16; i++) near(s[i], exp2(-(i + 1) / 2.0));
    alibi_slopes(s, 1);
    near(s[0], exp2(-8));
}

// Heads past the power of two take the odd entries of the table for twice as many.
static void slopes_of_other_numbers(void **state) {
    static const int numbers[] = {3, 5, 6, 7, 12, 14, 25, 71, 112};
    for (int i = 0; i < 9; i++) {
        float s[112], twice[128];
        int n = numbers[i], power = 1;
        while (2 * power <= n) power *= 2;
        alibi_slopes(s, n);
        for (int k = 0; k < power; k++) near(s[k], exp2(-8.0 * (k + 1) / power));
        alibi_slopes(twice, 2 * power);
        for (int k = power; k < n; k++) assert_true(s[k] == twice[2 * (k - power)]);
    }
    float s[12];
    alibi_slopes(s, 12);
    near(s[8], exp2(-0.5));
    near(s[11], exp2(-3.5));
}

static void sinusoids(void **state) {
    enum { ROWS = 40, WIDTH = 9 };
    float t[ROWS * WIDTH];
    sinusoidal_table(t, ROWS, WIDTH);
    for (int p = 0; p < ROWS; p++) {
        for (int i = 0; i < 4; i++) {
            double angle = p * pow(10000, -i / 3.0);
            assert_true(fabs(t[p * WIDTH + i] - sin(angle)) < 1e-5);
            assert_true(fabs(t[p * WIDTH + 4 + i] - cos(angle)) < 1e-5);
        }
        assert_true(t[p * WIDTH + 8] == 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slopes_of_a_power_of_two),
        cmocka_unit_test(slopes_of_other_numbers),
        cmocka_unit_test(sinusoids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
