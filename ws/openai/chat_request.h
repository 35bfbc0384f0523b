// The body of a chat completion: read, checked, and turned into a neutral request. Any thread.
#pragma once
#include "ws/completion/completion.h"
#include "ws/openai/failure.h"

struct chat_request {
    bool stream, include_usage;
    struct completion_failure failure;  // status 0: it is served
    struct completion_request *request; // completion_start takes it
    size_t n;                           // answers
    cJSON *json;                        // while it is read
};

// NULL only without memory: for a refused request, failure says why.
struct chat_request *chat_request_read(const struct service *s, const struct http_payload *p);
void chat_request_free(struct chat_request *r); // NULL is fine
// Of a failure of its completion: the member at fault as the request names it.
void chat_name_param(struct completion_failure *f);
