// The body of a chat completion: read, checked, and turned into a neutral request by openai_chat_decode. Any
// thread.
#pragma once
#include "ws/completion/http_completion.h"
#include "ws/openai/failure.h"

struct chat_request {
    struct http_completion_request in; // first
    bool include_usage;
    size_t n;    // answers
    cJSON *json; // while it is read
};

// Of a failure of its completion: the member at fault as the request names it.
void chat_name_param(struct completion_failure *f);
