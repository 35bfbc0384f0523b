// The state of a connection's HTTP, shared by its receiving side (http.c, http_judge.c) and its sending side
// (http_send.c). Only these three include it.
#pragma once
#include "base/workers.h"
#include "ws/net/channel.h"
#include "ws/net/http.h"
#include "ws/net/http_body.h"
#include "ws/net/long_body.h"
#include "ws/net/peer.h"

#define KEEP_BYTES 4096 // a larger buffer is freed when it is empty

struct decoding { // a body on its way through a worker
    struct work work;
    struct http *h;            // NULL: the client is gone
    const struct owner *owner; // http_payload
    const struct http_route *route;
    void *user;
    char path[HTTP_PATH_BYTES], json_length[32]; // http_payload
    struct buf data;
    struct long_body counted; // when the client is gone
    bool zipped;
    size_t unpacked_max;
    int rc;
    void *decoded;
};

struct http {
    struct peer *peer;
    struct net *net;
    struct channel channel;
    int watching;
    uv_poll_t poll;
    uv_poll_cb on_event;
    enum {
        READING_HEAD,
        READING_BODY,
        DECODING,
        WAITING,
        REPLYING,
        STREAMING,
        LINGERING,
        CLOSED
    } state;
    int64_t deadline_us; // by net_served_us, as all times here; 0: none
    struct rate rate;
    struct buf in; // read, not taken yet
    bool eof, processing, served;

    // the request
    char *head_text; // head's strings
    struct http_head head;
    const struct http_route *route; // NULL before it is known
    bool serves;                    // the route has the request's method
    bool authorised;                // the peer's owner is this request's too
    struct http_body body;
    size_t longest;           // how long the body may be
    struct long_body counted; // if it is long
    struct decoding *decoding;
    void *decoded;

    // the reply
    struct buf out; // a head, and what is streamed
    size_t out_sent;
    const char *bytes; // (n_bytes) behind out
    void *owned;       // free()d with the reply
    size_t n_bytes, n_sent;
    const struct http_waiter *waiter;
    void *waiter_ctx;
    int64_t blocked_us;  // since when the socket takes nothing; 0: it does
    int64_t streamed_us; // when the stream was last written to
    bool closes, chunked, starved;
};

void http_set_deadline(struct http *h, int64_t us); // from now; 0: none
// Tells the loop which events to watch for, by state.
void http_watch(struct http *h);
// Whether the client's bytes are read while its answer is awaited or streamed: its end may be among them.
bool http_reads_ahead(const struct http *h);
size_t http_unsent(const struct http *h); // bytes of `out` that wait
// Sends as much as the socket takes. 1: everything is sent, 0: the socket is full, -1: it is broken.
int http_flush(struct http *h);
// Replies with an error and closes: the bytes that follow cannot be trusted to be a request.
void http_refuse(struct http *h, struct http_refusal r);

// --- http_judge.c

// Finds the request's route, as far as its head was read: refusals have the route's form.
void http_find_route(struct http *h);
// Checks the request's method and token, and counts its body. A refusal without status: it may be read.
struct http_refusal http_judge(struct http *h);
bool http_has_body(const struct http *h);
// Whether the route takes bodies longer than a message.
bool http_takes_long_body(const struct http *h);
// Counts a body of this length (long_body.h), if the route takes long ones.
struct http_refusal http_count_body(struct http *h, size_t bytes);
struct http_refusal http_too_long(struct http *h, const char *body); // 413; body: "body"
