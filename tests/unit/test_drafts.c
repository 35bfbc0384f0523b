// Which tokens are drafted: behind the longest match, the latest of equals, from an expected text, and fewer
// after rejections. Random logs beside a search that looks at every place.
#include "engine/model/prompt.h"
#include "engine/run/drafts.h"
#include "tests/cmocka.h"
#include "tests/random_walk.h"
#include <string.h>

enum { CAP = 400 };
static int32_t ids[CAP + 64];

static struct drafts *made(int32_t most, int64_t n_log, const int32_t *expected, int32_t n) {
    struct drafts *d;
    struct err err = {0};
    assert_int_equal(drafts_new(&d, most, CAP, ids, n_log, expected, n, &err), 0);
    return d;
}

static void finds(const int32_t *log, int64_t n, int32_t most, const int32_t *want,
                  int32_t n_want) {
    memcpy(ids, log, (size_t)n * sizeof *ids);
    struct drafts *d = made(most, n, NULL, 0);
    assert_int_equal(drafts_find(d, ids, n, CAP - n), n_want);
    assert_memory_equal(ids + n, want, (size_t)n_want * sizeof *ids);
    drafts_free(d);
}
#define FINDS(most, log, ...)                                                                      \
    do {                                                                                           \
        static const int32_t l[] = log, w[] = {__VA_ARGS__};                                       \
        finds(l, sizeof l / sizeof *l, most, w, sizeof w / sizeof *w - 1);                         \
    } while (0)
#define LOG(...)                                                                                   \
    { __VA_ARGS__ }

static void test_matches(void **state) {
    // The last number only ends the list.
    FINDS(4, LOG(1, 2, 3, 4, 5, 6, 1, 2), 3, 4, 5, 6, 0);
    FINDS(2, LOG(1, 2, 3, 4, 5, 6, 1, 2), 3, 4, 0);
    FINDS(3, LOG(1, 2, 7, 9, 1, 2, 8, 9, 5, 1, 2), 8, 9, 5, 0);    // the latest
    FINDS(3, LOG(5, 1, 2, 7, 9, 1, 2, 8, 9, 5, 1, 2), 7, 9, 1, 0); // the longest
    FINDS(5, LOG(1, 2, 3, 1, 2, 3, 1, 2), 3, 1, 2, 3, 1, 0);       // text that repeats goes on
    FINDS(4, LOG(7, 7, 7), 7, 7, 7, 7, 0);
    FINDS(4, LOG(1, 2, 3, 4, 9, 2), 0); // one token is no match
    FINDS(4, LOG(1), 0);
    FINDS(4, LOG(1, 2, 3, PROMPT_ID_FIRST, 1, 2), 3, 0); // a virtual token is never drawn
}

static void test_expected(void **state) {
    static const int32_t log[] = {9, 8, 7, 10}, expected[] = {10, 11, 12, 13, 14};
    memcpy(ids, log, sizeof log);
    struct drafts *d = made(8, 3, expected, 5); // the answer's first token has been drawn
    assert_int_equal(drafts_find(d, ids, 4, 100), 4);
    assert_memory_equal(ids + 4, expected + 1, 4 * sizeof *ids);
    ids[4] = 99; // another one than expected; later the text is met again
    assert_int_equal(drafts_find(d, ids, 5, 100), 0);
    ids[5] = 12, ids[6] = 13;
    assert_int_equal(drafts_find(d, ids, 7, 100), 1);
    assert_int_equal(ids[7], 14);
    assert_int_equal(drafts_find(d, ids, 7, 0), 0); // no room
    drafts_free(d);
}

static void test_fewer_after_rejections(void **state) {
    for (int i = 0; i < 40; i++) ids[i] = i % 20;
    struct drafts *d = made(8, 22, NULL, 0);
    assert_int_equal(drafts_find(d, ids, 22, 100), 8);
    drafts_checked(d, 8, 1);
    assert_int_equal(drafts_find(d, ids, 22, 100), 1);
    drafts_checked(d, 1, 0);
    assert_int_equal(drafts_find(d, ids, 22, 100), 0);
    assert_int_equal(drafts_find(d, ids, 25, 100), 3); // a match of five says more than one of two
    drafts_checked(d, 3, 3);
    assert_int_equal(drafts_find(d, ids, 28, 100), 7);
    assert_int_equal(d->n_drafted, 12);
    assert_int_equal(d->n_accepted, 4);
    drafts_free(d);
}

// Where the place is far back in a chain of equal pairs, a shorter match may be taken.
static void test_random_logs(void **state) {
    for (seed = 1; seed < 300; seed++) {
        int32_t kinds = 2 + (int32_t)below(30);
        int64_t n = 1 + below(20);
        for (int64_t i = 0; i < CAP; i++) ids[i] = (int32_t)below((uint32_t)kinds);
        struct drafts *d = made(8, n, NULL, 0);
        while (n < 120) {
            int32_t kept[64], best = 1;
            memcpy(kept, ids + n, sizeof kept);
            for (int64_t end = 1; end < n; end++) {
                int32_t len = 0;
                while (len < end && len < 32 && ids[end - 1 - len] == ids[n - 1 - len]) len++;
                if (len > best) best = len;
            }
            int32_t found = drafts_find(d, ids, n, 8);
            assert_int_equal(found > 0, best > 1);
            int32_t at = -1; // the drafts are what followed a match of that length
            for (int64_t end = 1; end < n && found > 0; end++) {
                int32_t len = 0;
                while (len < end && len < 32 && ids[end - 1 - len] == ids[n - 1 - len]) len++;
                bool same = memcmp(ids + n, ids + end, sizeof *ids) == 0;
                if (len > 1 && same) at = (int32_t)end;
            }
            assert_int_equal(at >= 0, found > 0);
            memcpy(ids + n, kept, sizeof kept);
            n += 1 + below(4);
        }
        drafts_free(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_expected),
        cmocka_unit_test(test_fewer_after_rejections),
        cmocka_unit_test(test_random_logs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
