// Priority for threads that mostly wait (net, store) beside threads that mostly compute. When all
// cores compute, the scheduler lets a thread that wakes up wait some milliseconds for the end of a
// slice. That would delay every token on its way to a client.
#pragma once

// The calling thread preempts all ordinary ones as soon as it has work (SCHED_RR at the lowest
// real-time priority; threads and processes that it starts are ordinary again). The kernel reserves
// a share of each second for the other threads. Returns 0, or E_DENIED if the process lacks the
// right: it needs root, CAP_SYS_NICE or RLIMIT_RTPRIO >= 1.
int thread_run_ahead(void);

// The calling thread gets a smaller share of a core that others want too (nice): for work that a
// token must not wait for. Threads that it starts inherit that.
void thread_run_behind(void);
