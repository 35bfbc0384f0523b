// Metrics: the page's exact text, sums from many threads, life without a registry.
#include "base/buf.h"
#include "base/err.h"
#include "base/metrics.h"
#include "tests/cmocka.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static void assert_page(struct metrics *m, const char *want) {
    struct buf page;
    buf_init(&page, 1 << 20);
    assert_int_equal(metrics_write(m, &page), 0);
    assert_string_equal(buf_z(&page), want);
    buf_release(&page);
}

static double ask(void *ctx) {
    return *(double *)ctx;
}

static void an_empty_registry_is_an_empty_page(void **state) {
    struct metrics *m = metrics_new();
    assert_page(m, "");
    metrics_free(m);
}

static void counters_and_gauges(void **state) {
    struct metrics *m = metrics_new();
    struct metric *idle =
        metrics_counter(m, "parley_evictions_total", "Sessions evicted.", "reason=\"idle\"");
    struct metric *memory =
        metrics_counter(m, "parley_evictions_total", "Sessions evicted.", "reason=\"memory\"");
    struct metric *active = metrics_gauge(m, "parley_sessions", "A back\\slash and a\nline.", NULL);
    metric_add(idle, 1);
    metric_add(idle, 2);
    metric_set(active, 7);
    metric_add(active, -2.5);
    assert_page(m, "# HELP parley_evictions_total Sessions evicted.\n"
                   "# TYPE parley_evictions_total counter\n"
                   "parley_evictions_total{reason=\"idle\"} 3\n"
                   "parley_evictions_total{reason=\"memory\"} 0\n"
                   "# HELP parley_sessions A back\\\\slash and a\\nline.\n"
                   "# TYPE parley_sessions gauge\n"
                   "parley_sessions 4.5\n");
    assert_true(metric_value(idle) == 3 && metric_value(memory) == 0 &&
                metric_value(active) == 4.5);
    metrics_free(m);
}

static void rows_can_leave(void **state) {
    struct metrics *m = metrics_new();
    double value = 4;
    struct metric *rows[] = {metrics_counter(m, "a_total", "A.", "i=\"1\""),
                             metrics_gauge_fn(m, "b", "B.", NULL, ask, &value), NULL,
                             metrics_gauge_of(m, "a_total", "A.", "i", "2")};
    metrics_counter(m, "a_total", "A.", "i=\"3\"");
    metrics_remove(m, rows, 4);
    assert_page(m, "# HELP a_total A.\n# TYPE a_total counter\na_total{i=\"3\"} 0\n");
    metrics_counter(m, "a_total", "A.", "i=\"1\""); // again, and behind the last one
    metrics_gauge(m, "b", "B.", NULL);
    assert_page(m, "# HELP a_total A.\n# TYPE a_total counter\na_total{i=\"3\"} 0\n"
                   "a_total{i=\"1\"} 0\n# HELP b B.\n# TYPE b gauge\nb 0\n");
    metrics_free(m);
}

// The rows of a family copy their label, and stand together.
static void rows_of_a_family(void **state) {
    static const char *const names[] = {"idle", "pressure"};
    struct metrics *m = metrics_new();
    char value[16];
    for (int i = 0; i < 2; i++) {
        snprintf(value, sizeof value, "%s", names[i]);
        metric_add(metrics_counter_of(m, "parley_parked_total", "Parked.", "reason", value), 1 + i);
        metric_set(metrics_gauge_of(m, "parley_held", "Held.", "by", value), 7);
    }
    assert_page(m, "# HELP parley_parked_total Parked.\n# TYPE parley_parked_total counter\n"
                   "parley_parked_total{reason=\"idle\"} 1\n"
                   "parley_parked_total{reason=\"pressure\"} 2\n"
                   "# HELP parley_held Held.\n# TYPE parley_held gauge\n"
                   "parley_held{by=\"idle\"} 7\nparley_held{by=\"pressure\"} 7\n");
    metrics_free(m);
    assert_null(metrics_counter_of(NULL, "parley_parked_total", "", "reason", "idle"));
}

static void histograms_are_cumulative(void **state) {
    static const double bounds[] = {0.1, 1, 10};
    struct metrics *m = metrics_new();
    struct metric *h =
        metrics_histogram(m, "parley_step_seconds", "Step.", "kind=\"decode\"", bounds, 3);
    static const double seen[] = {0.05, 0.1, 0.5, 1,
                                  2,    100, NAN}; // a bound belongs to its own bucket
    for (int i = 0; i < 6; i++) metric_observe(h, seen[i]);
    assert_page(m, "# HELP parley_step_seconds Step.\n"
                   "# TYPE parley_step_seconds histogram\n"
                   "parley_step_seconds_bucket{kind=\"decode\",le=\"0.1\"} 2\n"
                   "parley_step_seconds_bucket{kind=\"decode\",le=\"1\"} 4\n"
                   "parley_step_seconds_bucket{kind=\"decode\",le=\"10\"} 5\n"
                   "parley_step_seconds_bucket{kind=\"decode\",le=\"+Inf\"} 6\n"
                   "parley_step_seconds_sum{kind=\"decode\"} 103.65\n"
                   "parley_step_seconds_count{kind=\"decode\"} 6\n");
    assert_true(metric_value(h) == 6);
    metric_observe(h, seen[6]);
    assert_true(metric_value(h) == 7);
    metrics_free(m);
}

