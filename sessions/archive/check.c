// See check.h.
#include "sessions/archive/check.h"
#include "base/array.h"
#include "base/err.h"
#include "sessions/archive/rules.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// --- turns that have no end --------------------------------------------------

static int add_event(struct stored_session *s, struct event_record e, struct err *err) {
    if (ARRAY_RESIZE(s->events, s->n_events + 1) < 0)
        return err_set(err, E_NOMEM, "no memory to end a turn");
    s->events[s->n_events++] = e;
    return 0;
}

// A turn that came with a fork has the opening's number, and no event names it.
static bool is_inherited(const struct stored_session *s, const struct turn_record *r) {
    return s->rec.forked_from && r->seq_first == 1;
}

// Another answer of a turn (versions.c): no event names it either.
static bool is_version(const struct turn_record *r) {
    return r->branch && r->seq_first == 1;
}

// Each number is an event's or a token's.
static int64_t last_number(const struct stored_session *s) {
    int64_t n = 0;
    for (size_t i = 0; i < s->n_events; i++) n += s->events[i].n;
    for (size_t i = 0; i < s->n_turns; i++)
        if (!is_inherited(s, &s->turns[i].rec) && !is_version(&s->turns[i].rec))
            n += (int64_t)s->turns[i].tokens.n;
    return n;
}

static int end_turn(struct stored_session *s, struct turn_record *r, int64_t now_ms,
                    struct err *err) {
    snprintf(r->finish_reason, sizeof r->finish_reason, "interrupted");
    r->ended_ms = now_ms;
    r->seq_last = ++s->rec.seq;
    r->numbers.log_tokens =
        r->log_first >= 0 ? r->log_first + r->n_input + r->n_output : s->rec.n_tokens;
    return add_event(
        s,
        (struct event_record){
            .seq = r->seq_last, .n = 1, .kind = EVENT_DONE, .turn = r->turn, .at_ms = now_ms},
        err);
}

int stored_session_interrupt(struct stored_session *s, int64_t now_ms, struct err *err) {
    struct turn_record *first = NULL;
    for (size_t i = 0; i < s->n_turns; i++) {
        struct turn_record *r = &s->turns[i].rec;
        if (r->finish_reason[0]) continue;
        if (!first) first = r;
        r->n_output = (int64_t)s->turns[i].tokens.n;
        if (r->log_first >= 0) s->rec.n_tokens = r->log_first + r->n_input + r->n_output;
    }
    if (!first) return 0;
    int64_t seq = last_number(s), n_lost = s->rec.seq_reserved - seq;
    if (n_lost > 0)
        TRY(add_event(s,
                      (struct event_record){.seq = seq + 1,
                                            .n = n_lost,
                                            .kind = EVENT_LOST,
                                            .turn = first->turn,
                                            .at_ms = now_ms},
                      err));
    s->rec.seq = n_lost > 0 ? s->rec.seq_reserved : seq;
    for (size_t i = 0; i < s->n_turns; i++)
        if (!s->turns[i].rec.finish_reason[0]) TRY(end_turn(s, &s->turns[i].rec, now_ms, err));
    s->rec.seq_reserved = s->rec.seq;
    if (s->rec.updated_ms < now_ms) s->rec.updated_ms = now_ms;
    return 0;
}

// --- the session's own row ---------------------------------------------------

static int check_row(const struct stored_session *s, struct err *err) {
    const struct session_record *r = &s->rec;
    TRY(rules_check("session.", &record_tables[TABLE_SESSIONS], r, err));
    if (r->sink_len >= r->memory_len)
        return err_set(err, E_CORRUPT, "session.sink_len is not from 0 to memory_len - 1 (%d)",
                       r->memory_len - 1);
    if (r->head >= (int64_t)s->n_turns)
        return err_set(err, E_CORRUPT, "session.head is %" PRId64 ", but there are %zu turns",
                       r->head, s->n_turns);
    if (r->n_turns != (int64_t)s->n_turns)
        return err_set(err, E_CORRUPT, "session.n_turns is %" PRId64 ", but there are %zu turns",
                       r->n_turns, s->n_turns);
    return 0;
}

