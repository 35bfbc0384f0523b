// A thread that cannot start: the sentence names the limit that was reached.
#include "base/err.h"
#include "base/thread.h"
#include "tests/cmocka.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MAPS_AS_IT_LIKES true // a sanitizer
#else
#define MAPS_AS_IT_LIKES false
#endif

static void *run(void *arg) {
    return arg;
}

// In a process that may map nothing more: whether the sentence has a word.
static int refusal_has(const char *word) {
    struct err err;
    pthread_t thread;
    if (setrlimit(RLIMIT_AS, &(struct rlimit){0, RLIM_INFINITY}) < 0) return 2;
    int rc = thread_start(&thread, run, NULL);
    if (rc != EAGAIN || thread_refused(&err, rc, "a thread") != E_NOMEM) return 3;
    fprintf(stderr, "%s\n", err.text);
    return strstr(err.text, word) ? 0 : 1;
}

static void a_stack_that_does_not_fit_is_named(void **state) {
    if (MAPS_AS_IT_LIKES) skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(refusal_has("ulimit -v"));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void too_many_threads_are_named(void **state) {
    struct err err;
    assert_int_equal(thread_refused(&err, EAGAIN, "the store's thread"), E_NOMEM);
    assert_non_null(strstr(err.text, "cannot start the store's thread: too many threads"));
    assert_non_null(strstr(err.text, "pids.max"));
    assert_int_equal(thread_refused(&err, EPERM, "a thread"), E_NOMEM);
    assert_string_equal(err.text, "cannot start a thread: Operation not permitted");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stack_that_does_not_fit_is_named),
        cmocka_unit_test(too_many_threads_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
