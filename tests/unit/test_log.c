// Log: the line's form, levels, quoting, one write() a line from many threads.
#include "base/log.h"
#include "tests/cmocka.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int file, real_stderr;

// Stderr is a file during a test, so that what was logged can be read.
static int setup(void **state) {
    char path[] = "/tmp/test_log.XXXXXX";
    file = mkstemp(path);
    unlink(path);
    fcntl(file, F_SETFL, O_APPEND);
    real_stderr = dup(STDERR_FILENO);
    dup2(file, STDERR_FILENO);
    log_set_level(LOG_INFO);
    return 0;
}

static int teardown(void **state) {
    dup2(real_stderr, STDERR_FILENO);
    close(real_stderr);
    close(file);
    return 0;
}

static char *logged(void) {
    static char text[1 << 20];
    ssize_t n = pread(file, text, sizeof text - 1, 0);
    text[n < 0 ? 0 : n] = '\0';
    assert_int_equal(ftruncate(file, 0), 0);
    return text;
}

static void a_line_is_logfmt(void **state) {
    log_info("session.evicted", "session=%s idle_ms=%d", "ab12", 30);
    char *line = logged();
    int y, mo, d, h, mi, s, ms, end = 0;
    assert_int_equal(
        sscanf(line, "ts=%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &y, &mo, &d, &h, &mi, &s, &ms, &end), 7);
    assert_true(y >= 2024 && mo <= 12 && d <= 31);
    assert_string_equal(line + end, "level=info event=session.evicted session=ab12 idle_ms=30\n");
}

static void an_event_may_stand_alone(void **state) {
    log_warn("server.ready");
    assert_non_null(strstr(logged(), "level=warn event=server.ready\n"));
    log_write(LOG_ERROR, "x", "a=%d", 1);
    assert_non_null(strstr(logged(), "level=error event=x a=1\n"));
}

static void levels_below_the_threshold_are_silent(void **state) {
    for (int t = LOG_DEBUG; t <= LOG_OFF; t++) {
        log_set_level((enum log_level)t);
        assert_int_equal(log_level(), t);
        log_debug("e", "l=0");
        log_info("e", "l=1");
        log_warn("e", "l=2");
        log_error("e", "l=3");
        const char *text = logged();
        for (int l = 0; l < 4; l++) {
            char mark[16];
            snprintf(mark, sizeof mark, "l=%d\n", l);
            assert_int_equal(strstr(text, mark) != NULL, l >= t);
        }
    }
}

static void values_cannot_forge_a_line(void **state) {
    log_info("e", "title=%s", "x\nts=0 level=error event=forged\x1b[31m");
    const char *text = logged();
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_null(strchr(text, '\x1b'));
}

static void long_lines_are_cut(void **state) {
    char big[10000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    log_info("e", "v=%s", big);
    const char *text = logged();
    assert_true(strlen(text) > 3000 && strlen(text) <= 4096);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    log_info(big, "v=1"); // an event's name, too
    assert_non_null(strstr(logged(), "xx v=1\n"));
}

static void errno_survives(void **state) {
    int unwritable = open("/dev/null", O_RDONLY);
    dup2(unwritable, STDERR_FILENO);
    close(unwritable);
    errno = ENOSPC;
    log_info("e", "a=1");
    assert_int_equal(errno, ENOSPC);
}

static void quoted_values(void **state) {
    char out[40];
    assert_string_equal(log_quote(out, sizeof out, "a b=\"c\"\\"), "\"a b=\\\"c\\\"\\\\\"");
    assert_string_equal(log_quote(out, sizeof out, "\n\x1b\x7f\u00e4"),
                        "\"\\x0a\\x1b\\x7f\u00e4\"");
    assert_string_equal(log_quote(out, sizeof out, ""), "\"\"");
    assert_string_equal(log_quote(out, 6, "abcdef"), "\"abc\"");
    assert_string_equal(log_quote(out, 6, "ab\ncdef"), "\"ab\""); // no half escape
    assert_string_equal(log_quote(out, 6, "ab\"\""), "\"ab\"");
    assert_string_equal(log_quote(out, 6, "a\u20ac"), "\"a\""); // no half character
    assert_string_equal(log_quote(out, sizeof out, "\xc3("), "\"\\xc3(\"");
    assert_string_equal(log_quote(out, 3, "abc"), "\"\"");
    assert_string_equal(log_quote(out, 2, "abc"), "");
    for (size_t cap = 1; cap < sizeof out; cap++) {
        out[cap] = '#';
        log_quote(out, cap, "a\"b\n\u20ac tail that never fits into any of them, surely");
        assert_int_equal(out[cap], '#');
        assert_true(strlen(out) < cap);
    }
}

static void *log_much(void *arg) {
    for (int i = 0; i < 500; i++) log_info("thread", "n=%d i=%d end=1", *(int *)arg, i);
    return NULL;
}

static void lines_of_threads_stay_whole(void **state) {
    pthread_t threads[4];
    int numbers[4], lines = 0;
    for (int i = 0; i < 4; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, log_much, &numbers[i]);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    char *save, *text = logged();
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        assert_memory_equal(line, "ts=", 3);
        assert_non_null(strstr(line, " end=1"));
        assert_null(strstr(line + 3, "ts="));
        lines++;
    }
    assert_int_equal(lines, 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_line_is_logfmt, setup, teardown),
        cmocka_unit_test_setup_teardown(an_event_may_stand_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(levels_below_the_threshold_are_silent, setup, teardown),
        cmocka_unit_test_setup_teardown(values_cannot_forge_a_line, setup, teardown),
        cmocka_unit_test_setup_teardown(long_lines_are_cut, setup, teardown),
        cmocka_unit_test_setup_teardown(errno_survives, setup, teardown),
        cmocka_unit_test(quoted_values),
        cmocka_unit_test_setup_teardown(lines_of_threads_stay_whole, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