// A table is named, or its content is there.
static int check_prompt(const struct session_record *r, struct err *err) {
    struct prompt *p = NULL;
    bool has = r->prompt_kind != RECORD_PROMPT_NONE;
    if (has != !!r->prompt_hash || has != (r->prompt_rows > 0) || (!has && r->prompt_task) ||
        ((!has || r->prompt_task) && r->prompt_data))
        return err_set(err, E_CORRUPT,
                       "session.prompt_kind, prompt_task, prompt_hash, prompt_rows "
                       "and prompt_data contradict each other");
    if (!has || r->prompt_task) return 0;
    TRY(record_prompt_make(r, &p, err));
    prompt_free(p);
    return 0;
}

// --- turns -------------------------------------------------------------------

#define TURN "turns[%zu]."

static int check_request(const struct turn_record *r, size_t i, struct err *err) {
    char where[32];
    snprintf(where, sizeof where, TURN, i);
    TRY(rules_check(where, &record_tables[TABLE_TURNS], r, err));
    if (r->turn != (int64_t)i) return err_set(err, E_CORRUPT, TURN "turn is %" PRId64, i, r->turn);
    if (turn_input_has_text(r->kind) != (r->input_text != NULL))
        return err_set(err, E_CORRUPT, TURN "input_text does not fit input_kind '%s'", i,
                       turn_input_kind_name(r->kind));
    for (size_t k = 0; k < r->n_input_ids; k++)
        if (r->input_ids[k] < 0)
            return err_set(err, E_CORRUPT, TURN "input_ids[%zu] is %d", i, k, r->input_ids[k]);
    return 0;
}

static int check_output(const struct stored_turn *t, size_t i, struct err *err) {
    const struct token_run *k = &t->tokens;
    uint32_t last = 0;
    if ((int64_t)k->n != t->rec.n_output)
        return err_set(err, E_CORRUPT, TURN "n_output is %" PRId64 ", but there are %zu tokens", i,
                       t->rec.n_output, k->n);
    for (size_t j = 0; j < k->n; j++) {
        uint32_t end = k->text_ends[j];
        if (k->ids[j] < 0) return err_set(err, E_CORRUPT, TURN "ids[%zu] is %d", i, j, k->ids[j]);
        if (end < last || end > k->text_len)
            return err_set(err, E_CORRUPT,
                           TURN "text_ends[%zu] is %u, not from %u to the text's %zu bytes", i, j,
                           end, last, k->text_len);
        if (end < k->text_len && (k->text[end] & 0xc0) == 0x80)
            return err_set(err, E_CORRUPT, TURN "text_ends[%zu] lies inside a character", i, j);
        last = end;
    }
    size_t n_alternatives = (size_t)t->rec.n_alternatives * k->n;
    if (n_alternatives && !k->alternatives)
        return err_set(err, E_CORRUPT, TURN "alternatives are missing", i);
    for (size_t j = 0; j < n_alternatives; j++)
        if (k->alternatives[j].id < -1)
            return err_set(err, E_CORRUPT, TURN "alternatives[%zu] has the id %d", i,
                           j / (size_t)t->rec.n_alternatives, k->alternatives[j].id);
    return 0;
}

int64_t stored_session_log_end(const struct stored_session *s, int64_t turn) {
    for (; turn >= 0; turn = s->turns[turn].rec.parent) {
        const struct turn_record *r = &s->turns[turn].rec;
        if (r->log_first >= 0) return r->log_first + r->n_input + r->n_output;
    }
    return 0;
}

static int check_place(const struct stored_session *s, size_t i, struct err *err) {
    const struct stored_turn *t = &s->turns[i];
    const struct turn_record *r = &t->rec;
    if (r->parent >= (int64_t)i)
        return err_set(err, E_CORRUPT, TURN "parent is %" PRId64 ", no earlier turn", i, r->parent);
    if (r->log_first < 0)
        return t->tokens.n == 0 ? 0
                                : err_set(err, E_CORRUPT, TURN "ids of a turn that never began", i);
    int64_t n_log = stored_session_log_end(s, r->parent);
    if (r->log_first != n_log)
        return err_set(err, E_CORRUPT,
                       TURN "log_first is %" PRId64 ", the log has %" PRId64 " tokens there", i,
                       r->log_first, n_log);
    if (r->n_input != (int64_t)r->n_input_ids)
        return err_set(err, E_CORRUPT, TURN "n_input is %" PRId64 ", but there are %zu input_ids",
                       i, r->n_input, r->n_input_ids);
    n_log += r->n_input + r->n_output;
    if (n_log > s->rec.session_len)
        return err_set(err, E_CORRUPT,
                       "session.session_len is %" PRId64 ", but turn %zu's log has %" PRId64
                       " tokens",
                       s->rec.session_len, i, n_log);
    return 0;
}

