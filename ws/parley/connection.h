// One WebSocket: its state, what arrived of a message, what waits to be sent. Events of sessions
// are not queued here: they are pulled, one frame per writable callback, when everything else has
// been sent. Net thread only.
#pragma once
#include "ws/net/server.h"

struct connection;

// owner is taken; NULL: not authorised yet. E_NOMEM.
int connection_open(struct peer *p, char *owner);
void connection_close(struct connection *c); // the socket is gone: frees
uint64_t connection_client(const struct connection *c);

// From libwebsockets: 0, or -1 when it shall close the connection.
int connection_receive(struct connection *c, const char *bytes, size_t len);
int connection_writable(struct connection *c);
int connection_peer_closes(const struct connection *c); // a close frame came
void connection_gate_readable(struct connection *c); // the first frame's bytes wait in the socket

// From the session service.
void connection_answer(struct connection *c, const struct session_answer *a);
void connection_ready(struct connection *c, struct session *s);
// after sessions_poll, once for each that server_push_later took
void connection_push(struct connection *c);
void connection_progress(struct connection *c, struct session *s, int64_t turn, int64_t done,
                         int64_t total);
void connection_stalled(struct connection *c, struct session *s, const char *reason);
void connection_gone(struct connection *c, struct session *s);
void connection_changed(struct connection *c, const char *owner, const struct session_view *view,
                        bool removed);

// From the server's timers.
void connection_tick(struct connection *c, int64_t now_us); // deadlines
void connection_flush_changed(struct connection *c,
                              int64_t now_us);       // coalesced session.changed are due
bool connection_drained(const struct connection *c); // nothing waits to be sent
// Says goodbye: sends what is queued (except to slow readers), then the close frame; kills the
// socket when that does not end in time.
void connection_end(struct connection *c, int code, const char *reason);
