// Where a session lives: the instance that has its cache or its turn. Net thread only.
#pragma once
#include "sessions/state/service.h"

void routing_enter(struct session *s, struct instance *i); // sets s->instance
void routing_leave(struct session *s);                     // clears s->instance
void routing_park(struct session *s, const char *reason);  // parks its idle cache, or drops it
void routing_release(struct session *s);                   // drops its cache there
void routing_move_out(struct session *s);                  // release and leave
// True: no instance of its model takes turns, but a lost one is about to be opened again, so turns wait.
bool routing_awaits(const struct session *s);
// Puts the session into the list of those whose turn waits for an instance (failover.c), or removes it.
void routing_wait(struct session *s);
void routing_wait_end(struct session *s);
// Other instances that could take the session, best first; returns their number, at most cap.
size_t routing_others(struct session *s, struct instance **out, size_t cap);
void routing_cancel(struct session *s, uint64_t turn); // turn: the engine's number
// As engine_turn_submit, on the session's instance or else the best one. E_BUSY: none has room, or none
// of its model takes turns now.
int routing_submit(struct session *s, struct engine_turn *t, struct err *err);
void routing_prepare(struct session *s, struct engine_turn *t); // takes t->ids
// The instance for a replay of one of its turns; NULL: none.
struct instance *routing_for_replay(struct session *s);
int64_t routing_retry_us(const struct sessions *ss, uint64_t owner, enum engine_priority priority);
