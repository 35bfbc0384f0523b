// Pages and the pool of regions: zeroed, apart from each other, and not more resident than used.
#include "kernels/cpu/pages.h"
#include "tests/cmocka.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool zeroed(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void test_pages(void **state) {
    static const size_t sizes[] = {0, 1, 4096, 5000, 1 << 20, (2 << 20) + 1};
    for (int i = 0; i < 6; i++) {
        char *p = cpu_pages_alloc(sizes[i]);
        assert_non_null(p);
        assert_true(zeroed(p, sizes[i]));
        assert_int_equal((uintptr_t)p % (sizes[i] >= 1 << 20 ? 2 << 20 : 4096), 0);
        memset(p, 1, sizes[i]);
        cpu_pages_free(p, sizes[i]);
    }
    assert_null(cpu_pages_alloc(SIZE_MAX));
    cpu_pages_free(NULL, 0);
}

// Stretches of odd sizes, some past a region's end and one larger than a region: none overlaps
// another, all are zeroed, and freeing in any order gives everything back.
static void test_pool(void **state) {
    enum { N = 40 };
    struct pages_pool pool = {0};
    char *p[N];
    size_t size[N];
    for (int i = 0; i < N; i++) {
        size[i] = i == 7 ? (size_t)300 << 20 : (size_t)i * 700001;
        p[i] = pages_pool_alloc(&pool, size[i]);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 4096, 0);
        size_t look = size[i] < 1 << 20 ? size[i] : 1 << 20;
        assert_true(zeroed(p[i], look));
        for (int j = 0; j < i; j++) assert_true(p[i] >= p[j] + size[j] || p[j] >= p[i] + size[i]);
        memset(p[i], i + 1, look);
    }
    for (int i = 0; i < N; i += 2) pages_pool_free(&pool, p[i]);
    for (int i = 1; i < N; i += 2) {
        assert_int_equal(p[i][0], i + 1);
        pages_pool_free(&pool, p[i]);
    }
    assert_null(pool.regions);
    assert_null(pages_pool_alloc(&pool, SIZE_MAX));
    assert_non_null(pages_pool_alloc(&pool, 1));
    pages_pool_free(&pool, NULL);
    pages_pool_release(&pool); // with something in it
    assert_null(pool.regions);
}

static size_t resident_bytes(void) {
    size_t pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%*s %zu", &pages), 1);
    fclose(f);
    return pages * 4096;
}

// A hundred stretches of 1.1 MiB: in whole huge pages each, they would take 200 MiB.
static void test_resident(void **state) {
    enum { N = 100, BYTES = 1100 << 10 };
    struct pages_pool pool = {0};
    size_t before = resident_bytes();
    for (int i = 0; i < N; i++) {
        char *p = pages_pool_alloc(&pool, BYTES);
        assert_non_null(p);
        memset(p, 1, BYTES);
    }
    size_t grown = resident_bytes() - before, most = (size_t)N * BYTES + (8u << 20);
#ifdef __SANITIZE_ADDRESS__
    most += (size_t)N * BYTES / 8; // AddressSanitizer keeps a byte for eight
#endif
    if (grown > most) fail_msg("%zu bytes are resident", grown);
    pages_pool_release(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages),
        cmocka_unit_test(test_pool),
        cmocka_unit_test(test_resident),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