static int check_turns(const struct stored_session *s, struct err *err) {
    for (size_t i = 0; i < s->n_turns; i++) {
        const struct stored_turn *t = &s->turns[i];
        TRY(check_request(&t->rec, i, err));
        TRY(check_output(t, i, err));
        TRY(check_place(s, i, err));
    }
    int64_t n_log = stored_session_log_end(s, s->rec.head);
    if (n_log != s->rec.n_tokens)
        return err_set(err, E_CORRUPT,
                       "session.n_tokens is %" PRId64 ", but the turns have %" PRId64,
                       s->rec.n_tokens, n_log);
    return 0;
}

// --- events ------------------------------------------------------------------

#define EVENT "events[%zu]."

struct numbering {
    const struct stored_session *s;
    int64_t seq;        // numbered so far
    int64_t running;    // the turn whose deltas fill the numbers between events, -1
    int64_t n_numbered; // its tokens that have a number
    int64_t head;
    enum progress { NOT_YET, BEGUN, ENDED } * turns; // (n_turns)
};

static const struct turn_record *turn_of(const struct stored_session *s, int64_t turn) {
    return turn >= 0 && turn < (int64_t)s->n_turns ? &s->turns[turn].rec : NULL;
}

static int check_started(struct numbering *n, const struct turn_record *t, size_t i,
                         struct err *err) {
    enum progress *p = &n->turns[t->turn];
    bool free_now = n->running < 0 || n->turns[n->running] == ENDED;
    if (*p != NOT_YET || t->log_first < 0 || !free_now)
        return err_set(err, E_CORRUPT, EVENT "kind: turn %" PRId64 " cannot begin there", i,
                       t->turn);
    *p = BEGUN;
    n->running = t->turn;
    n->n_numbered = 0;
    return 0;
}

static int check_done(struct numbering *n, const struct turn_record *t,
                      const struct event_record *e, size_t i, struct err *err) {
    enum progress *p = &n->turns[t->turn];
    if (*p != (t->log_first < 0 ? NOT_YET : BEGUN))
        return err_set(err, E_CORRUPT, EVENT "kind: turn %" PRId64 " cannot end there", i, t->turn);
    if (n->running == t->turn && n->n_numbered != t->n_output)
        return err_set(err, E_CORRUPT,
                       EVENT "kind: turn %" PRId64 " ends after %" PRId64 " of %" PRId64 " tokens",
                       i, t->turn, n->n_numbered, t->n_output);
    if (t->seq_last != e->seq)
        return err_set(err, E_CORRUPT, TURN "seq_last is not its last event's", (size_t)t->turn);
    *p = ENDED;
    return 0;
}

// A rewind moves the head, and so does a turn's first event. That of a deleted turn is lost: its end, the only event that
// stays, may come before its parent's, and its deletion moved the head away from it.
static int check_head(struct numbering *n, const struct event_record *e, size_t i,
                      struct err *err) {
    const struct turn_record *t = turn_of(n->s, e->turn);
    if (e->kind == EVENT_OPENED || e->kind == EVENT_REWOUND) {
        n->head = e->turn;
        return 0;
    }
    if (!t || e->kind == EVENT_LOST || t->seq_first != e->seq || turn_was_erased(t)) return 0;
    if (t->parent != n->head)
        return err_set(err, E_CORRUPT,
                       EVENT "kind: turn %" PRId64 " cannot follow turn %" PRId64 " there", i,
                       e->turn, n->head);
    n->head = e->turn;
    return 0;
}

// A fork begins with inherited turns; the event names the last inherited turn. A turn written behind the inherited
// turns (turn.write) looks like an inherited turn.
static int check_opened(struct numbering *n, const struct event_record *e, size_t i,
                        struct err *err) {
    int64_t n_inherited = 0;
    while (n_inherited <= e->turn) {
        const struct turn_record *t = &n->s->turns[n_inherited].rec;
        if (!is_inherited(n->s, t) || t->parent != n_inherited - 1) break;
        if (t->seq_last != 1)
            return err_set(err, E_CORRUPT, TURN "seq_last is not 1, but seq_first is",
                           (size_t)n_inherited);
        n->turns[n_inherited++] = ENDED;
    }
    if (i == 0 && e->turn == n_inherited - 1) return 0;
    return err_set(err, E_CORRUPT, EVENT "turn is %" PRId64, i, e->turn);
}

