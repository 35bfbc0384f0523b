// Rewinding, and asking for an answer again. See branch.h, head.c.
#include "sessions/branch.h"
#include "base/err.h"
#include "sessions/answers.h"
#include "sessions/deliver.h"
#include "sessions/head.h"
#include "sessions/sampling_layers.h"
#include "sessions/save.h"
#include "sessions/tree.h"
#include "sessions/turns.h"
#include <stdlib.h>
#include <utlist.h>

// The head is there already. If the move that brought it there is not committed yet, the answer waits for it.
static int answer_in_place(struct session *s, struct pending *p) {
    p->repeated = true;
    p->seq = event_log_seq(&s->events);
    if (p->seq > s->saved_seq) return 0;
    DL_DELETE(s->pending, p);
    deliver_committed(s, p);
    return 0;
}

int branch_rewind(struct session *s, const struct request *r) {
    int64_t to = r->turn;
    if (!head_can_move(s, r, to)) return 0;
    if (r->leaf) to = tree_newest_below(s, to);
    struct pending *p = to < TURN_NONE ? NULL : save_pending(s, PENDING_REWIND, r, 0);
    if (!p) return E_NOMEM;
    if (to == s->head) return answer_in_place(s, p);
    if (head_move(s, to, NULL, p) < 0) {
        pending_drop(&s->pending, p);
        return E_NOMEM;
    }
    p->seq = p->rewound_seq;
    save_now(s);
    return 0;
}

int branch_regenerate(struct session *s, const struct request *r) {
    struct err err = {0};
    const struct turn *t = session_turn(s, r->turn == TURN_HEAD ? s->head : r->turn);
    if (t && turn_was_erased(&t->rec)) t = NULL;
    if (!t && r->turn == TURN_HEAD)
        return refuse(s->service, r, "invalid", "the log is empty: there is nothing to ask again");
    if (!t)
        return refuse(s->service, r, "invalid", "the session has no turn %lld", (long long)r->turn);
    struct turn_sampling *sampling = malloc(sizeof *sampling);
    if (!sampling) return E_NOMEM;
    turn_sampling_init(sampling);
    struct request again = *r;
    again.kind = REQUEST_START;
    again.turn = t->rec.parent;
    again.sampling = sampling;
    again.queue = false;
    // Ids rendered from a client's conversation are copied: the text shown would give other ids.
    bool given = t->rec.kind == INPUT_IDS || t->rec.shown;
    again.input = (struct turn_input){.kind = t->rec.kind,
                                      .text = t->rec.input_text,
                                      .text_len = t->rec.input_text_len,
                                      .ids = given ? t->rec.input_ids : NULL,
                                      .n_ids = given ? t->rec.n_input_ids : 0};
    int rc = layers_again(s, t->rec.request, r->sampling, sampling, &err) < 0
                 ? refuse_err(s->service, r, &err)
                 : turns_start(s, &again);
    turn_sampling_free(sampling);
    return rc;
}
