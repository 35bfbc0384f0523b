// The network: one libuv loop, the port, its sockets, TLS, HTTP, and libwebsockets as a guest for
// WebSockets. It knows no protocol: routes and the WebSocket protocol are tables that are given to
// it (http.h, websocket.h). Everything here belongs to the net thread. README.md has the rules.
#pragma once
#include "base/buf.h"
#include "base/clock.h"
#include "base/metrics.h"
#include "base/rate.h"
#include "ws/net/auth.h"
#include "ws/net/bell.h"
#include "ws/net/gate.h"
#include "ws/net/ip_table.h"
#include "ws/net/lockout.h"
#include "ws/net/tcp_watch.h"
#include "ws/serve_config.h"
#include <uv.h>

struct http;
struct http_route;
struct listener;
// libwebsockets' header brings OpenSSL's: 14,000 lines, for websocket.c alone.
struct lws;
struct lws_context;
struct lws_protocols;
struct lws_vhost;
struct tunnel;
struct websocket_protocol;
struct workers;

// A message or body counts once more for each of so many bytes (long_body.h).
#define NET_RATE_BYTES 65536
// Units of net.request_limit: a tenth of a WebSocket message.
#define NET_COST_READ 1
#define NET_COST_WRITE 10
// Bytes in front of what one write sends: libwebsockets puts a frame's header there.
#define NET_TX_ROOM 16
#define NET_CHUNK_BYTES 32768 // most bytes of one write: libwebsockets copies what is not taken

struct net_metrics {
    struct metric *connections, *accepted, *refused_total, *refused_ip, *refused_unknown,
        *locked_out, *bytes_out;
    struct metric *round; // see README.md, rule 2
    struct metric *http_2xx, *http_4xx, *http_5xx, *http_limited;
};

// In order; each state also has the effect of the one before it.
enum net_life {
    NET_OPEN,
    NET_DRAINING, // a reply ends its connection, so that the client's next request goes to another server
    NET_CLOSING, // new WebSockets are refused
};

struct net {
    const struct serve_config *config;
    struct auth *auth;
    struct owners owners;
    struct lockout lockout;
    struct err refusal;      // the last refusal by a limit, whose sentence names the limit
    struct workers *workers; // lanes are peers' numbers, groups those of owners
    struct net_metrics metrics;
    uv_loop_t loop;
    uv_timer_t tick;   // deadlines
    int64_t ticked_us; // when it came last
    int64_t served_us; // net_served_us
    uv_timer_t hello;  // while WebSockets wait for a token
    uv_check_t round;
    int64_t round_us; // the thread's processor time when the last round began
    struct bell workers_bell;
    struct listener *listener;
    struct ip_table ips;
    struct peer *peers, *unknown; // all peers; those without a token yet, the oldest first
    int64_t n_peers, n_unknown, n_websockets;
    uint64_t last_peer;
    struct ssl_ctx_st *ssl; // NULL without TLS
    struct tunnel *tunnels;

    void *user; // given to routes and to the WebSocket protocol
    const struct http_route *routes;
    size_t n_routes;
    struct rate_limit request_limit;
    const struct websocket_protocol *const *websockets; // (n_websocket_protocols)
    size_t n_websocket_protocols;
    struct lws_protocols *lws_protocols; // (n_websocket_protocols + 2)
    struct lws_context *context;
    struct lws_vhost *vhost;
    uint64_t last_ping;    // never reused
    struct peer *adopting; // being handed to libwebsockets
    struct gate *gate;
    struct buf tx;                   // NET_TX_ROOM bytes, then what one write sends
    size_t long_bytes[N_LONG_KINDS]; // of long requests (long_body.h)
    enum net_life life;
};

struct peer_guest {
    void (*end)(struct peer_guest *g);
    void (*lost_token)(struct peer_guest *g);
};

// One accepted connection: HTTP first, then perhaps a WebSocket.
struct peer {
    struct net *net;
    struct peer *prev, *next; // net->peers
    uint64_t number;          // never reused
    struct ip_entry *ip;
    struct http *http;                         // until the upgrade
    struct lws *wsi;                           // after it
    const struct websocket_protocol *protocol; // of the upgrade
    void *asked;              // by its upgrade's headers (protocol->ask); freed with the peer
    void *websocket;          // the protocol's object
    struct peer_guest *guest; // another library's connection (guest.h)
    struct rate rate;         // of requests over `guest`
    struct auth_token as;     // its valid token; owner NULL: none yet
    struct peer *unknown_prev, *unknown_next; // net->unknown
    int32_t hello_ticks;                      // since the upgrade; websocket.c
    // Silence, by net_served_us (websocket_tick).
    int64_t heard_us;     // when the client last did something
    int64_t pinged_us;    // when the last ping was due
    int32_t pongs_due;    // pings sent that have no answer yet
    int tcp_fd;           // the client's own socket, below TLS; borrowed
    struct tcp_marks tcp; // of tcp_fd
    bool evicted;         // closed for a new connection, and not counted
    struct gate_entry gate;
    unsigned pauses; // reasons (websocket.h) not to read from the WebSocket
    bool wants_write, wants_ping, close_sent;
};

// The group of the peer's jobs (workers.h): its owner.
static inline uint64_t peer_group(const struct peer *p) {
    return p->as.owner ? p->as.owner->number : 0;
}

int64_t net_descriptors(const struct serve_config *c); // file descriptors for all connections
// Opens loop, tokens, certificates and the port's address: whatever can fail before a model is loaded.
int net_open(struct net **out, const struct serve_config *config, struct metrics *registry,
             struct err *err);
// Opens the port. The tables are borrowed until net_close.
int net_listen(struct net *n, const struct http_route *routes, size_t n_routes,
               const struct websocket_protocol *const *websockets, size_t n_websockets, void *user,
               struct err *err);
const char *net_url(const struct net *n, char *out, size_t cap);
// Reads tokens and certificates again; on an error the old ones stay. Connections whose token was
// removed end.
int net_reload(struct net *n, struct err *err);
void net_stop_listening(struct net *n);
bool net_is_replying(const struct net *n); // bytes of an HTTP reply wait for a client to read
void net_stop(struct net *n);              // closes every connection
void net_close(struct net *n);

// Counts an accepted connection against the limits and sets the socket's options. At a limit, it may close
// the oldest connection that has not shown a token. Errors are peer_new's; fd stays open.
int net_admit(struct net *n, struct peer **out, int fd, const struct sockaddr *addr);

// The real time, for measurements and rates. Time limits on peers use net_served_us.
static inline int64_t net_now_us(void) {
    return clock_mono_us(&clock_system);
}

// The clock of every time limit on a peer. It stands still while this thread does not run, and goes on after a tick has
// judged: between two ticks the loop reads, so no peer is late by what waited unread. Off by two ticks at most.
static inline int64_t net_served_us(const struct net *n) {
    return n->served_us;
}
