// Routes, signals and the end. See server.h.
#include "ws/server.h"
#include "base/log.h"
#include "ws/anthropic/anthropic.h"
#include "ws/cached_models.h"
#include "ws/health.h"
#include "ws/kserve/grpc/server.h"
#include "ws/kserve/http/routes.h"
#include "ws/kserve/kserve.h"
#include "ws/llamacpp/llamacpp.h"
#include "ws/net/http.h"
#include "ws/notify.h"
#include "ws/openai/conversations.h"
#include "ws/openai/openai.h"
#include "ws/openai/responses.h"
#include "ws/openai/responses_socket.h"
#include "ws/page.h"
#include "ws/parley/connection.h"
#include "ws/shared.h"
#include "ws/usage.h"
#include <stddef.h>
#include <stdlib.h>

#define CLOSE_SECONDS 3 // for close handshakes at the end
#define WATCH_MS 1000
#define DRAIN_POLL_MS 50
// timeout(1) sends its signal to the process and then to the process's group, and some parents pass on a Ctrl-C that the terminal
// has sent too. A signal that follows the first one so soon is the same.
#define SAME_SIGNAL_US 500000

struct server {
    struct service service;
    struct rpc_server *grpc;             // NULL: none
    uv_timer_t watch_timer, drain_timer; // the device and the watchdog; the end
    uv_signal_t sigterm, sigint, sighup;
    int64_t drain_until_us, close_until_us, answers_until_us;
    int64_t signal_us; // when the first signal came; 0: none did
    bool forced, device_lost;
};

static void no_websocket(void *user, struct http *h) {
    http_reply_error(h, 426, "unsupported",
                     "this address speaks WebSocket only, sub-protocol parley.v1", 0);
}

#define GET HTTP_METHOD(HTTP_GET)
static const struct http_route routes[] = {
    {.path = "/healthz", .methods = GET, .handle = health_live},
    {.path = "/readyz", .methods = GET, .handle = health_ready},
    {.path = "/metrics", .methods = GET, .guarded = true, .admin = true, .handle = health_metrics},
    {.path = "/metrics/history",
     .methods = GET,
     .guarded = true,
     .admin = true,
     .handle = health_history},
    {.path = "/config", .methods = GET, .guarded = true, .admin = true, .handle = health_config},
    CACHED_MODELS_ROUTE,
    OPENAI_ROUTE("/v1/usage", GET, .handle = usage_handle),
    SHARED_ROUTE,
    {.path = "/ws", .methods = GET, .handle = no_websocket},
    ANTHROPIC_ROUTES,
    OPENAI_ROUTES,
    OPENAI_RESPONSES_ROUTES,
    OPENAI_CONVERSATIONS_ROUTES,
    LLAMACPP_ROUTES,
    KSERVE_ROUTES,
    // What clients of OpenAI and Anthropic ask for and this server does not have: errors that they can read.
    {.path = "/v1/*", .only_with = HEADER_ANTHROPIC_VERSION, .shape_error = anthropic_shape_error},
    {.path = "/v1/*", .write_error = openai_write_error, .put_headers = openai_put_headers},
    {.path = NULL, .is_here = page_is_here, .methods = GET, .handle = page_handle},
};

static const struct websocket_protocol *const websockets[] = {&connection_protocol,
                                                              &responses_socket_protocol};

// --- the end ---

static void end_drained(struct follower *f, int64_t now_us) {
    if (f->ops->end && (!f->ops->drained || f->ops->drained(f))) f->ops->end(f);
}
static void end_resumable(struct follower *f, int64_t now_us) {
    if (f->ops->sole)
        end_drained(f, now_us);
    else if (f->ops->end)
        f->ops->end(f);
}
static void end_any(struct follower *f, int64_t now_us) {
    if (f->ops->end) f->ops->end(f);
}

// Whether a client has yet to read an answer that no later request gives it again.
static bool answers_wait(const struct service *s) {
    for (size_t i = 0; i < s->followers.n_slots; i++)
        if (s->followers.slots[i] && s->followers.slots[i]->ops->sole) return true;
    return net_is_replying(s->net);
}

