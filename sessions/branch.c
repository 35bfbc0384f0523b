// Rewinding, and asking for an answer again. See service.h, head.c.
#include "base/err.h"
#include "sessions/answers.h"
#include "sessions/service.h"
#include "sessions/tree.h"
#include <stdlib.h>
#include <utlist.h>

// Where it is already. What brought it there may not be committed: then with that.
static void answer_in_place(struct session *s, struct pending *p) {
    p->repeated = true;
    p->seq = event_log_seq(&s->events);
    if (p->seq > s->saved_seq) return;
    DL_DELETE(s->pending, p);
    deliver_committed(s, p);
}

void branch_rewind(struct session *s, const struct request *r) {
    int64_t to = r->turn;
    if (!head_can_move(s, r, to)) return;
    if (r->leaf) to = tree_newest_below(s, to);
    struct pending *p = to < TURN_NONE ? NULL : save_pending(s, PENDING_REWIND, r, 0);
    if (!p) {
        refuse_memory(s->service, r);
        return;
    }
    if (to == s->head) {
        answer_in_place(s, p);
        return;
    }
    if (head_move(s, to, p) < 0) {
        DL_DELETE(s->pending, p);
        pending_free(p);
        refuse_memory(s->service, r);
        return;
    }
    p->seq = p->rewound_seq;
    save_now(s);
}

void branch_regenerate(struct session *s, const struct request *r) {
    struct err err = {0};
    const struct turn *t = session_turn(s, r->turn == TURN_HEAD ? s->head : r->turn);
    if (!t) {
        if (r->turn == TURN_HEAD)
            refuse(s->service, r, "invalid", "the log is empty: there is nothing to ask again");
        else
            refuse(s->service, r, "invalid", "the session has no turn %lld", (long long)r->turn);
        return;
    }
    struct turn_sampling *sampling = malloc(sizeof *sampling);
    if (sampling) turn_sampling_init(sampling);
    if (!sampling || layers_again(s, t->rec.request, r->sampling, sampling, &err) < 0) {
        if (sampling)
            refuse_err(s->service, r, &err);
        else
            refuse_memory(s->service, r);
        free(sampling);
        return;
    }
    struct request again = *r;
    again.kind = REQUEST_START;
    again.turn = t->rec.parent;
    again.sampling = sampling;
    again.queue = false;
    again.input = (struct turn_input){.kind = t->rec.kind,
                                      .text = t->rec.input_text,
                                      .text_len = t->rec.input_text_len,
                                      .ids = t->rec.input_ids,
                                      .n_ids = t->rec.n_input_ids};
    turns_start(s, &again);
    free(sampling);
}
