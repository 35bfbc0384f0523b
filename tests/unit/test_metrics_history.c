// The last five minutes of the plotted figures: which rows are kept, how often, and for how long.
#include "base/metrics.h"
#include "tests/cmocka.h"
#include "ws/metrics_history.h"
#include <stdio.h>
#include <string.h>

#define SECOND INT64_C(1000000)

static struct buf written(const struct metrics_history *h, int64_t now_us) {
    struct buf out;
    buf_init(&out, 1 << 20);
    assert_int_equal(metrics_history_write(h, now_us, &out), 0);
    return out;
}

static void samples_are_five_seconds_apart_and_have_the_plotted_rows(void **state) {
    struct metrics *m = metrics_new();
    struct metric *tokens = metrics_counter(m, "parley_engine_generated_tokens_total", "x", NULL);
    metrics_counter(m, "parley_engine_snapshots", "Not plotted.", NULL);
    metrics_gauge(m, "parley_sessions_resident", "x", "state=\"idle\"");
    struct metrics_history h;
    metrics_history_init(&h);
    metrics_history_note(&h, m, 10 * SECOND);
    metric_add(tokens, 7);
    metrics_history_note(&h, m, 14 * SECOND); // too soon
    metrics_history_note(&h, m, 15 * SECOND);
    struct buf out = written(&h, 16 * SECOND);
    assert_string_equal(buf_z(&out), "# age_s 6.000\nparley_engine_generated_tokens_total 0\n"
                                     "parley_sessions_resident{state=\"idle\"} 0\n"
                                     "# age_s 1.000\nparley_engine_generated_tokens_total 7\n"
                                     "parley_sessions_resident{state=\"idle\"} 0\n");
    buf_release(&out);
    metrics_history_release(&h);
    metrics_free(m);
}

static void five_minutes_are_kept(void **state) {
    struct metrics *m = metrics_new();
    struct metric *tokens = metrics_counter(m, "parley_engine_generated_tokens_total", "x", NULL);
    struct metrics_history h;
    metrics_history_init(&h);
    for (int i = 0; i < 200; i++) {
        metrics_history_note(&h, m, i * 5 * SECOND);
        metric_add(tokens, 1);
    }
    struct buf out = written(&h, 199 * 5 * SECOND);
    const char *at = buf_z(&out);
    for (int i = 139; i < 200; i++) {
        char want[100];
        snprintf(want, sizeof want, "# age_s %d.000\nparley_engine_generated_tokens_total %d\n",
                 (199 - i) * 5, i);
        assert_memory_equal(at, want, strlen(want));
        at += strlen(want);
    }
    assert_string_equal(at, "");
    buf_release(&out);
    metrics_history_release(&h);
    metrics_free(m);
}

static void a_sample_that_is_too_long_is_left_out(void **state) {
    struct metrics *m = metrics_new();
    static char labels[200][600];
    struct metrics_history h;
    metrics_history_init(&h);
    metrics_history_note(&h, m, 0);
    for (int i = 0; i < 200; i++) {
        snprintf(labels[i], sizeof labels[i], "engine=\"%0500d\"", i);
        metrics_gauge(m, "parley_engine_requests_running", "x", labels[i]);
    }
    metrics_history_note(&h, m, 5 * SECOND);
    struct buf out = written(&h, 5 * SECOND);
    assert_string_equal(buf_z(&out), "# age_s 5.000\n");
    buf_release(&out);
    metrics_history_release(&h);
    metrics_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_five_seconds_apart_and_have_the_plotted_rows),
        cmocka_unit_test(five_minutes_are_kept),
        cmocka_unit_test(a_sample_that_is_too_long_is_left_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
