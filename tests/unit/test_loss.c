// Why an engine process is lost: the last reason counts, and the one that caused the others.
#include "engine/process/loss.h"
#include "tests/cmocka.h"
#include <signal.h>
#include <string.h>

static struct loss loss;

static int set_up(void **state) {
    loss_init(&loss);
    return 0;
}
static int tear_down(void **state) {
    loss_release(&loss);
    return 0;
}
static void says(const char *want) {
    char text[512];
    loss_read(&loss, text, sizeof text);
    assert_string_equal(text, want);
}

static void a_signal_and_a_status_are_named(void **state) {
    says("");
    loss_ended(&loss, "a", 7, SIGKILL);
    says("signal 9 (Killed) ended the engine process");
    loss_ended(&loss, "a", 7, 3 << 8);
    says("the engine process ended with status 3");
    loss_note(&loss, "");
    says("");
}

static void silence_is_the_reason_of_the_kill(void **state) {
    const char *want = "the engine process said nothing for 2.5 s and was killed";
    loss_hangs(&loss, "a", 7, 2500000);
    says(want);
    loss_ended(&loss, "a", 7, SIGKILL);
    says(want);
    loss_note(&loss, ""); // it serves again, and is killed by another
    loss_ended(&loss, "a", 8, SIGKILL);
    says("signal 9 (Killed) ended the engine process");
}

static void the_last_attempt_counts(void **state) {
    struct err why = {0};
    char text[512], long_text[sizeof why.text];
    loss_ended(&loss, "a", 7, SIGSEGV);
    err_set(&why, E_NOTFOUND, "m/config.json: no such file");
    loss_not_reopened(&loss, "a", 1, &why);
    says("attempt 1 to start the engine process again failed: m/config.json: no such file");
    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    err_set(&why, E_NOTFOUND, "%s", long_text);
    loss_not_reopened(&loss, "a", 2, &why);
    loss_read(&loss, text, sizeof text);
    assert_non_null(strstr(text, "attempt 2 to start the engine process again failed: xxx"));
    loss_read(&loss, text, 10);
    assert_string_equal(text, "attempt 2");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_signal_and_a_status_are_named, set_up, tear_down),
        cmocka_unit_test_setup_teardown(silence_is_the_reason_of_the_kill, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_last_attempt_counts, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