// The end in order: turns finish, their last words are sent, connections close, the loop stops.
static void drain(struct server *srv) {
    struct service *s = &srv->service;
    int64_t now = net_now_us();
    if (s->state == SERVICE_DRAINING) {
        // Clients get the end of a turn when its record is committed, a little later. A request that
        // waits behind another request of its sequence has no turn yet.
        bool settled = sessions_settled(s->sessions) && s->kserve->n_infers == 0;
        if (!settled && now < srv->drain_until_us) return;
        log_info("server.closing", "turns_cut=%d clients=%zu", sessions_n_running(s->sessions),
                 s->followers.n);
        s->state = SERVICE_CLOSING;
        s->net->life = NET_CLOSING;
        srv->close_until_us = now + CLOSE_SECONDS * 1000000;
        srv->answers_until_us =
            srv->close_until_us > srv->drain_until_us ? srv->close_until_us : srv->drain_until_us;
        net_stop_listening(s->net);
    }
    if (s->state != SERVICE_CLOSING) return;
    void (*end)(struct follower *, int64_t) = end_drained;
    if (now > srv->close_until_us - 1000000) end = end_resumable;
    if (now > srv->answers_until_us - 1000000) end = end_any;
    followers_each(&s->followers, end, now);
    bool answers = answers_wait(s);
    bool idle = rpc_server_drain(srv->grpc) && s->followers.n == 0 && !answers;
    if (idle || now > (answers ? srv->answers_until_us : srv->close_until_us))
        uv_stop(&s->net->loop);
}

static void on_drain_timer(uv_timer_t *handle) {
    drain(handle->data);
}

static void begin_drain(struct server *srv) {
    struct service *s = &srv->service;
    if (s->state != SERVICE_RUNNING) return;
    s->state = SERVICE_DRAINING;
    s->net->life = NET_DRAINING;
    notify_send("STOPPING=1");
    srv->drain_until_us = net_now_us() + (int64_t)(s->config->drain_timeout * 1e6);
    sessions_drain(s->sessions);
    rpc_server_part(srv->grpc);
    service_poll_soon(s);
    uv_timer_start(&srv->drain_timer, on_drain_timer, DRAIN_POLL_MS, DRAIN_POLL_MS);
}

static void on_terminate(uv_signal_t *handle, int number) {
    struct server *srv = handle->data;
    struct service *s = &srv->service;
    const int64_t now = net_now_us();
    if (srv->signal_us) {
        if (now - srv->signal_us < SAME_SIGNAL_US) return;
        srv->forced = true;
        uv_stop(&s->net->loop);
        return;
    }
    srv->signal_us = now;
    log_info("server.draining", "signal=%d turns=%d drain_timeout_s=%g", number,
             sessions_n_running(s->sessions), s->config->drain_timeout);
    begin_drain(srv);
}

// Notes idle instances too, so that no turn is sent to a lost instance. false: no instance is lost.
static bool note_lost_instances(struct service *s) {
    const struct instance *i = sessions_placement(s->sessions)->instances;
    struct engine_load load;
    bool any = false;
    for (; i; i = i->next) {
        engine_load(i->engine, &load);
        any |= load.device_lost;
        if (load.device_lost && i->state != INSTANCE_LOST)
            sessions_lose_instance(s->sessions, i->name);
    }
    return any;
}

// Only another process can use a failed GPU again: the sessions are on disk, a supervisor restarts.
// After each poll: an engine that ends for its device rings the bell.
static void end_if_lost(struct service *s) {
    struct server *srv = (struct server *)((char *)s - offsetof(struct server, service));
    if (!note_lost_instances(s) || srv->device_lost || !health_is_lost(s)) return;
    srv->device_lost = true;
    log_error("server.device_lost", "turns=%d", sessions_n_running(s->sessions));
    begin_drain(srv);
}

static void on_watch_timer(uv_timer_t *handle) {
    struct service *s = &((struct server *)handle->data)->service;
    metrics_history_note(&s->history, s->registry, net_now_us());
    // An engine that stands still is silence: the service manager restarts the server.
    if (notify_is_watched() && health_is_live(s)) notify_send("WATCHDOG=1");
    end_if_lost(s);
}

// A changed limit holds for turns that wait already; turns of an owner without a token end.
static void owners_reloaded(struct service *s) {
    struct net *n = s->net;
    bool cancels = n->config->on_token_removed == SERVE_TOKEN_CANCEL;
    for (struct owner *o = n->owners.by_name; o; o = o->hh.next) {
        if (cancels && !auth_has_tokens(n->auth, o)) sessions_cancel_owner(s->sessions, o);
        sessions_limits_changed(s->sessions, o);
    }
    service_poll_soon(s);
}

