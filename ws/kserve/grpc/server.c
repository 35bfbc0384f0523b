// The port of gRPC. See server.h.
#include "ws/kserve/grpc/server.h"
#include "base/log.h"
#include "ws/kserve/grpc/caller.h"
#include "ws/kserve/grpc/grpc_lazy.h"
#include "ws/kserve/grpc/methods.h"
#include "ws/kserve/grpc/share.h"
#include "ws/kserve/kserve.h"
#include "ws/net/guest.h"
#include <grpc/grpc_posix.h>
#include <grpc/grpc_security.h>
#include <grpc/support/alloc.h>
#include <grpc/support/log.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define ACCEPTS 32      // calls that gRPC may hand over before the net thread looks
#define CALLS_MAX 4096  // of all connections
#define STREAMS_MAX 128 // calls of one connection at once; HTTP/2 makes further calls wait
#define TICK_MS 1000
#define FASTEST_PINGS_MS 5000 // clients of gRPC may not ping more often than every 10 s
// A closing server cuts the connections that are left after this time without a call. A client that reads its GOAWAY
// has closed its connection by then; gRPC's synchronous clients read nothing between calls.
#define QUIET_US 1000000
// A call's message may take RECEIVE_US to arrive, and the time that its longest size takes at this rate.
#define RECEIVE_US 10000000
#define RECEIVE_BYTES_PER_SECOND 4096
#define RECEIVE_LONG_BYTES_PER_SECOND (256 << 10) // after max_message_bytes

struct accept { // a place for the next call
    struct event event;
    struct rpc_server *server;
    grpc_call *call;
    grpc_call_details details;
    grpc_metadata_array metadata;
};

struct rpc_server {
    struct service *service;
    struct guest_port *port;
    struct events events;
    grpc_server *server;
    grpc_server_credentials *credentials;
    size_t longest; // message
    struct accept accepts[ACCEPTS];
    struct event ended;
    uv_timer_t tick;
    struct shares shares;
    struct rpc *rpcs;
    int n_rpcs;
    int64_t busy_us;    // since it closes: when it last had a call that it had accepted
    int64_t streams_us; // since it closes: when it ends the streams that are left; 0: it has
    enum {
        SERVING,
        DRAINING, // calls that are open go on, further ones are refused unless they were promised
        STOPPING, // gRPC closes its connections
        ENDED     // it has closed them
    } state;
};

// --- calls ---

static void on_freed(struct rpc *r) {
    struct rpc_server *g = r->server;
    share_leave(r);
    DL_DELETE(g->rpcs, r);
    g->n_rpcs--;
}

// The peer of a connection that we gave to gRPC is named "fd:12"; the call keeps the descriptor open.
static int fd_of(grpc_call *call) {
    char *name = grpc_call_get_peer(call);
    int fd = name && strncmp(name, "fd:", 3) == 0 ? atoi(name + 3) : -1;
    gpr_free(name);
    return fd;
}

static struct rpc *rpc_of(struct accept *a) {
    struct rpc_server *g = a->server;
    struct rpc *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    *r = (struct rpc){.server = g,
                      .service = g->service,
                      .port = g->port,
                      .call = a->call,
                      .fd = fd_of(a->call),
                      .longest = g->longest};
    r->method = method_find((const char *)GRPC_SLICE_START_PTR(a->details.method),
                            GRPC_SLICE_LENGTH(a->details.method));
    r->lane = ++g->service->net->last_peer;
    r->received = share_received;
    r->freed = on_freed;
    guest_port_took_call(g->port, r->fd);
    DL_APPEND(g->rpcs, r);
    g->n_rpcs++;
    return r;
}

static const struct rpc_refusal closing = {GRPC_STATUS_UNAVAILABLE, "the server is shutting down",
                                           0};

// The call was under way when its client was told to make no more.
static bool is_promised(const struct rpc *r) {
    bool would_end = r->method && (!r->method->streams || r->server->streams_us);
    return would_end && guest_port_has_parted(r->port, r->fd);
}

