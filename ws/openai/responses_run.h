// One response under way, over HTTP (responses.c) or on a WebSocket (responses_socket.c). A run looks up the
// response or conversation that it continues, lets a worker build the conversation, starts the completion,
// and turns the completion's events into the response's.
// Net thread only.
#pragma once
#include "ws/follower.h"
#include "ws/openai/responses_record.h"
#include "ws/openai/responses_request.h"

// What its owner does with it. Calls come from the loop, never from inside responses_run_*.
struct responses_sink {
    bool (*room)(void *ctx);                                            // it takes more events
    void (*event)(void *ctx, const char *type, const struct buf *json); // NULL: the end alone
    // A round of events is complete. false: the owner has freed the run.
    bool (*sent)(void *ctx, int64_t drawn_us);
    // Exactly one of these comes at last; the owner then calls responses_run_free().
    void (*refused)(void *ctx, const struct completion_failure *f); // before its first event
    void (*ended)(void *ctx);
};

struct responses_run;

// Takes the request, which has no failure. NULL: no memory; the request is the caller's.
struct responses_run *responses_run_start(struct service *s, const char *owner,
                                          struct responses_request *r,
                                          const struct responses_sink *sink, void *ctx);
// Follows the turn of a record, of which events up to `after` are known. Takes what *r owns.
struct responses_run *responses_run_follow(struct service *s, const char *owner,
                                           struct responses_record *r, int64_t after,
                                           const struct responses_sink *sink, void *ctx);
void responses_run_pump(struct responses_run *run); // there is room again
void responses_run_cancel(struct responses_run *run);
const struct responses_output *responses_run_output(const struct responses_run *run);
int64_t responses_run_number(
    struct responses_run *run); // takes an event's number, for its owner's event
// Its turn is cancelled, unless it goes on without its client (background).
void responses_run_free(struct responses_run *run);

// Looks a turn up: done() is called once, from the loop. status 0: *r is the callee's to take or
// release; else why not. The lookup frees itself behind done().
struct responses_lookup;
typedef void (*responses_lookup_fn)(void *ctx, struct responses_record *r,
                                    const struct completion_failure *f);
struct responses_lookup *responses_lookup_start(struct service *s, const char *owner,
                                                const char *session, int64_t turn,
                                                responses_lookup_fn done, void *ctx);
// Looks a session up, in the same way: *s is the callee's to take or release.
typedef void (*responses_session_fn)(void *ctx, struct responses_session *s,
                                     const struct completion_failure *f);
struct responses_lookup *responses_lookup_session(struct service *s, const char *owner,
                                                  const char *session, responses_session_fn done,
                                                  void *ctx);
// done() is not called any more. NULL is fine.
void responses_lookup_drop(struct responses_lookup *l);
