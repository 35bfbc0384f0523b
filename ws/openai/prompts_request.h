// What the bodies of completions and embeddings share: prompts, each of which a turn gets as it is, without a chat
// template. Any thread.
#pragma once
#include "ws/net/http.h"
#include "ws/openai/body.h"

struct service;

struct openai_prompt {
    char *text; // (len) with ids: their text, if the request wants it, else NULL
    size_t len;
    int32_t *ids; // (n_ids) NULL: the text is the prompt
    size_t n_ids;
};
struct prompts_request {               // first in a protocol's own request
    struct completion_failure failure; // status 0: it can be served
    struct openai_prompt *prompts;     // (n)
    size_t n;
    struct turn_sampling sampling;
    const struct served_model *served; // held; NULL: refused
};
// Reads a body into a request of `bytes` bytes: its model here, the rest by read(), which returns 0 or sets the
// failure. NULL: no memory.
void *prompts_request_read(size_t bytes, const struct service *s, const struct http_payload *p,
                           int (*read)(void *request, cJSON *json));
void prompts_request_free(void *request); // NULL is fine
// The member `name`: a string, token ids of the vocabulary, or an array of either. At most max, else the
// failure is "NAME TOO_MANY". 0, or E_* with the failure set.
int prompts_read(struct prompts_request *r, const cJSON *body, const char *name, size_t max,
                 const char *too_many);