static void take_call(struct accept *a) {
    struct rpc *r = rpc_of(a);
    struct rpc_refusal no = {0};
    if (!r) {
        grpc_call_cancel(a->call, NULL);
        grpc_call_unref(a->call);
        return;
    }
    if (r->server->n_rpcs > CALLS_MAX)
        no = (struct rpc_refusal){GRPC_STATUS_RESOURCE_EXHAUSTED, "too many calls are open", 1000};
    else if (r->server->state != SERVING && !is_promised(r))
        no = closing, r->late = true;
    else if (!r->method)
        no = (struct rpc_refusal){GRPC_STATUS_UNIMPLEMENTED, "this method is not served here", 0};
    else
        no = caller_admit(r, &a->metadata);
    if (!rpc_start(r)) return;
    if (!no.status) no = share_enter(&r->server->shares, r);
    if (no.status) rpc_refuse(r, no);
}

static void next_call(struct accept *a);

static void on_call(struct event *e, bool ok) {
    struct accept *a = (struct accept *)e;
    if (ok) take_call(a);
    grpc_call_details_destroy(&a->details);
    grpc_metadata_array_destroy(&a->metadata);
    if (ok && a->server->state <= DRAINING) next_call(a);
}

static void next_call(struct accept *a) {
    struct rpc_server *g = a->server;
    a->event.done = on_call;
    grpc_call_details_init(&a->details);
    grpc_metadata_array_init(&a->metadata);
    grpc_call_error rc = grpc_server_request_call(g->server, &a->call, &a->details, &a->metadata,
                                                  g->events.queue, g->events.queue, &a->event);
    if (rc != GRPC_CALL_OK)
        log_error("grpc.request_call", "error=\"%s\"", grpc_call_error_to_string(rc));
}

// --- connections ---

static void on_connection(void *ctx, int fd) {
    struct rpc_server *g = ctx;
    grpc_server_add_channel_from_fd(g->server, fd, g->credentials);
}

// Ends a call whose client reads too slowly, or does not send its message.
static void check_call(struct rpc_server *g, struct rpc *r, int64_t now_us) {
    const struct serve_config *c = g->service->config;
    int64_t rest = (int64_t)g->longest - c->max_message_bytes;
    int64_t receive_us = RECEIVE_US +
                         c->max_message_bytes * INT64_C(1000000) / RECEIVE_BYTES_PER_SECOND +
                         rest * INT64_C(1000000) / RECEIVE_LONG_BYTES_PER_SECOND;
    if (r->out_us && now_us - r->out_us > (int64_t)(c->slow_reader_timeout * 1e6)) {
        metric_add(g->service->metrics.slow_readers, 1);
        rpc_cancel(r, GRPC_STATUS_UNAVAILABLE, "the client reads too slowly");
    } else if (r->read_us && !r->method->streams && now_us - r->read_us > receive_us) {
        rpc_cancel(r, GRPC_STATUS_DEADLINE_EXCEEDED, "the call's message did not come");
    }
}

static void on_tick(uv_timer_t *handle) {
    struct rpc_server *g = handle->data;
    struct rpc *r;
    int64_t now_us = net_now_us();
    DL_FOREACH(g->rpcs, r) check_call(g, r, now_us);
}

void rpc_server_reloaded(struct rpc_server *g) {
    struct rpc *r, *next;
    if (!g) return;
    bool cancels = g->service->config->on_token_removed == SERVE_TOKEN_CANCEL;
    DL_FOREACH_SAFE(g->rpcs, r, next) {
        if (!caller_lost_token(r)) continue;
        if (cancels)
            rpc_cancel(r, GRPC_STATUS_UNAUTHENTICATED, "the token was removed");
        else if (r->state == RPC_OPEN && r->method->streams)
            r->method->closing(r);
    }
}

// --- the end ---

