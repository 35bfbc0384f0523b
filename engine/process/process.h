// The server's side of an engine process: starts it, sends it what comes out of the queue of commands, puts
// its events into the queue of events, kills it when it hangs, and starts it again when it has ended. See
// wire.h for what they say, engine_process.c for the other side.
//
//   STARTING --> SERVES --> LOST (waits, then starts it) --> READY --> SERVES
//       '--> ENDED  '--> ENDED: it was stopped   ^----------------'
//
// In LOST all commands are dropped: the owner ends its turns itself (EVENT_PROCESS_LOST), and calls
// process_take_up in READY. Commands that stood in the queue before that are dropped too.
#pragma once
#include "engine/process/wire.h"

struct process;

// In the queue of events: the process is gone, and with it all turns and caches.
#define EVENT_PROCESS_LOST ((enum engine_event_kind)(ENGINE_EXPORTED + 1))

// Starts it and waits until its model is loaded. load: zeroed memory that it publishes its load in, the
// process's until process_close. *report: what it told. An error is the engine's own.
int process_open(struct process **out, const struct engine_options *o, struct wire_report *report,
                 struct err *err);
struct instance_load *process_load(const struct process *p);
const char *process_text(const struct process *p, int i); // of its report: enum process_texts
enum process_texts {
    PROCESS_FAMILY,
    PROCESS_FINGERPRINT,
    PROCESS_BACKEND,
    PROCESS_WEIGHT_DTYPE,
    PROCESS_N_TEXTS
};
// Snapshots that it found, in the order in which it told them.
size_t process_n_found(const struct process *p);
const char *process_found(const struct process *p, size_t i);

// From here on it serves: the queues are the engine's, and m (may be NULL) grows with its metrics.
int process_serve(struct process *p, struct queue *commands, struct queue *events,
                  struct engine_metrics *m, struct err *err);
// READY: it serves again, and load's device_lost is false. False: it is not READY. Owner's thread.
bool process_take_up(struct process *p);
int64_t process_restarts(const struct process *p);
// It is not started again, nor waited for while it loads. One that serves ends by COMMAND_STOP.
void process_stop(struct process *p);
// Joins its thread: after COMMAND_STOP, or before process_serve. The process has ended then, if need be killed.
void process_join(struct process *p);
void process_close(struct process *p); // joins and frees. NULL is allowed