static int check_event(struct numbering *n, const struct event_record *e, size_t i,
                       struct err *err) {
    const struct turn_record *t = turn_of(n->s, e->turn);
    char where[32];
    snprintf(where, sizeof where, EVENT, i);
    TRY(rules_check(where, &record_tables[TABLE_EVENTS], e, err));
    bool of_turn = e->kind == EVENT_QUEUED || e->kind == EVENT_STARTED || e->kind == EVENT_DONE;
    if (e->kind == EVENT_DELTA) return err_set(err, E_CORRUPT, EVENT "kind is 'delta'", i);
    if (of_turn && !t) return err_set(err, E_CORRUPT, EVENT "turn is %" PRId64, i, e->turn);
    bool of_head = e->kind == EVENT_OPENED || e->kind == EVENT_REWOUND;
    if (of_head && e->turn != TURN_NONE && !t)
        return err_set(err, E_CORRUPT, EVENT "turn is %" PRId64, i, e->turn);
    if (!of_turn && !of_head && e->kind != EVENT_LOST && e->turn != -1)
        return err_set(err, E_CORRUPT, EVENT "turn is not -1", i);
    if (e->n != 1 && e->kind != EVENT_LOST)
        return err_set(err, E_CORRUPT, EVENT "n is %" PRId64, i, e->n);
    if (e->kind == EVENT_OPENED) TRY(check_opened(n, e, i, err));
    TRY(check_head(n, e, i, err));
    if (e->kind == EVENT_STARTED) return check_started(n, t, i, err);
    if (e->kind == EVENT_DONE) return check_done(n, t, e, i, err);
    if (e->kind == EVENT_QUEUED && (n->turns[e->turn] != NOT_YET || t->seq_first != e->seq))
        return err_set(err, E_CORRUPT, TURN "seq_first is not its first event's", (size_t)e->turn);
    return 0;
}

// The numbers between two stored events are deltas of the running turn.
static int number_event(struct numbering *n, const struct event_record *e, size_t i,
                        struct err *err) {
    bool running = n->running >= 0 && n->turns[n->running] == BEGUN;
    int64_t n_left = running ? n->s->turns[n->running].rec.n_output - n->n_numbered : 0;
    int64_t n_deltas = e->seq - 1 - n->seq;
    if (n_deltas < 0 || n_deltas > n_left)
        return err_set(err, E_CORRUPT, EVENT "seq is %" PRId64 " after %" PRId64, i, e->seq,
                       n->seq);
    n->n_numbered += n_deltas;
    n->seq = e->seq + e->n - 1;
    return 0;
}

static int check_events(const struct stored_session *s, struct err *err) {
    struct numbering n = {.s = s, .running = -1, .head = TURN_NONE};
    n.turns = calloc(s->n_turns + 1, sizeof *n.turns);
    if (!n.turns) return err_set(err, E_NOMEM, "no memory to check a session");
    int rc = s->n_events == 0 || s->events[0].kind != EVENT_OPENED
                 ? err_set(err, E_CORRUPT, "events do not begin with 'opened'")
                 : 0;
    for (size_t i = 0; n.turns && i < s->n_turns; i++)
        if (is_version(&s->turns[i].rec)) n.turns[i] = ENDED;
    for (size_t i = 0; rc == 0 && i < s->n_events; i++) {
        rc = number_event(&n, &s->events[i], i, err);
        if (rc == 0) rc = check_event(&n, &s->events[i], i, err);
    }
    for (size_t i = 0; rc == 0 && i < s->n_turns; i++)
        if (n.turns[i] != ENDED)
            rc = err_set(err, E_CORRUPT, "events have no 'done' of turn %zu", i);
    if (rc == 0 && n.head != s->rec.head)
        rc = err_set(err, E_CORRUPT, "session.head is %" PRId64 ", but the events end at %" PRId64,
                     s->rec.head, n.head);
    if (rc == 0 && n.seq != s->rec.seq)
        rc = err_set(err, E_CORRUPT, "session.seq is %" PRId64 ", but the events end at %" PRId64,
                     s->rec.seq, n.seq);
    if (rc == 0 && s->rec.seq_reserved < s->rec.seq)
        rc = err_set(err, E_CORRUPT, "session.seq_reserved is less than seq");
    free(n.turns);
    return rc;
}

int stored_session_check(const struct stored_session *s, struct err *err) {
    TRY(check_row(s, err));
    TRY(check_prompt(&s->rec, err));
    TRY(check_turns(s, err));
    return check_events(s, err);
}