// gRPC's C core has no call that sends GOAWAY and still answers: from grpc_server_shutdown_and_notify on, it ends each
// call that a client sent before it read the GOAWAY as CANCELLED, and its own end of a connection is a GOAWAY with
// INTERNAL_ERROR, which clients report for the calls under way. Clients retry neither, nor do they retry UNAVAILABLE by
// default. So the tunnel of a connection sends a GOAWAY (ws/net/goaway.h), behind which gRPC gets no further call:
//
//   SERVING: rpc_server_part: no new connections, GOAWAY to each client; calls that had come are served
//   -> DRAINING: clients end their streams, after QUIET_US the server does; calls of a client that could not be told yet
//      are UNAVAILABLE
//   -> STOPPING: connections that are left are cut, before gRPC can say more; its calls are cancelled
//   -> ENDED

static void on_ended(struct event *e, bool ok) {
    struct rpc_server *g = (struct rpc_server *)((char *)e - offsetof(struct rpc_server, ended));
    g->state = ENDED;
}

void rpc_server_part(struct rpc_server *g) {
    if (!g || g->state != SERVING) return;
    guest_port_stop_listening(g->port);
    guest_port_part(g->port);
}

static void begin_drain(struct rpc_server *g) {
    g->state = DRAINING;
    g->busy_us = net_now_us();
    g->streams_us = g->busy_us + QUIET_US;
}

// A client ends its stream behind its last request, often after it has all answers: an earlier end would fail the stream.
static void end_streams(struct rpc_server *g) {
    struct rpc *r, *next;
    g->streams_us = 0;
    DL_FOREACH_SAFE(g->rpcs, r, next)
    if (r->state == RPC_OPEN && r->method && r->method->streams) r->method->closing(r);
}

static bool serves(const struct rpc_server *g) {
    const struct rpc *r;
    DL_FOREACH(g->rpcs, r) if (!r->late) return true;
    return false;
}

bool rpc_server_drain(struct rpc_server *g) {
    if (!g) return true;
    if (g->state == SERVING) begin_drain(g);
    if (g->state != DRAINING) return true;
    if (g->streams_us && net_now_us() > g->streams_us) end_streams(g);
    if (serves(g)) g->busy_us = net_now_us();
    return !serves(g) &&
           (guest_port_connections(g->port) == 0 || net_now_us() - g->busy_us > QUIET_US);
}

void rpc_server_stop(struct rpc_server *g) {
    if (!g || !g->port) return;
    uv_timer_stop(&g->tick);
    guest_port_stop_listening(g->port);
    guest_port_cut(g->port);
    g->state = g->server ? STOPPING : ENDED;
    if (g->server) {
        g->ended.done = on_ended;
        grpc_server_shutdown_and_notify(g->server, g->events.queue, &g->ended);
        grpc_server_cancel_all_calls(g->server);
    }
    while (g->state != ENDED || g->n_rpcs > 0) events_take(&g->events, true);
    guest_port_close(g->port);
    g->port = NULL;
    if (g->server) grpc_server_destroy(g->server);
    g->server = NULL;
    events_stop(&g->events);
}

void rpc_server_close(struct rpc_server *g) {
    if (!g) return;
    if (g->credentials) grpc_server_credentials_release(g->credentials);
    events_release(&g->events);
    grpc_shutdown_blocking();
    shares_release(&g->shares);
    free(g);
}

// --- the beginning ---

static void on_log(gpr_log_func_args *args) {
    char quoted[1200];
    log_debug("grpc.log", "message=%s", log_quote(quoted, sizeof quoted, args->message));
}

static grpc_arg number(const char *key, int64_t value) {
    int capped = value > INT32_MAX ? INT32_MAX : (int)value;
    return (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)key, .value.integer = capped};
}

