// What the exchanges of completions and embeddings share: each prompt is a turn in a session of its own, followed until
// all have ended. Net thread only.
#pragma once
#include "base/random_id.h"
#include "ws/openai/openai.h"
#include "ws/openai/prompts_request.h"
#include "ws/turn_batch.h"

struct prompted {
    struct turn_batch batch; // first: callbacks cast
    const struct prompted_ops *ops;
    struct http *http; // NULL: its client is gone
    struct prompts_request *request;
    size_t n_ended;
    bool streaming;
    bool working; // a worker has it
    struct completion_failure failure;
};
struct prompted_ops {
    struct http_waiter waiter;
    bool (*begin)(struct prompted *p); // names the sessions of all turns; false: no memory
    void (*take)(struct prompted *p, struct batch_turn *t, const struct session_event *ev);
    size_t (*event_bytes)(const struct prompted *p); // of one joined delta
    void (*step)(struct prompted
                     *p); // no event is left, or the client has no room: starts turns, or replies
    void (*release)(struct prompted *p); // what the protocol holds
    size_t bytes, turn_bytes;            // of the protocol's own structs
};

// Answers a request of n turns. Takes the decoded request.
void prompted_handle(struct service *s, struct http *h, const struct prompted_ops *ops, size_t n);
// Opens the session of the next turn, and starts the turn.
void prompted_start(struct prompted *p, const struct openai_prompt *prompt, bool temporary,
                    bool scores);
void prompted_push(void *p); // the client has room
void prompted_client_gone(void *p);
void prompted_refuse(struct prompted *p); // sends p->failure; p is gone
void prompted_free(struct prompted *p);
