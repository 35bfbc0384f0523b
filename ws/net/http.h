// HTTP/1.1: requests with bodies, whole replies, replies that come later, and streamed ones. One
// request of a connection is served at a time; pipelined requests wait unread. Net thread only, except
// decode().
//
// A route's handle() is called with the whole body. It answers at once (http_reply...), or begins a
// stream (http_stream), or answers later (http_wait). After http_wait or http_stream, exactly one of two
// things ends the exchange: the handler's last call (http_reply, http_stream_end), or client_gone().
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

struct http;

#define HTTP_METHOD(m) (1u << (m))
#define HTTP_BODY_AS_MESSAGES                                                                      \
    SIZE_MAX                  // max_body: as long as a WebSocket message (max_message_bytes)
#define HTTP_ROOM_BYTES 16384 // a stream with fewer unsent bytes has room

struct http_payload { // the parts of a request that decode() reads
    const char *path;
    const char *json_length; // Inference-Header-Content-Length, "" when absent
    const char *body;        // (len)
    size_t len;
    const struct owner *owner; // the token's: its name and number; NULL: none
};

struct http_error {
    int status;
    const char *code, *message;
    int64_t retry_after_ms; // 0: none
};

struct http_route {
    const char *path; // with '*' at its end: a prefix. NULL: all other paths, in the last row
    bool (*is_here)(const char *path); // which of these paths exist; NULL: all
    enum http_header only_with;        // serves only requests with this header; 0 (Host): all
    // HTTP_METHOD(HTTP_GET) serves HEAD too. 0: nothing is here, which is a 404 in this row's form.
    unsigned methods;
    bool guarded;    // needs a token if the server has a token file
    bool admin;      // with guarded: an administrator's token
    size_t max_body; // 0: takes no body
    // Instead of max_body, where it depends on the path; NULL: it does not.
    size_t (*longest_body)(void *user, const char *path);
    enum long_kind long_kind; // what a body longer than max_message_bytes is
    bool body_optional;       // serves a POST without Content-Length, which has no body
    void (*handle)(void *user, struct http *h);
    // Makes what handle() finds in http_decoded. A long body is decoded on a worker's thread, so this function may read
    // only its arguments. A route without a body uses it for work that blocks (is_costly). Returns NULL without memory.
    void *(*decode)(void *user, const struct http_payload *p);
    // Whether a short body is a worker's too; NULL: none is.
    bool (*is_costly)(const char *body, size_t len);
    void (*release)(void *decoded);
    // Writes this route's form of an error; NULL: {"error":{"code","message"}}.
    void (*write_error)(struct buf *out, int status, const char *code, const char *message);
    // Instead of write_error, for routes with headers of their own: writes the body and, to extra, header
    // lines, and may change the status and retry_after_ms of *e.
    void (*shape_error)(struct http *h, struct http_error *e, struct buf *body, struct buf *extra);
    // Writes header lines of every reply, also of refusals before its token is known (http_is_authorised);
    // NULL: none.
    void (*put_headers)(const struct http *h, struct buf *out);
};

struct http_waiter { // called while a reply is under way
    void (*client_gone)(void *ctx);
    void (*writable)(void *ctx); // a stream has room again
    // What a stream sends when it has said nothing for 15 seconds, since proxies cut what is silent for a
    // minute; NULL: nothing
    const char *ping;
};
#define HTTP_EVENTS_PING ": ping\n\n" // a comment, in a stream of events
#define HTTP_EVENTS_HEADERS "cache-control: no-cache\r\nx-accel-buffering: no\r\n"

void http_open(struct peer *p, int fd); // takes both; frees p with the socket
void http_tick(struct http *h,
               int64_t now_us); // about every second: deadlines and pings. May close h
// At once, without a reply; client_gone() comes if a reply was under way. Frees h and its peer.
void http_close(struct http *h);
void http_lost_token(struct http *h); // closes it, at once or after the reply (on_token_removed)

// --- for handlers ---
const char *http_path(const struct http *h);      // decoded, without the query; borrowed
enum http_method http_verb(const struct http *h); // HTTP_HEAD too, where the route has HTTP_GET
// A parameter of the query, decoded; false: it is missing or too long.
bool http_query(const struct http *h, const char *name, char *out, size_t cap);
const char *http_header(const struct http *h, enum http_header name); // "" when absent
const struct http_head *http_request_head(const struct http *h);      // borrowed
// The name of the token's owner; AUTH_LOCAL if the server needs no token. NULL: no token came yet.
const char *http_owner(const struct http *h);
const struct peer *http_peer(const struct http *h);
bool http_is_authorised(const struct http *h); // the peer's owner has sent this request
void *http_decoded(const struct http *h);      // released with the exchange
void *http_take_decoded(struct http *h);       // now the caller's

// extra: further header lines, each with CR LF. body: free()d if owned, else it must outlive the connection.
void http_reply(struct http *h, int status, const char *type, const char *extra, const void *body,
                size_t len, bool owned);
void http_reply_buf(struct http *h, int status, const char *type, const char *extra,
                    struct buf *body); // takes body's bytes
void http_reply_json(struct http *h, int status,
                     struct buf *body);           // takes body, which no cache stores
void http_add_retry(struct buf *out, int64_t ms); // the header lines of a time; none for 0
void http_reply_error(struct http *h, int status, const char *code, const char *message,
                      int64_t retry_after_ms /* 0: none */);

// Answers later. w is borrowed until the exchange ends.
void http_wait(struct http *h, const struct http_waiter *w, void *ctx);
// Begins a reply of status 200 whose length is not known; extra as in http_reply, w as in http_wait. type is
// copied.
void http_stream(struct http *h, const char *type, const char *extra, const struct http_waiter *w,
                 void *ctx);
// False: writable() will come when there is. The stream takes bytes without room too, and keeps them in memory.
bool http_stream_has_room(const struct http *h);
void http_stream_write(struct http *h, const void *bytes, size_t len); // copied; nothing for len 0
void http_stream_buf(struct http *h, struct buf *b);                   // writes b, and releases it
void http_stream_end(struct http *h);                                  // no callback of w follows
bool http_is_replying(const struct http *h); // bytes of a reply wait for the client to read
