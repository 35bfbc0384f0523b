// HTTP/1.1: requests with bodies, whole replies, replies that come later, and streamed ones. One
// request of a connection is served at a time; what is pipelined behind it waits unread. Net thread
// only, but for decode().
//
// A route's handle() is called with the whole body. It answers at once (http_reply...), or begins a
// stream (http_stream), or takes its time (http_wait) and answers later. From http_wait or
// http_stream on, exactly one of two things ends the exchange: the handler's last call (http_reply,
// http_stream_end), or client_gone().
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

struct http;

#define HTTP_METHOD(m) (1u << (m))
#define HTTP_BODY_AS_MESSAGES                                                                      \
    SIZE_MAX                  // max_body: as long as a WebSocket message (max_message_bytes)
#define HTTP_ROOM_BYTES 16384 // unsent bytes of a stream up to which it takes more

struct http_payload { // what decode() gets of a request
    const char *path;
    const char *json_length; // Inference-Header-Content-Length, "" when absent
    const char *body;        // (len)
    size_t len;
};

struct http_error {
    int status;
    const char *code, *message;
    int64_t retry_after_ms; // 0: none
};

struct http_route {
    const char *path; // ends in '*': all paths that begin so. NULL: all others; the last row
    enum http_header only_with; // serves requests with this header; 0 (Host): all
    unsigned methods;           // HTTP_METHOD(HTTP_GET) serves HEAD too
    bool guarded;               // where tokens are in use, one is needed
    bool admin;                 // and guarded: an administrator's
    size_t max_body;            // 0: none is taken
    void (*handle)(void *user, struct http *h);
    // For routes with a body: what handle() finds in http_decoded. A long body is decoded on a
    // worker's thread, so it reads nothing but its arguments. NULL: no memory.
    void *(*decode)(void *user, const struct http_payload *p);
    void (*release)(void *decoded);
    // Writes this route's form of an error; NULL: {"error":{"code","message"}}.
    void (*write_error)(struct buf *out, int status, const char *code, const char *message);
    // In place of write_error, where more than the body is the route's own: writes the body and, to
    // extra, header lines, and may change *e, whose status and retry_after_ms are sent then.
    void (*shape_error)(struct http *h, struct http_error *e, struct buf *body, struct buf *extra);
    // Writes header lines of every reply to a request whose owner is known, errors too; NULL: none.
    void (*put_headers)(const struct http *h, struct buf *out);
};

struct http_waiter { // of a reply that is under way
    void (*client_gone)(void *ctx);
    void (*writable)(void *ctx);             // a stream has room again
    void (*tick)(void *ctx, int64_t now_us); // about every second; NULL: not wanted
};

void http_open(struct peer *p, int fd); // both are its own; frees p with the socket
void http_tick(struct http *h, int64_t now_us);
void http_close(struct http *h);
void http_lost_token(struct http *h); // closes it, or behind the reply (on_token_removed)

// --- for handlers ---
const char *http_path(const struct http *h);
enum http_method http_verb(const struct http *h);
// A parameter of the query, decoded; false: there is none that fits.
bool http_query(const struct http *h, const char *name, char *out, size_t cap);
const char *http_header(const struct http *h, enum http_header name); // "" when absent
// Whose token came; AUTH_LOCAL where none is needed. NULL: none came yet.
const char *http_owner(const struct http *h);
const struct peer *http_peer(const struct http *h);
void *http_decoded(const struct http *h); // the exchange's; released with it
void *http_take_decoded(struct http *h);  // the caller's from now on

// extra: further header lines, each with CR LF. body is borrowed for good, or (owned) free()d.
void http_reply(struct http *h, int status, const char *type, const char *extra, const void *body,
                size_t len, bool owned);
void http_reply_buf(struct http *h, int status, const char *type, const char *extra,
                    struct buf *body); // takes body's bytes
void http_reply_error(struct http *h, int status, const char *code, const char *message,
                      int64_t retry_after_ms /* 0: none */);

void http_wait(struct http *h, const struct http_waiter *w, void *ctx);
void http_stream(struct http *h, const char *type, const char *extra, const struct http_waiter *w,
                 void *ctx);
bool http_stream_has_room(const struct http *h);
void http_stream_write(struct http *h, const void *bytes, size_t len);
void http_stream_end(struct http *h);
