// See thread_priority.h. The system call has a file of its own because of its constants.
#include "base/thread_priority.h"
#include "base/err.h"
#include <sched.h>

int thread_run_ahead(void) {
    struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    return sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &lowest) == 0 ? 0 : E_DENIED;
}
