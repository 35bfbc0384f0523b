// The server's side of an engine process: starts it, sends it the commands of the queue, puts its events into
// the queue of events, kills it when it hangs, and starts it again when it has ended. wire.h has the messages,
// engine_process.c the other side.
//
//   STARTING --> SERVES --> LOST (waits, then starts it) --> READY --> SERVES
//       '--> ENDED  '--> ENDED: it was stopped   ^----------------'
//
// In LOST all commands are dropped. The owner ends its turns itself (EVENT_PROCESS_LOST), and calls
// process_take_up in READY. Commands that were queued before that call are dropped too.
#pragma once
#include "engine/process/wire.h"

struct process;
struct queue;
struct engine_metrics;
struct core_load;

// In the queue of events: the process is gone, and with it all turns and caches.
#define EVENT_PROCESS_LOST ((enum engine_event_kind)(ENGINE_EXPORTED + 1))

// Starts it and waits until its model is loaded. *report: the facts that it sent. An error of the engine comes
// back as it is.
int process_open(struct process **out, const struct engine_options *o, struct wire_report *report,
                 struct err *err);
// The load that it publishes, in shared memory. Valid until process_close.
struct core_load *process_load(const struct process *p);
const char *process_text(const struct process *p, int i); // of its report: enum process_texts
enum process_texts {
    PROCESS_FAMILY,
    PROCESS_FINGERPRINT,
    PROCESS_BACKEND,
    PROCESS_WEIGHT_DTYPE,
    PROCESS_WEIGHT_FORMAT,
    PROCESS_N_TEXTS
};
// The snapshots that it found, in the order in which it sent them.
size_t process_n_found(const struct process *p);
const char *process_found(const struct process *p, size_t i);

// Lets it serve: the queues are the engine's, and its metrics are added to m.
int process_serve(struct process *p, struct queue *commands, struct queue *events,
                  struct engine_metrics *m, struct err *err);
// READY -> SERVES: it serves again, and load's device_lost is false. False: it was not READY. Owner's thread.
bool process_take_up(struct process *p);
int64_t process_restarts(const struct process *p);
// Why it is not SERVES, a sentence; "": it is. Any thread.
void process_why_lost(struct process *p, char *out /* (cap) */, size_t cap);
// From now on it is not started again, and its loading is not waited for. COMMAND_STOP ends one that serves.
void process_stop(struct process *p);
// Joins the supervising thread; call it after COMMAND_STOP or before process_serve. When it returns, the
// process has ended or was killed.
void process_join(struct process *p);
void process_close(struct process *p); // joins and frees. NULL is allowed
