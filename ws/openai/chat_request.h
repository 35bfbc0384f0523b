// The body of a chat completion: read, checked, and turned into a neutral request. Any thread.
#pragma once
#include "ws/completion/http_completion.h"
#include "ws/openai/failure.h"

struct chat_request {
    struct http_completion_request in; // first
    bool include_usage;
    size_t n;    // answers
    cJSON *json; // while it is read
};

// For http_completion_request_free. NULL only without memory: for a refused request, in.failure says why.
struct chat_request *chat_request_read(const struct service *s, const struct http_payload *p);
// Of a failure of its completion: the member at fault as the request names it.
void chat_name_param(struct completion_failure *f);
