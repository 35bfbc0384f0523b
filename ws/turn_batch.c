// See turn_batch.h.
#include "ws/turn_batch.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>

int turn_batch_init(struct turn_batch *b, const char *owner) {
    b->owner = strdup(owner);
    b->turns = calloc(b->n, b->turn_bytes);
    if (b->owner && b->turns && followers_add(&b->service->followers, &b->follower) == 0) return 0;
    free(b->owner);
    free(b->turns);
    return E_NOMEM;
}

void turn_batch_release(struct turn_batch *b) {
    service_drop_follower(b->service, &b->follower);
    free(b->turns);
    free(b->owner);
}

struct batch_turn *turn_batch_at(const struct turn_batch *b, size_t i) {
    return (struct batch_turn *)((char *)b->turns + i * b->turn_bytes);
}

// From the end: of a long list the turns that run are the last ones.
struct batch_turn *turn_batch_find(const struct turn_batch *b, const char *session_id) {
    for (size_t i = b->n_started; session_id && i-- > 0;)
        if (strcmp(turn_batch_at(b, i)->id, session_id) == 0) return turn_batch_at(b, i);
    return NULL;
}

void turn_batch_push_later(struct turn_batch *b) {
    if (!follower_push_later(&b->service->followers, &b->follower)) b->no_memory(b);
}

void turn_batch_pull(struct turn_batch *b, size_t event_bytes,
                     bool (*has_room)(const struct turn_batch *b),
                     void (*take)(struct turn_batch *b, struct batch_turn *t,
                                  const struct session_event *ev)) {
    struct session_event ev;
    for (size_t i = 0; i < b->n_started; i++) {
        struct batch_turn *t = turn_batch_at(b, i);
        while (t->session && has_room(b)) {
            if (session_next_event(t->session, b->follower.client, event_bytes, &ev) == 1)
                take(b, t, &ev);
            else
                t->session = NULL; // until on_ready
            if (t->ended) t->session = NULL;
        }
    }
}

void turn_batch_on_ready(struct follower *f, struct session *s) {
    struct turn_batch *b = (struct turn_batch *)f;
    struct batch_turn *t = turn_batch_find(b, session_id(s));
    if (!t || t->ended) return;
    t->session = s;
    turn_batch_push_later(b);
}

bool turn_batch_is_drained(const struct follower *f) {
    const struct turn_batch *b = (const struct turn_batch *)f;
    for (size_t i = 0; i < b->n_started; i++)
        if (turn_batch_at(b, i)->session) return false;
    return true;
}
