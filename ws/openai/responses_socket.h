// The Responses API over a WebSocket, at the address of POST /v1/responses and without a sub-protocol.
// user is the struct service.
//
// The client sends {"type":"response.create", ...} with the members of the POST and a `stream_id`; the
// server sends the events of a stream, each with that stream_id, or
//     {"type":"error","status":400,"stream_id":..,"error":{"type","code","message","param"}}
// Requests of one stream_id are served in their order, those of others side by side; 16 may be under way.
// A response that is not stored dies with its socket. The upgrade's headers may name a session, as a POST's
// (responses_request_name).
// Close codes: 1012 the server ends, 1013 it is overloaded: the client connects again. 1003, 1009, 1011,
// 4001 to 4003 as /ws has them (PROTOCOL.md).
#pragma once
#include "ws/net/websocket.h"

extern const struct websocket_protocol responses_socket_protocol;
