// The session service on the network's loop: woken by the engine's and the store's threads, polled
// once before the loop waits, and followed (follower.h). Protocols and routes are given this struct
// as `user`. Net thread only, but for service_wake.
#pragma once
#include "base/json.h"
#include "ws/follower.h"
#include "ws/net/net.h"
#include "ws/reclaim.h"

// Bounds on what waits for clients, of a connection, an owner and the server (parley/outgoing.c).
enum budget { BUDGET_CONNECTION, BUDGET_OWNER, BUDGET_SERVER, BUDGET_CHANGES, N_BUDGETS };

struct service_metrics {
    struct metric *messages_in, *frames_out, *errors_out, *slow_readers, *rate_limited,
        *token_to_socket;
    struct metric *over_budget[N_BUDGETS];
};

enum service_state {
    SERVICE_RUNNING,
    SERVICE_DRAINING, // new turns are refused, running ones finish
    SERVICE_CLOSING   // clients are sent away
};

struct service {
    const struct serve_config *config;
    struct net *net;
    struct sessions *sessions;
    struct metrics *registry;
    struct service_metrics metrics;
    struct followers followers;
    struct kserve *kserve; // what ws/kserve remembers between requests
    size_t upload_bytes;   // of archives that arrive in pieces (upload.h)
    enum service_state state;

    struct bell bell;
    uv_timer_t poll_timer, later_timer;
    uv_prepare_t prepare; // once per turn-round of the loop, before it waits
    uv_idle_t awake;      // while it is active the loop does not sleep
    int64_t awake_until_us, start_us;
    bool dirty;       // the session service has something to do
    uint64_t n_polls; // of the session service
    struct reclaim reclaim;
    size_t waiting_bytes;  // of answers, on all connections
    struct json_gaps gaps; // of the message in net->tx (parley/outgoing.c)
};

// Handles on net's loop, and a bell that service_wake may ring: before the sessions are open.
int service_init(struct service *s, struct net *net, struct metrics *registry, struct err *err);
void service_wake(void *service); // any thread
void service_start(struct service *s, struct sessions *sessions);
// The model of that name, NULL: the default. NULL: there is none. Held until placement_drop, so that
// its engine may be used for texts. Any thread.
const struct served_model *service_hold_model(const struct service *s, const char *name);
void service_stop(struct service *s);    // polls no more
void service_release(struct service *s); // when the loop has closed its handles

void service_poll_soon(struct service *s); // after any sessions_* call: timers may have changed
void service_later(struct service *s, int64_t ms); // later() is called then, on every follower
// A delta was written whose first token was drawn at drawn_us (0: not counted).
void service_count_token(struct service *s, int64_t drawn_us);
