// The turns of one request, each in a session of its own, followed until all have ended: the prompts of completions and
// embeddings, the rows of an inference. Net thread only.
#pragma once
#include "ws/service.h"

struct batch_turn {              // first in a protocol's own turn
    char id[SESSION_ID_MAX + 1]; // of its session
    struct session *session;     // while its events wait; NULL: none do
    bool ended;                  // takes no further events
};
struct turn_batch {
    struct follower follower; // first: its callbacks cast
    struct service *service;
    char *owner;
    void *turns; // (n) of turn_bytes each
    size_t n, turn_bytes;
    size_t n_started;                        // the first of them, which may have events
    void (*no_memory)(struct turn_batch *b); // notes the failure; the next event leads to a push
};

// n, turn_bytes, n_started, no_memory, service and follower.ops are set. E_NOMEM: nothing is left to release.
int turn_batch_init(struct turn_batch *b, const char *owner);
void turn_batch_release(struct turn_batch *b); // the service sends it nothing more
struct batch_turn *turn_batch_at(const struct turn_batch *b, size_t i);
struct batch_turn *turn_batch_find(const struct turn_batch *b, const char *session_id); // or NULL
void turn_batch_push_later(struct turn_batch *b);
// Takes the turns' events as far as there is room. The rest stays in the sessions, after the client's cursor.
void turn_batch_pull(struct turn_batch *b, size_t event_bytes,
                     bool (*has_room)(const struct turn_batch *b),
                     void (*take)(struct turn_batch *b, struct batch_turn *t,
                                  const struct session_event *ev));

// Of a protocol's struct follower_ops.
void turn_batch_on_ready(struct follower *f, struct session *s);
bool turn_batch_is_drained(const struct follower *f);
