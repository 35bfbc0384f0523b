// WebSockets by libwebsockets. http.c reads and checks the upgrade request. libwebsockets then gets the
// socket and a request head that we write, with the client's key, so that its HTTP parser never sees the
// client's bytes. Net thread only.
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

struct channel;

struct websocket_piece { // of a message, as it arrives
    const char *bytes;
    size_t len;
    bool first, last, binary;
    bool frame_ends;
};

// The callbacks of a protocol over WebSocket. ws: the object that open() returned. A return of -1 ends the
// socket.
struct websocket_protocol {
    const char *path; // of the upgrade
    const char *name; // the sub-protocol; NULL: none is asked for
    bool guarded;     // needs a token if the server has a token file
    // What open() needs of the upgrade's headers, in malloc's memory: p->asked. NULL: nothing.
    void *(*ask)(const struct http_head *h);
    void *(*open)(void *user, struct peer *p); // NULL: no memory
    void (*close)(void *ws);                   // the socket is gone: frees
    int (*receive)(void *ws, const struct websocket_piece *piece);
    void (*control_frame)(void *ws); // a ping or a pong came (pings that arrive together: once)
    int (*writable)(void *ws);
    int (*client_closes)(void *ws);         // a close frame came
    void (*unmasked)(void *ws);             // the first frame has no mask
    void (*no_hello)(void *ws);             // no token came within hello_timeout
    void (*lost_token)(void *ws);           // its token was removed from the file
    void (*tick)(void *ws, int64_t now_us); // about every second, by net_served_us
};

// Starts libwebsockets on n's loop, with the protocols of n's table. E_NOMEM; E_UNSUPPORTED: its plug-in for
// libuv is missing; E_IO.
int websocket_open(struct net *n, struct err *err);
void websocket_stop(struct net *n); // ends every WebSocket; runs the loop meanwhile
// upgrade.c: whether a request may become a WebSocket (status 0), by its address, headers, Origin and
// token. Sets the connection's owner by a valid token, p->protocol and p->asked.
struct http_refusal upgrade_judge(struct peer *p, const struct http_head *h);
// Hands p's socket to libwebsockets, under TLS through a tunnel. p is freed with the socket; on failure at once.
void websocket_adopt(struct peer *p, struct channel *channel /* taken */, const char *key);

struct buf *websocket_tx(struct net *n); // net's tx, empty but for its first NET_TX_ROOM bytes
// Sends the first len bytes of tx behind NET_TX_ROOM. -1: the socket is broken.
int websocket_write_text(struct peer *p, size_t len, bool first, bool last);
int websocket_write_close(struct peer *p, size_t len);
void websocket_want_write(struct peer *p); // writable() comes when the socket takes more
bool websocket_choked(struct peer *p);
// Nothing is read from the client while one of these reasons is on.
enum websocket_pause { PAUSE_GATE = 1, PAUSE_OUTPUT = 2, PAUSE_WORK = 4 };
void websocket_pause(struct peer *p, enum websocket_pause reason, bool on);
void websocket_kill(struct peer *p); // ends the socket soon, without a close frame
// About every second: the protocol's tick, or the end of one that answers no pings.
void websocket_tick(struct peer *p, int64_t now_us);