static void on_reload(uv_signal_t *handle, int number) {
    struct service *s = &((struct server *)handle->data)->service;
    struct net *n = s->net;
    struct err err = {0};
    char quoted[1200];
    int rc = net_reload(n, &err);
    rpc_server_reloaded(((struct server *)handle->data)->grpc);
    owners_reloaded(s); // also where only the certificate was refused
    if (rc < 0)
        log_error("server.reload", "error=%s", log_quote(quoted, sizeof(quoted), err.text));
    else
        log_info("server.reload", "tokens=%d tls=%d", auth_needs_token(n->auth), n->ssl != NULL);
}

// --- life ---

static void init_handles(struct server *srv) {
    uv_loop_t *loop = &srv->service.net->loop;
    uv_timer_init(loop, &srv->watch_timer);
    uv_timer_init(loop, &srv->drain_timer);
    uv_signal_init(loop, &srv->sigterm);
    uv_signal_init(loop, &srv->sigint);
    uv_signal_init(loop, &srv->sighup);
    srv->watch_timer.data = srv->drain_timer.data = srv;
    srv->sigterm.data = srv->sigint.data = srv->sighup.data = srv;
}

int server_open(struct server **out, const struct serve_config *config, struct metrics *registry,
                struct err *err) {
    struct net *net = NULL;
    struct server *srv = calloc(1, sizeof(*srv));
    if (!srv) return err_set(err, E_NOMEM, "no memory for the server");
    srv->service.bell.fd = -1;
    int rc = net_open(&net, config, registry, err);
    if (rc == 0 && kserve_open(&srv->service.kserve) < 0)
        rc = err_set(err, E_NOMEM, "no memory for the server");
    if (rc == 0) rc = service_init(&srv->service, net, registry, err);
    if (rc == 0) rc = rpc_server_open(&srv->grpc, &srv->service, err);
    if (rc < 0) {
        net_close(net);
        kserve_close(srv->service.kserve);
        free(srv);
        return rc;
    }
    init_handles(srv);
    *out = srv;
    return 0;
}

struct service *server_service(struct server *srv) {
    return &srv->service;
}

int server_listen(struct server *srv, struct sessions *sessions, struct err *err) {
    struct service *s = &srv->service;
    service_start(s, sessions);
    s->polled = end_if_lost;
    metrics_history_note(&s->history, s->registry, net_now_us()); // what the first turn adds shows
    uv_timer_start(&srv->watch_timer, on_watch_timer, WATCH_MS, WATCH_MS);
    uv_signal_start(&srv->sigterm, on_terminate, SIGTERM);
    uv_signal_start(&srv->sigint, on_terminate, SIGINT);
    uv_signal_start(&srv->sighup, on_reload, SIGHUP);
    TRY(net_listen(s->net, routes, sizeof(routes) / sizeof(routes[0]), websockets,
                   sizeof(websockets) / sizeof(websockets[0]), s, err));
    return rpc_server_start(srv->grpc, err);
}

int server_grpc_port(const struct server *srv) {
    return rpc_server_port(srv->grpc);
}

const char *server_url(const struct server *srv, char *out, size_t cap) {
    return net_url(srv->service.net, out, cap);
}

int server_run(struct server *srv) {
    uv_run(&srv->service.net->loop, UV_RUN_DEFAULT);
    if (srv->device_lost) return E_DEVICE;
    return srv->forced ? E_CANCELLED : 0;
}

void server_stop(struct server *srv) {
    struct service *s = &srv->service;
    uv_timer_stop(&srv->watch_timer);
    uv_timer_stop(&srv->drain_timer);
    service_stop(s);
    s->state = SERVICE_CLOSING;
    rpc_server_stop(srv->grpc);
    net_stop(s->net);
    s->sessions = NULL;
}

void server_close(struct server *srv) {
    if (!srv) return;
    rpc_server_stop(srv->grpc); // for a server that was never started: the network's loop ends next
    net_close(srv->service.net);
    rpc_server_close(srv->grpc);
    kserve_close(srv->service.kserve);
    service_release(&srv->service);
    free(srv);
}
