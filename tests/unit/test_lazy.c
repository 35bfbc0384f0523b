// Functions of a library that is loaded at their first call.
#include "base/err.h"
#include "base/lazy.h"
#include "tests/cmocka.h"
#include <pthread.h>
#include <string.h>

static struct lazy_library sqlite = {.soname = "libsqlite3.so.0"}, maths = {.soname = "libm.so.6"},
                           none = {.soname = "libparley-none.so.1"};
LAZY_FUNCTION(sqlite, sqlite3_mprintf);
LAZY_FUNCTION(sqlite, sqlite3_free);
LAZY_FUNCTION(maths, fma);
LAZY_FUNCTION(maths, ldexp);
char *sqlite3_mprintf(const char *fmt, ...);
void sqlite3_free(void *p);
double fma(double x, double y, double z);
double ldexp(double x, int exp);

// Six words in registers, eight doubles in registers, and more of both on the stack, in the first call and the next.
static void test_arguments(void **state) {
    assert_null(sqlite.handle);
    for (int i = 0; i < 2; i++) {
        void *before = lazy_sqlite3_mprintf.address;
        char *text = sqlite3_mprintf("%d %d %d %d %d %d %d %g %g %g %g %g %g %g %g %g", 1, 2, 3, 4,
                                     5, 6, 7, 0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5);
        assert_string_equal(text, "1 2 3 4 5 6 7 0.5 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5");
        sqlite3_free(text);
        assert_int_equal(lazy_sqlite3_mprintf.address == before, i == 1); // found once
    }
    assert_non_null(sqlite.handle);
}

static void test_results(void **state) {
    volatile double two = 2, three = 3, four = 4;
    for (int i = 0; i < 2; i++) {
        assert_true(fma(two, three, four) == 10);
        assert_true(ldexp(three, (int)four) == 48);
    }
}

static void *call(void *sum) {
    char *text = sqlite3_mprintf("%d", 41);
    *(int *)sum = strcmp(text, "41");
    sqlite3_free(text);
    return NULL;
}

static void test_threads(void **state) {
    pthread_t threads[4];
    int sums[4] = {1, 1, 1, 1};
    lazy_sqlite3_mprintf.address = lazy_first_sqlite3_mprintf; // as before the first call
    sqlite.handle = NULL;
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, call, &sums[i]);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(sums[i], 0);
}

static void test_missing(void **state) {
    struct err err = {0};
    assert_int_equal(lazy_open(&none, &err), E_NOTFOUND);
    assert_non_null(strstr(err.text, "libparley-none.so.1 cannot be loaded"));
    assert_int_equal(lazy_open(&maths, &err), 0);
    assert_int_equal(lazy_open(&maths, &err), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
