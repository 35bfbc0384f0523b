// The state of an engine process's server side, shared by the owner's calls (process.c) and the thread that supervises
// the process (supervise.c). Only these two include it.
#pragma once
#include "engine/process/loss.h"
#include "engine/process/process.h"
#include "engine/run/load.h"
#include <sys/types.h>

enum state { STARTING, SERVES, LOST, READY, ENDED };
// The life of one start of the process, as its receiver sees it.
enum life {
    ALIVE,
    LEAVING, // it has sent ENDED: its last message
    LEFT,    // its socket has closed after that
    DIED,    // its socket has closed before that
};

struct process {
    // Constant once it serves.
    char *program, *name;              // name: the instance's, for the log
    struct buf open_first, open_again; // the message OPEN, of the first life and of others
    struct wire_report report;
    struct buf texts; // of the first report
    const char *text[PROCESS_N_TEXTS];
    const char **found_ids;
    size_t n_found;
    int64_t timeout_us, backoff_us;
    bool run_ahead;
    void (*wake)(void *ctx);
    void *wake_ctx;
    const struct engine_options *opening; // the caller's, until process_open returns; then NULL
    struct queue *commands, *events;
    struct engine_metrics *metrics;

    struct core_load *load; // shared with the process
    int memory;             // its descriptor

    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum state state; // under the lock, as all up to here; `events` is set by process_serve
    bool give_up;     // process_stop or process_join was called
    int open_rc;
    struct err open_err;
    atomic_llong restarts;

    // The owner's.
    pthread_t thread; // the supervising one
    bool has_thread;

    // The supervising thread's.
    pthread_t receiver;
    pid_t pid;
    int fd;
    struct wire_reader reader; // the receiving thread's, while that runs
    struct buf out;
    double *numbers; // (n_numbers) the metrics of this life so far
    size_t n_numbers;
    int64_t stop_until_us; // COMMAND_STOP came: the process may live until then; 0: it has not come
    int64_t began_us;
    int64_t seen_heartbeat_us;
    int64_t unchanged_us; // how long the heartbeat has been the same, by our own clock's ticks
    int64_t still_us;     // and how long without processor time either, while it stops
    int64_t processor_us; // that the process had used at the last look, while it stops
    atomic_int life;      // enum life

    struct loss loss; // the supervising thread writes it
};

// The supervising thread, for all lives of the process. arg: struct process, whose open_first, load and options are set.
void *process_supervise(void *arg);
