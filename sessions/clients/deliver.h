// Events and answers on their way to clients. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Answers requests up to event number `upto` whose event the client will not take.
void deliver_answer_told(struct session *s, uint64_t client, int64_t upto);
void deliver_forget_told(struct session *s, uint64_t client, int64_t upto);
void deliver_ready(struct session *s); // on_ready to the clients that wait
// A save was refused: calls on_stalled if an event waits for it.
void deliver_stalled(struct session *s, const struct err *why, int64_t stalled_us);
// Takes p: answers it, unless its event is the answer.
void deliver_committed(struct session *s, struct pending *p);
