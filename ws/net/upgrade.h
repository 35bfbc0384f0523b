// Whether a request may become a WebSocket: its address, its headers, its Origin and its token.
#pragma once
#include "ws/net/http_head.h"
#include "ws/net/net.h"

// status 0: it may. *owner (the caller frees it) is set when a valid token came.
struct http_refusal upgrade_judge(const struct net *n, const struct http_head *h, char **owner);
