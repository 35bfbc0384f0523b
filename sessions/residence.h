// Where a session lives: the instance that has its cache or its turn. Net thread only.
#pragma once
#include "sessions/service.h"

struct served_model *residence_model(const struct session *s); // NULL: it is not served
void residence_enter(struct session *s, struct instance *i);   // sets s->instance
void residence_leave(struct session *s);                       // clears s->instance
void residence_release(struct session *s);                     // drops its cache there
void residence_move_out(struct session *s);                    // release and leave
// True: no instance of its model takes turns, but a lost one is about to be opened again, so turns wait.
bool residence_awaits(const struct session *s);
// Puts the session into the list of those whose turn waits for an instance (displaced.c), or removes it.
void residence_wait(struct session *s);
void residence_wait_end(struct session *s);
// Other instances that could take the session, best first; returns their number, at most cap.
size_t residence_others(struct session *s, struct instance **out, size_t cap);
void residence_cancel(struct session *s, uint64_t turn); // turn: the engine's number
// As engine_turn_submit, on the session's instance or else the best one. E_BUSY: none has room, or none
// of its model takes turns now.
int residence_submit(struct session *s, struct engine_turn *t, struct err *err);
void residence_prepare(struct session *s, struct engine_turn *t); // takes t->ids
// The instance for a replay of one of its turns; NULL: none.
struct instance *residence_for_replay(struct session *s);
int64_t residence_retry_us(const struct sessions *ss, uint64_t owner,
                           enum engine_priority priority);
