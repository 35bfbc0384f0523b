// Thread priority: either the thread has the policy afterwards and its children do not, or the call
// is refused.
#include "base/err.h"
#include "base/thread_priority.h"
#include "tests/cmocka.h"
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

static int policy(void) {
    return sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
}

static void *child_policy(void *arg) {
    *(int *)arg = policy();
    return NULL;
}

static void *run_ahead(void *arg) {
    int *seen = arg; // {result, own policy, a started thread's policy}
    pthread_t child;
    seen[0] = thread_run_ahead();
    seen[1] = policy();
    if (pthread_create(&child, NULL, child_policy, &seen[2]) == 0) pthread_join(child, NULL);
    return NULL;
}

static void a_thread_runs_ahead_or_is_told(void **state) {
    pthread_t thread;
    int seen[3] = {-1, -1, -1};
    assert_int_equal(pthread_create(&thread, NULL, run_ahead, seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen[2], SCHED_OTHER);
    assert_int_equal(policy(), SCHED_OTHER); // only the thread that asked was changed
    if (seen[0] == 0) {
        assert_int_equal(seen[1], SCHED_RR);
    } else {
        assert_int_equal(seen[0], E_DENIED);
        assert_int_equal(seen[1], SCHED_OTHER);
    }
}

static void *run_behind(void *arg) {
    thread_run_behind();
    *(int *)arg = getpriority(PRIO_PROCESS, 0);
    return NULL;
}

static void a_thread_runs_behind_alone(void **state) {
    pthread_t thread;
    int own = getpriority(PRIO_PROCESS, 0), seen = -100;
    assert_int_equal(pthread_create(&thread, NULL, run_behind, &seen), 0);
    pthread_join(thread, NULL);
    assert_int_equal(seen, own + 5 < 19 ? own + 5 : 19);
    assert_int_equal(getpriority(PRIO_PROCESS, 0), own);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_thread_runs_ahead_or_is_told),
                                       cmocka_unit_test(a_thread_runs_behind_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
