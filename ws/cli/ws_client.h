// A WebSocket client for the terminal: its own thread keeps the connection alive (pings are
// answered while a person thinks), two queues carry frames, and the caller's code reads top to
// bottom.
#pragma once
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

struct ws_client;

// url: ws://host:port/path or wss://... ; token may be NULL. Waits until the connection stands or
// failed (E_IO, E_DENIED, E_TIMEOUT with a sentence).
int ws_client_open(struct ws_client **out, const char *url, const char *token, struct err *err);
void ws_client_close(struct ws_client *c);
// Sends one text frame (copied). E_CLOSED when the connection is gone.
int ws_client_send(struct ws_client *c, const char *text, size_t len);
// The next frame, NUL-terminated: free() it. 1 with a frame, 0 after timeout_us, E_CLOSED when the
// connection is gone and nothing is left to read.
int ws_client_receive(struct ws_client *c, char **text, size_t *len, int64_t timeout_us);
