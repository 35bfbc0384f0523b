// Threads for work that is too long for an event loop: parsing, tokenizing, rendering, encoding.
//
// Workers yield to ordinary threads (thread_run_behind), so that tokens do not wait for them.
//
// One thread, the owner, submits jobs and takes their results; it never waits. A job belongs to a
// lane, a number that the owner chooses (a connection, a session). Jobs of one lane run one after
// another in the order of submission, and their results come back in that order. Lanes take turns,
// one job each, so that a lane with many jobs does not delay a lane with one. Lanes belong to groups
// (owners). A free thread takes the group with the fewest running jobs, and the last free thread takes
// only a group without any. So the jobs of one owner, however many and long, do not delay the first job
// of another one; those of several owners delay it by one job at most.
//
// The owner must not touch a job between workers_submit and its done(): the worker owns it. A job
// therefore carries copies of what it reads, or borrows what is constant for that long.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct workers;

// Embedded in the caller's own struct. The caller sets group, lane, run and done, and owns the memory
// again from done() on.
struct work {
    uint64_t group; // the same for all jobs of a lane
    uint64_t lane;
    void (*run)(struct work *job);  // on a worker's thread; not called when cancelled before
    void (*done)(struct work *job); // on the owner's thread, from workers_poll or workers_close
    bool cancelled;                 // read with work_cancelled()
    struct work *next;
};

// n_threads: at least 1; with several, a group's jobs leave one free. capacity: jobs that may be
// outstanding at once; their places are allocated here, later calls allocate nothing. wake: called on a
// worker's thread when results wait and none waited before; it should lead to workers_poll. Errors:
// E_NOMEM, or the system's for a thread.
int workers_open(struct workers **out, int n_threads, size_t capacity, void (*wake)(void *ctx),
                 void *wake_ctx, struct err *err);
// Cancels what has not begun, waits for what runs, and calls every done(). NULL is fine.
void workers_close(struct workers *w);

// Owner only. 0, or E_FULL with `capacity` jobs outstanding: the job stays the caller's.
int workers_submit(struct workers *w, struct work *job);
// Owner only. Calls done() of every job that has ended and returns how many. done() may submit.
int workers_poll(struct workers *w);
// Owner only. Cancels the lane's jobs: those that have not begun are not run, one that runs sees
// work_cancelled(). Each done() is still called, in order.
void workers_cancel(struct workers *w, uint64_t lane);
// Owner only. Jobs of the lane whose done() has not been called.
size_t workers_outstanding(struct workers *w, uint64_t lane);

// Any thread: the result is no longer wanted. A long run() asks now and then.
bool work_cancelled(const struct work *job);
