// See thread_priority.h. The system call has a file of its own because of its constants.
#include "base/thread_priority.h"
#include "base/err.h"
#include <sched.h>
#include <sys/resource.h>

#define BEHIND_NICE 5 // a third of the weight of an ordinary thread

int thread_run_ahead(void) {
    struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    return sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest) == 0 ? 0 : E_DENIED;
}

// On Linux the nice value is a thread's.
void thread_run_behind(void) {
    (void)setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + BEHIND_NICE);
}
