// A session as the database has it becomes one in memory. See session.h.
#include "base/err.h"
#include "sessions/state/tree.h"
#include <string.h>

// Where its parent's path ends it goes on.
static int check_place(const struct session *s, const struct stored_turn *st) {
    const struct turn_record *r = &st->rec;
    if (r->parent < TURN_NONE || r->parent >= (int64_t)s->n_turns) return E_CORRUPT;
    if (r->log_first < 0) return st->tokens.n == 0 ? 0 : E_CORRUPT;
    if (r->log_first != tree_log_end(s, r->parent) || r->n_input != (int64_t)r->n_input_ids)
        return E_CORRUPT;
    return 0;
}

static int restore_turn(struct session *s, struct stored_turn *st) {
    if (!st->rec.finish_reason[0]) return E_CORRUPT; // recovery has ended them all
    TRY(check_place(s, st));
    struct turn *t = turn_new();
    if (!t) return E_NOMEM;
    int rc = turn_restore(t, st);
    if (rc == 0) rc = session_push_turn(s, t);
    if (rc == 0 && !turn_was_erased(&t->rec)) tree_link(s, t);
    if (rc < 0) turn_free(t);
    return rc;
}

static int restore_path(struct session *s) {
    struct tree_cut none;
    if (s->rec.head < TURN_NONE || s->rec.head >= (int64_t)s->n_turns) return E_CORRUPT;
    TRY(tree_move(s, s->rec.head, &none));
    tree_cut_release(&none);
    return 0;
}

// Between the stored events every number is a delta's: of the turn that was running, in the order
// of its tokens.
static int restore_deltas(struct session *s, int64_t upto, int64_t turn, int64_t *token) {
    const struct turn *t = session_turn(s, turn);
    for (int64_t seq = event_log_seq(&s->events) + 1; seq <= upto; seq++) {
        if (!t || *token >= (int64_t)t->out.n) return E_CORRUPT;
        if (event_log_add_token(&s->events, turn, (*token)++) < 0) return E_NOMEM;
    }
    return 0;
}

static int restore_events(struct session *s, const struct stored_session *stored) {
    int64_t turn = -1, token = 0;
    for (size_t i = 0; i < stored->n_events; i++) {
        const struct event_record *e = &stored->events[i];
        if (e->turn < TURN_NONE || e->turn >= (int64_t)s->n_turns) return E_CORRUPT;
        TRY(restore_deltas(s, e->seq - 1, turn, &token));
        int64_t last = e->kind == EVENT_LOST
                           ? event_log_add_lost(&s->events, e->n, e->turn, e->at_ms)
                           : event_log_add(&s->events, e->kind, e->turn, e->reason, e->at_ms);
        if (last < 0) return E_NOMEM;
        if (last != e->seq + e->n - 1 || e->kind == EVENT_DELTA) return E_CORRUPT;
        if (e->kind == EVENT_STARTED) turn = e->turn, token = 0;
    }
    return event_log_seq(&s->events) == s->rec.seq ? 0 : E_CORRUPT;
}

int session_restore(struct session *s, struct stored_session *stored) {
    char lasting[SESSION_LASTING_BYTES];
    session_record_release(&s->rec);
    s->rec = stored->rec;
    stored->rec = (struct session_record){0};
    s->prompt = stored->prompt;
    stored->prompt = NULL;
    free(s->rec.prompt_data);
    s->rec.prompt_data = NULL;
    s->rec.prompt_bytes = 0;
    for (size_t i = 0; i < stored->n_origins; i++) {
        session_lasting_name(s->rec.owner, stored->origins[i], lasting);
        if (!(s->origins[s->n_origins++] = strdup(lasting))) return E_NOMEM;
    }
    for (size_t i = 0; i < stored->n_turns; i++) TRY(restore_turn(s, &stored->turns[i]));
    TRY(restore_path(s));
    if ((int64_t)s->n_turns != s->rec.n_turns || (int64_t)s->n_log != s->rec.n_tokens)
        return E_CORRUPT;
    TRY(restore_events(s, stored));
    s->saved_seq = s->saved_reserved = s->rec.seq;
    s->dirty_from = (int64_t)s->n_turns;
    return 0;
}
