// Threads that mostly wait (net, store) beside threads that mostly compute. On a machine whose
// cores all compute, the scheduler lets a thread that wakes up wait for the end of a slice, some
// milliseconds; a token on its way to a reader should not.
#pragma once

// The calling thread runs ahead of all ordinary ones as soon as it has work (SCHED_RR at the lowest
// real-time priority; threads and processes that it starts are ordinary again). The kernel keeps a
// share of each second for the others whatever happens. 0, or E_DENIED where the process may not
// ask for it: root, CAP_SYS_NICE or RLIMIT_RTPRIO >= 1 may.
int thread_run_ahead(void);
