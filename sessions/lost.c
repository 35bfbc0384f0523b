// Turns whose last client is lost. See service.h, struct session_open.
//
// The clock starts when a connection ends and leaves nobody who is attached or has started what
// runs or waits (who detaches has said that it does not care to follow), and stops when somebody
// attaches or starts a turn.
#include "sessions/service.h"

void lost_begin(struct session *s) {
    if (s->attachments || s->author != CLIENT_GONE) return;
    if (!s->rec.cancel_after_ms || !session_has_turn(s)) return;
    s->lost_us = service_now(s->service) + s->rec.cancel_after_ms * 1000;
    service_timers_changed(s);
}

void lost_end(struct session *s) {
    s->lost_us = 0;
    service_timers_changed(s);
}

bool lost_is_due(const struct session *s) {
    return s->lost_us && s->lost_us <= service_now(s->service);
}

void lost_settle(struct session *s) {
    if (!session_has_turn(s)) deliver_forget_author(s);
    if (!lost_is_due(s)) return;
    lost_end(s);
    for (size_t i = 0; i < s->n_turns; i++)
        if (s->turns[i]->state != TURN_DONE) s->turns[i]->lost = true;
    run_turn_cancel(s, -1);
}
