// A WebSocket client for the terminal. Its own thread answers pings while the user types; two
// queues carry frames, so that the caller's code can block. One thread of the caller's uses a client.
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

struct ws_client;

// url: ws://host:port/path or wss://...; token may be NULL. Waits until the connection is open or
// failed (E_IO, E_DENIED, E_TIMEOUT).
int ws_client_open(struct ws_client **out, const char *url, const char *token, struct err *err);
void ws_client_close(struct ws_client *c); // NULL is fine
// Sends one text frame (copied). E_CLOSED when the connection is gone.
int ws_client_send(struct ws_client *c, const char *text, size_t len);
// The next frame, NUL-terminated; the caller frees it. Returns 1 with a frame, 0 after timeout_us,
// E_CLOSED when the connection is closed and all frames are read.
int ws_client_receive(struct ws_client *c, char **text, size_t *len, int64_t timeout_us);
