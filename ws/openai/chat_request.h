// The body of a chat completion: read, checked, and turned into what a session and a turn need.
// Any thread.
#pragma once
#include "base/err.h"
#include "base/json.h"
#include "sessions/sessions.h"

struct service;

struct chat_request {
    bool stream, include_usage;
    const char *system;      // of the session; NULL: none
    struct turn_input input; // the one user message, or the whole conversation as ids
    struct turn_sampling sampling;
    int status; // 0, or the HTTP status that refuses it, for err and param
    const char *code, *param;
    struct err err;
    // what the others point into
    cJSON *json; // while it is read; `model` too
    const char *model;
    const struct served_model *served; // held; NULL: refused
    struct engine_message *messages;   // (n_messages); contents are its own
    size_t n_messages;
    int32_t *ids;
};

// Never fails but for memory (NULL): a request that is refused says so in status.
struct chat_request *chat_request_read(const struct service *s, const char *body, size_t len,
                                       size_t max_bytes);
void chat_request_free(struct chat_request *r); // NULL is fine
