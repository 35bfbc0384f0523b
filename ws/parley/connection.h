// parley.v1 over a WebSocket: the message that arrives, the messages that wait to be sent, and the sessions
// that the connection follows. Events of sessions are not queued here: they are pulled when everything else
// has been sent. user is the struct service. Net thread only.
#pragma once
#include "ws/net/websocket.h"

extern const struct websocket_protocol connection_protocol;
