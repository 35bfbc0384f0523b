// The session service on the network's loop: woken by the engine's and the store's threads, polled
// once before the loop waits, and followed (follower.h). Protocols and routes are given this struct
// as `user`. Net thread only, but for service_wake.
#pragma once
#include "ws/follower.h"
#include "ws/net/net.h"
#include "ws/reclaim.h"

struct service_metrics {
    struct metric *messages_in, *frames_out, *errors_out, *slow_readers, *rate_limited,
        *token_to_socket;
};

// What new sessions get where their opener does not say.
struct service_defaults {
    struct sampling_params sampling;
    int64_t session_len, memory_len;
    int32_t sink_len;
};

enum service_state {
    SERVICE_RUNNING,
    SERVICE_DRAINING, // new turns are refused, running ones finish
    SERVICE_CLOSING   // clients are sent away
};

struct service {
    const struct serve_config *config;
    struct net *net;
    struct engine *engine;
    struct sessions *sessions;
    struct service_defaults defaults;
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
    size_t waiting_bytes; // of answers, on all connections
};

// Handles on net's loop, and a bell that service_wake may ring: before engine and sessions are open.
int service_init(struct service *s, struct net *net, struct metrics *registry, struct err *err);
void service_wake(void *service); // any thread
void service_start(struct service *s, struct engine *engine, struct sessions *sessions,
                   const struct service_defaults *defaults);
void service_stop(struct service *s);    // polls no more
void service_release(struct service *s); // when the loop has closed its handles

void service_poll_soon(struct service *s); // after any sessions_* call: timers may have changed
void service_later(struct service *s, int64_t ms); // later() is called then, on every follower
// A delta was written whose first token was drawn at drawn_us (0: not counted).
void service_count_token(struct service *s, int64_t drawn_us);