// When the models are known, since they limit messages. gRPC does not unpack messages: one could become a thousand
// times as long. rpc.c does, up to a limit.
static void create_server(struct rpc_server *g) {
    const struct serve_config *c = g->service->config;
    grpc_resource_quota *memory = grpc_resource_quota_create("parley");
    bool alone = !auth_needs_token(g->service->net->auth);
    g->longest =
        alone || c->max_infer_bytes ? kserve_infer_bytes(g->service) : (size_t)c->max_message_bytes;
    size_t n_long = g->longest <= (size_t)c->max_message_bytes ? 0
                    : alone                                    ? LONG_BODIES
                                                               : SHARE_LONG_MESSAGES;
    g->shares.long_messages = n_long > 0 && !alone;
    grpc_resource_quota_resize(
        memory, SHARE_MEMORY + (size_t)c->max_message_bytes * SHARE_MESSAGES + g->longest * n_long);
    grpc_arg args[] = {
        {.type = GRPC_ARG_POINTER,
         .key = (char *)GRPC_ARG_RESOURCE_QUOTA,
         .value.pointer = {memory, grpc_resource_quota_arg_vtable()}},
        number(GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, (int64_t)g->longest),
        number(GRPC_ARG_MAX_CONCURRENT_STREAMS, STREAMS_MAX),
        number(GRPC_ARG_KEEPALIVE_TIME_MS, (int64_t)(c->ping_interval * 1000)),
        number(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, (int64_t)(c->ping_interval * 1000)),
        number(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1),
        // A call may wait for long without data. Our pings go on meanwhile, and so may the client's: by default gRPC
        // ends a connection that pings more than once in five minutes.
        number(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0),
        number(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, FASTEST_PINGS_MS),
        number(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
               1 << GRPC_COMPRESS_NONE | 1 << GRPC_COMPRESS_DEFLATE | 1 << GRPC_COMPRESS_GZIP),
        number(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0),
        number(GRPC_ARG_HTTP2_BDP_PROBE,
               0), // a call that waits (share.h) receives one window at most
    };
    grpc_channel_args all = {sizeof args / sizeof *args, args};
    g->server = grpc_server_create(&all, NULL);
    grpc_resource_quota_unref(memory);
    g->credentials = grpc_insecure_server_credentials_create(); // TLS ends before it (tunnel.h)
    grpc_server_register_completion_queue(g->server, g->events.queue, NULL);
    grpc_server_start(g->server);
}

int rpc_server_open(struct rpc_server **out, struct service *s, struct err *err) {
    int rc;
    struct net *n = s->net;
    *out = NULL;
    if (s->config->grpc_port < 0) return 0;
    struct rpc_server *g = calloc(1, sizeof *g);
    if (!g) return err_set(err, E_NOMEM, "no memory for the port of gRPC");
    g->service = s;
    TRY_GOTO(no_port,
             guest_port_open(&g->port, n, (int)s->config->grpc_port, on_connection, g, err));
    TRY_GOTO(no_library, lazy_open(&grpc_lazy, err));
    gpr_set_log_function(on_log);
    grpc_init();
    TRY_GOTO(no_events, events_open(&g->events, &n->loop, err));
    uv_timer_init(&n->loop, &g->tick);
    g->tick.data = g;
    for (int i = 0; i < ACCEPTS; i++) g->accepts[i].server = g;
    *out = g;
    return 0;

no_events:
    events_release(&g->events);
    grpc_shutdown_blocking();
no_library:
    guest_port_close(g->port);
no_port:
    free(g);
    return rc;
}

int rpc_server_start(struct rpc_server *g, struct err *err) {
    if (!g) return 0;
    create_server(g);
    for (int i = 0; i < ACCEPTS; i++) next_call(&g->accepts[i]);
    uv_timer_start(&g->tick, on_tick, TICK_MS, TICK_MS);
    return guest_port_start(g->port, err);
}

int rpc_server_port(const struct rpc_server *g) {
    return g ? guest_port_number(g->port) : 0;
}

const char *rpc_server_version(void) {
    return lazy_open(&grpc_lazy, NULL) == 0 ? grpc_version_string() : NULL;
}