static void values_asked_for_when_the_page_is_made(void **state) {
    struct metrics *m = metrics_new();
    double value = 1, bytes = 5e9;
    struct metric *g = metrics_gauge_fn(m, "parley_queue_depth", "Depth.", NULL, ask, &value);
    metrics_gauge_fn(m, "parley_read_bytes_total", "Bytes.", NULL, ask, &bytes);
    value = 42;
    assert_true(metric_value(g) == 42);
    assert_page(m, "# HELP parley_queue_depth Depth.\n"
                   "# TYPE parley_queue_depth gauge\n"
                   "parley_queue_depth 42\n"
                   "# HELP parley_read_bytes_total Bytes.\n"
                   "# TYPE parley_read_bytes_total counter\n"
                   "parley_read_bytes_total 5000000000\n");
    metrics_free(m);
}

static void numbers_keep_their_digits(void **state) {
    struct metrics *m = metrics_new();
    struct metric *g = metrics_gauge(m, "parley_x", "X.", NULL);
    static const struct {
        double v;
        const char *text;
    } rows[] = {{0.1, "0.1"},
                {1e15 + 1, "1000000000000001"},
                {123456789012345, "123456789012345"},
                {NAN, "NaN"},
                {-INFINITY, "-Inf"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char want[200] = "# HELP parley_x X.\n# TYPE parley_x gauge\nparley_x ";
        strcat(strcat(want, rows[i].text), "\n");
        metric_set(g, rows[i].v);
        assert_page(m, want);
    }
    metrics_free(m);
}

static void no_registry_no_effect(void **state) {
    static const double bounds[] = {1};
    struct metric *none[] = {metrics_counter(NULL, "a", "", NULL),
                             metrics_gauge(NULL, "b", "", NULL),
                             metrics_histogram(NULL, "c", "", NULL, bounds, 1),
                             metrics_gauge_fn(NULL, "d", "", NULL, ask, NULL)};
    for (int i = 0; i < 4; i++) {
        assert_null(none[i]);
        metric_add(none[i], 1);
        metric_set(none[i], 1);
        metric_observe(none[i], 1);
        assert_true(metric_value(none[i]) == 0);
    }
    metrics_free(NULL);
}

static void a_full_page_is_an_error(void **state) {
    struct metrics *m = metrics_new();
    struct buf page;
    metrics_gauge(m, "parley_x", "X.", NULL);
    buf_init(&page, 20);
    assert_int_equal(metrics_write(m, &page), E_LIMIT);
    buf_release(&page);
    metrics_free(m);
}

static struct metric *shared[3];

static void *update(void *arg) {
    for (int i = 0; i < 20000; i++) {
        metric_add(shared[0], 1);
        metric_add(shared[1], i % 2 ? -0.5 : 0.5);
        metric_observe(shared[2], i % 4);
    }
    return NULL;
}

static void threads_lose_nothing(void **state) {
    static const double bounds[] = {0.5, 1.5, 2.5};
    struct metrics *m = metrics_new();
    pthread_t threads[4];
    struct buf page;
    shared[0] = metrics_counter(m, "parley_a_total", "A.", NULL);
    shared[1] = metrics_gauge(m, "parley_b", "B.", NULL);
    shared[2] = metrics_histogram(m, "parley_c", "C.", NULL, bounds, 3);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, update, NULL);
    buf_init(&page, 1 << 20);
    for (int i = 0; i < 50; i++) { // pages made meanwhile agree with themselves
        buf_reset(&page);
        assert_int_equal(metrics_write(m, &page), 0);
        const char *all = strstr(buf_z(&page), "le=\"+Inf\"} ") + 11;
        const char *count = strstr(buf_z(&page), "parley_c_count ") + 15;
        assert_memory_equal(all, count, strcspn(count, "\n") + 1);
    }
    buf_release(&page);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    assert_true(metric_value(shared[0]) == 80000);
    assert_true(metric_value(shared[1]) == 0);
    assert_true(metric_value(shared[2]) == 80000);
    metrics_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_registry_is_an_empty_page),
        cmocka_unit_test(counters_and_gauges),
        cmocka_unit_test(rows_of_a_family),
        cmocka_unit_test(rows_can_leave),
        cmocka_unit_test(histograms_are_cumulative),
        cmocka_unit_test(values_asked_for_when_the_page_is_made),
        cmocka_unit_test(numbers_keep_their_digits),
        cmocka_unit_test(no_registry_no_effect),
        cmocka_unit_test(a_full_page_is_an_error),
        cmocka_unit_test(threads_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
