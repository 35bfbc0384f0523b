// WebSockets by libwebsockets. It is given a socket whose request was read and judged (http.c), and
// a head of our own words with the client's key in it, so that its HTTP parser sees nothing else.
// Net thread only.
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

struct websocket_piece { // of a message, as it arrives
    const char *bytes;
    size_t len;
    bool first, last, binary;
    bool frame_ends;
};

// What a protocol over WebSocket brings. ws: the object that open made. An int return of -1 ends
// the socket.
struct websocket_protocol {
    const char *path;                          // of the upgrade
    const char *name;                          // the sub-protocol; NULL: none is asked for
    bool guarded;                              // where tokens are in use, the upgrade needs one
    void *(*open)(void *user, struct peer *p); // NULL: no memory
    void (*close)(void *ws);                   // the socket is gone: frees
    int (*receive)(void *ws, const struct websocket_piece *piece);
    void (*control_frame)(void *ws); // a ping or a pong came (pings that arrive together: once)
    int (*writable)(void *ws);
    int (*client_closes)(void *ws);         // a close frame came
    void (*unmasked)(void *ws);             // the first frame has no mask
    void (*no_hello)(void *ws);             // no token came within hello_timeout
    void (*lost_token)(void *ws);           // its token was removed from the file
    void (*tick)(void *ws, int64_t now_us); // about every second
};

int websocket_open(struct net *n, struct err *err);
void websocket_stop(struct net *n); // with every WebSocket; the loop turns meanwhile
// upgrade.c: whether a request may become a WebSocket (status 0), by its address, headers, Origin and
// token. A valid token makes the connection its owner's.
// It speaks p->protocol from now on.
struct http_refusal upgrade_judge(struct peer *p, const struct http_head *h);
// Hands p's socket over. p is freed with the socket, at once where that fails.
void websocket_adopt(struct peer *p, int fd, const char *key);

struct buf *websocket_tx(struct net *n); // net's tx, emptied to its LWS_PRE bytes
// Sends the first len bytes of tx behind LWS_PRE. -1: the socket is broken.
int websocket_write_text(struct peer *p, size_t len, bool first, bool last);
int websocket_write_close(struct peer *p, size_t len);
void websocket_want_write(struct peer *p); // writable() comes when the socket takes more
bool websocket_choked(struct peer *p);
// Nothing is read from the client while a reason not to is on.
enum websocket_pause { PAUSE_GATE = 1, PAUSE_OUTPUT = 2, PAUSE_WORK = 4 };
void websocket_pause(struct peer *p, enum websocket_pause reason, bool on);
void websocket_kill(struct peer *p); // ends the socket soon, without a close frame
