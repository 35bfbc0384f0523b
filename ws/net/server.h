// The server: one thread, one libuv loop, and libwebsockets 4.1.6 or newer as a guest on it. It
// owns every socket, connection and timer of the wire and calls the session service; README.md has
// the rules. Everything here runs on the net thread but server_wake.
#pragma once
#include "base/metrics.h"
#include "ws/net/auth.h"
#include "ws/net/ip_table.h"
#include "ws/parley/protocol.h"
#include "ws/serve_config.h"
#include <libwebsockets.h>
#include <uv.h>

struct connection;
struct listener;
struct server;

#define SERVER_CHUNK_BYTES                                                                         \
    32768 // most bytes of one lws_write: it copies what a socket does not take

// What is waiting to be written for one HTTP request.
struct http_reply {
    const unsigned char *body;
    unsigned char *owned; // free()d with the reply; NULL for the embedded page
    size_t len, sent;
    bool close, linger; // afterwards: close; first read and drop what the client still sends
};

// One accepted socket, from accept to close. HTTP until it is upgraded.
struct peer {
    struct server *server;
    struct lws *wsi;
    struct peer *prev, *next;               // server->peers
    struct peer *flight_prev, *flight_next; // server->in_flight, while flying
    struct ip_entry *ip;
    struct connection *connection; // after the upgrade
    char *owner; // from the upgrade request's token, until the connection takes it
    struct http_reply reply;
    bool flying, lingering, counted, adopting, destroyed;
};

struct server_metrics {
    struct metric *connections, *accepted, *refused_total, *refused_ip, *websockets;
    struct metric *messages_in, *frames_out, *bytes_out, *errors_out;
    struct metric *slow_readers, *rate_limited, *http_2xx, *http_4xx, *http_5xx, *token_to_socket;
};

struct server {
    const struct serve_config *config;
    struct engine *engine;
    struct sessions *sessions;
    struct auth *auth;
    struct metrics *registry;
    struct server_metrics metrics;
    struct protocol_hello hello;

    uv_loop_t loop;
    uv_poll_t wake; // wake_fd: the engine's and the store's threads ring
    int wake_fd;
    bool ringing; // and nobody has looked yet; atomic
    uv_timer_t poll_timer, tick, watch_timer,
        drain_timer;      // session service; deadlines; session.changed; the end
    uv_prepare_t prepare; // once per turn-round of the loop, before it waits
    uv_signal_t sigterm, sigint, sighup;
    uv_poll_t gate; // gate_fd: sockets whose first frame has not been looked at
    int gate_fd;
    uv_idle_t awake; // while it is active the loop does not sleep
    int64_t awake_until_us;
    bool sessions_dirty; // the session service has something to do
    bool polling;        // inside sessions_poll
    uint64_t *fresh;     // (cap_fresh) clients to push to when it returns
    size_t n_fresh, cap_fresh;
    int64_t start_us, sweep_us;

    struct lws_context *context;
    struct lws_vhost *vhost;
    struct ssl_ctx_st *ssl; // of vhost, for new certificates; NULL without TLS
    struct listener *listener;
    struct ip_table ips;
    struct peer *peers, *in_flight;
    int64_t n_peers;
    struct connection **slots; // (n_slots) by the low bits of a client's number
    size_t n_slots, n_connections, next_slot;
    uint64_t next_client;
    struct buf tx; // LWS_PRE bytes, then what one lws_write sends

    enum { SERVER_RUNNING, SERVER_DRAINING, SERVER_CLOSING } state;
    int64_t drain_until_us, close_until_us;
    int n_signals;
    bool forced, device_lost;
    lws_retry_bo_t retry;
};

// Loop, tokens and the port's address: what can go wrong before a model is loaded, and enough for
// server_wake, which the engine and the sessions want when they are opened.
int server_open(struct server **out, const struct serve_config *config, struct metrics *registry,
                struct err *err);
// Any thread: the session service has something to take in.
void server_wake(void *server);
void server_callbacks(struct server *s, struct sessions_callbacks *out);
// Opens the port; server_run serves it. hello: what clients are told.
int server_listen(struct server *s, struct engine *engine, struct sessions *sessions,
                  const struct protocol_hello *hello, struct err *err);
const char *server_url(const struct server *s, char *out, size_t cap);
// Serves until SIGTERM or SIGINT has been obeyed. 0 after a drain, E_CANCELLED after a second
// signal, E_DEVICE where the engine's device failed: everybody has been told then, as in a drain.
int server_run(struct server *s);
// Closes every socket. The session service and the engine are closed after it: they hear of every
// client that went, and may still ring.
void server_stop(struct server *s);
void server_close(struct server *s); // frees; nobody rings any more

// --- for the other files of this folder ---
int64_t server_now_us(void);
void server_touch_sessions(struct server *s); // after any sessions_* call: timers may have changed
struct connection *server_find(struct server *s, uint64_t client); // NULL when it is gone
bool server_push_later(struct server *s,
                       struct connection *c); // false: not inside sessions_poll, or no memory
uint64_t server_add(struct server *s,
                    struct connection *c); // its number, never given again; 0: no memory
void server_remove(struct server *s, struct connection *c);
void server_start_watch_timer(struct server *s, int64_t ms);
void server_fly(struct peer *p, bool flying); // in or out of in_flight
void server_free_peer(struct peer *p);        // its socket is gone
void server_kill(struct peer *p);             // ends the socket soon, without a close frame
// Sends the first len bytes behind LWS_PRE of s->tx.
int server_write(struct peer *p, size_t len, enum lws_write_protocol how);
struct buf *server_tx(struct server *s); // s->tx, emptied to its LWS_PRE bytes
