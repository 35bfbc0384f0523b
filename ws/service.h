// The session service on the network's loop: threads of engines and store wake it, it is polled once
// before the loop waits, and it has followers (follower.h). Protocols and routes get this struct as
// `user`. Net thread only, except service_wake and service_hold_*.
#pragma once
#include "base/json.h"
#include "base/workers.h"
#include "ws/follower.h"
#include "ws/metrics_history.h"
#include "ws/net/net.h"
#include "ws/reclaim.h"

// Limits on bytes that wait to be sent, per connection, owner and server (parley/outgoing.c).
enum budget { BUDGET_CONNECTION, BUDGET_OWNER, BUDGET_SERVER, BUDGET_CHANGES, N_BUDGETS };

struct service_metrics {
    struct metric *messages_in, *frames_out, *errors_out, *slow_readers, *rate_limited,
        *token_to_socket;
    struct metric *over_budget[N_BUDGETS];
};

enum service_state {
    SERVICE_RUNNING,
    SERVICE_DRAINING, // new turns are refused, running ones finish
    SERVICE_CLOSING   // connections are closed
};

struct service {
    const struct serve_config *config;
    struct net *net;
    struct sessions *sessions;
    struct metrics *registry;
    struct metrics_history history;
    struct service_metrics metrics;
    struct followers followers;
    struct kserve *kserve; // state of ws/kserve between requests
    size_t upload_bytes;   // of archives that arrive in pieces (upload.h)
    enum service_state state;

    struct bell bell;
    uv_timer_t poll_timer, later_timer;
    uv_prepare_t prepare; // once per round of the loop, before it waits
    uv_idle_t awake;      // while it is active the loop does not sleep
    int64_t awake_until_us, start_us;
    bool dirty;                        // the session service has something to do
    uint64_t n_polls;                  // of the session service
    void (*polled)(struct service *s); // called after each of them
    struct reclaim reclaim;
    size_t waiting_bytes;  // of answers, on all connections
    struct json_gaps gaps; // of the message in net->tx (parley/outgoing.c)
};

struct service_job { // a follower's, in its struct
    void (*run)(struct follower *f);
    void (*done)(struct follower *f);
    struct follower *follower;
    struct work work;
};

// Makes handles on net's loop, and the bell that service_wake rings. Before the session service is open.
int service_init(struct service *s, struct net *net, struct metrics *registry, struct err *err);
void service_wake(void *service); // any thread
void service_start(struct service *s, struct sessions *sessions);
// The model of that name; name NULL: the default one. Returns NULL if there is none. The caller holds it,
// and may use its engine for texts, until placement_drop. Any thread.
const struct served_model *service_hold_model(const struct service *s, const char *name);
// placement_hold_asked. Any thread.
const struct served_model *service_hold_asked_model(const struct service *s, const char *name,
                                                    struct err *err);
// How long an HTTP request with a conversation may be (max_conversation_bytes); the body of a route with
// HTTP_CONVERSATION. Any thread. path is ignored.
size_t service_longest_conversation(void *service, const char *path);
#define HTTP_CONVERSATION                                                                          \
    .max_body = HTTP_BODY_AS_MESSAGES, .longest_body = service_longest_conversation,               \
    .long_kind = LONG_CONVERSATIONS
void service_stop(struct service *s);    // polls no more
void service_release(struct service *s); // when the loop has closed its handles

void service_poll_soon(struct service *s); // after any sessions_* call: timers may have changed
// A request of f, for service_submit. The strings are borrowed.
struct request service_request(const struct follower *f, enum request_kind kind, const char *owner,
                               const char *session);
void service_submit(struct service *s, const struct request *r); // and polls soon
void service_delete_session(struct service *s, const char *owner, const char *session);
// Calls run(f) on a worker's thread, then done(f) on this one. lane: a number of the kind of work, whose low bits are
// free for f's number. E_FULL: too many wait.
int service_work(struct service *s, struct follower *f, const char *owner, uint64_t lane,
                 struct service_job *job);
void service_push(struct service *s, struct follower *f); // f's push() follows, from the loop
void service_drop_follower(struct service *s, struct follower *f); // f gets no more calls
void service_later(struct service *s, int64_t ms); // calls later() of every follower after ms
// A delta was written whose first token was drawn at drawn_us (0: not counted).
void service_count_token(struct service *s, int64_t drawn_us);
