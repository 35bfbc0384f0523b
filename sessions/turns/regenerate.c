// Asking for an answer again. See regenerate.h.
#include "sessions/turns/regenerate.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/state/sampling_layers.h"
#include "sessions/turns/turns.h"
#include <stdlib.h>

int regenerate_start(struct session *s, const struct request *r) {
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
    again.start = (struct request_start){0};
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
