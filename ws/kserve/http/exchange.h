// An inference over HTTP, from its request to its reply: tensors, a text, or a stream of text. Net thread only.
#pragma once
#include "ws/kserve/infer.h"
#include "ws/net/http.h"

// Takes r, which was not refused. Answers h, now or later.
void exchange_start(struct service *s, struct http *h, struct infer_request *r);
