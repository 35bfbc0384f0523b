// parley.v1 over a WebSocket: what arrived of a message, what waits to be sent, and the sessions it
// follows. Events of sessions are not queued here: they are pulled when everything else has been
// sent. user is the struct service. Net thread only.
#pragma once
#include "ws/net/websocket.h"

extern const struct websocket_protocol connection_protocol;
