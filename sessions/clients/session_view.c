// What clients may see of a session. See session.h.
#include "base/err.h"
#include "sessions/state/record_view.h"
#include "sessions/state/service.h" // the engine knows of snapshots
#include <stdlib.h>
#include <string.h>

int64_t session_tellable(const struct session *s) {
    int64_t fact = event_log_next_fact(&s->events, s->saved_seq);
    int64_t last = fact ? fact - 1 : event_log_seq(&s->events);
    int64_t safe = s->safe_seq > s->saved_seq ? s->safe_seq : s->saved_seq;
    if (last > safe) last = safe;
    return last < s->saved_reserved ? last : s->saved_reserved;
}

enum session_state session_state(const struct session *s) {
    if (s->rec.closed_ms) return SESSION_CLOSED;
    if (session_has_turn(s)) return SESSION_ACTIVE;
    if (s->cache == PLACE_DEVICE) return SESSION_IDLE;
    if (s->cache == PLACE_HOST || s->cache == PLACE_TRAVELS) return SESSION_PARKED;
    return s->n_log == 0 ? SESSION_OPEN : SESSION_COLD;
}

bool session_turn_visible(const struct session *s, const struct turn *t) {
    return t->rec.seq_first > 0 && t->rec.seq_first <= session_tellable(s) &&
           !turn_was_erased(&t->rec);
}

static bool end_visible(const struct turn *t, int64_t limit) {
    return t->state == TURN_DONE && t->rec.seq_last <= limit;
}

void session_turn_view(const struct session *s, const struct turn *t, struct turn_view *out) {
    int64_t limit = session_tellable(s);
    bool done = end_visible(t, limit);
    int64_t n = done ? (int64_t)t->out.n : event_log_tokens_upto(&s->events, t->rec.turn, limit);
    turn_view_fill(t, n, done, out);
    out->seq_last = done ? t->rec.seq_last : limit;
}

// Each turn became the head with its first event.
int64_t session_head_at(const struct session *s, int64_t seq) {
    for (size_t i = s->events.n; i-- > 0;) {
        const struct event_record *e = &s->events.entries[i].rec;
        if (e->seq > seq) continue;
        const struct turn *t = session_turn(s, e->turn);
        if (e->kind == EVENT_REWOUND || e->kind == EVENT_OPENED) return e->turn;
        if (e->kind != EVENT_LOST && t && t->rec.seq_first == e->seq) return e->turn;
    }
    return TURN_NONE;
}

int session_page(const struct session *s, int64_t last, int64_t before, struct session_page *out) {
    size_t want = (size_t)(last > 0 ? last : SESSION_PAGE_TURNS), at;
    const struct turn *t = session_turn(s, before);
    int64_t turn =
        t && session_turn_visible(s, t) ? t->rec.parent : session_head_at(s, session_tellable(s));
    if (want > SESSION_PAGE_TURNS_MAX) want = SESSION_PAGE_TURNS_MAX;
    *out = (struct session_page){.turns = malloc(want * sizeof *out->turns)};
    if (!out->turns) return E_NOMEM;
    for (at = want; at > 0 && turn != TURN_NONE; turn = s->turns[turn]->rec.parent)
        out->turns[--at] = turn;
    out->n = want - at;
    out->more = turn != TURN_NONE;
    memmove(out->turns, out->turns + at, out->n * sizeof *out->turns);
    return 0;
}

size_t session_siblings(const struct session *s, const struct turn *t, int64_t *list) {
    const struct turn *parent = session_turn(s, t->rec.parent);
    const struct turn_children *c = parent ? &parent->children : &s->roots;
    int64_t limit = session_tellable(s);
    size_t n = 0;
    for (int64_t i = c->first; i != TURN_NONE; i = s->turns[i]->newer) {
        if (s->turns[i]->rec.seq_first > limit) break; // and so are those after it
        if (list) list[n] = i;
        n++;
    }
    return n;
}

struct said {
    uint64_t input;
    size_t at; // in the list
};

static int by_input(const void *a, const void *b) {
    const struct said *x = a, *y = b;
    if (x->input != y->input) return x->input < y->input ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

int session_sibling_inputs(const struct session *s, const int64_t *list, size_t n,
                           int32_t *inputs) {
    struct said *said = malloc((n + 1) * sizeof *said);
    int32_t next = 0;
    if (!said) return E_NOMEM;
    for (size_t i = 0; i < n; i++) said[i] = (struct said){s->turns[list[i]]->said, i};
    qsort(said, n, sizeof *said, by_input);
    for (size_t i = 0, first = 0; i < n; i++) { // first, the place of the first one with each input
        if (said[i].input != said[first].input) first = i;
        inputs[said[i].at] = (int32_t)said[first].at;
    }
    for (size_t i = 0; i < n; i++) // then their numbers, in the order of the list
        inputs[i] = inputs[i] == (int32_t)i ? next++ : inputs[inputs[i]];
    free(said);
    return 0;
}

int session_below(const struct session *s, int64_t head, int64_t limit) {
    const struct turn *t = session_turn(s, head);
    const struct turn_children *c = t ? &t->children : &s->roots;
    return s->n_turns > 0 && c->n > 0 && s->turns[c->first]->rec.seq_first <= limit;
}

// Length of a path's log, as far as clients may see it.
static int64_t visible_tokens(const struct session *s, int64_t head, int64_t limit) {
    for (const struct turn *t; (t = session_turn(s, head)); head = t->rec.parent) {
        if (t->rec.log_first < 0) continue;
        int64_t n_told = end_visible(t, limit)
                             ? (int64_t)t->out.n
                             : event_log_tokens_upto(&s->events, t->rec.turn, limit);
        return t->rec.log_first + t->rec.n_input + n_told;
    }
    return 0;
}

int64_t session_tokens_at(const struct session *s, int64_t seq) {
    return visible_tokens(s, session_head_at(s, seq), seq);
}

void session_view_fill(const struct session *s, struct session_view *out) {
    int64_t limit = session_tellable(s);
    size_t n_turns = s->n_turns;
    while (n_turns > 0 && s->turns[n_turns - 1]->rec.seq_first > limit) n_turns--;
    int64_t head = session_head_at(s, limit);
    const struct turn *queued = session_next_queued(s);
    int64_t turn = s->running >= 0 ? s->running : queued ? queued->rec.turn : -1;
    record_session_view(&s->rec, out);
    out->state = session_state(s);
    out->rec.n_turns = (int64_t)n_turns;
    out->rec.n_tokens = visible_tokens(s, head, limit);
    out->rec.head = head;
    out->below = session_below(s, head, limit);
    out->cached_tokens =
        s->cached_tokens < out->rec.n_tokens ? s->cached_tokens : out->rec.n_tokens;
    out->rec.seq = limit;
    out->turn = turn < (int64_t)n_turns ? turn : -1;
    out->snapshot = s->service && placement_has_snapshot(&s->service->placement, s->lasting);
}

bool session_turn_prompt(const struct session *s, int64_t turn, int64_t *n_tokens,
                         int64_t *n_cached) {
    const struct turn *t = session_turn(s, turn);
    if (!t || (!t->engine_started_us && t->state != TURN_DONE) || t->rec.log_first < 0)
        return false;
    *n_tokens = t->rec.log_first + t->rec.n_input;
    *n_cached = t->rec.numbers.kept_tokens;
    return true;
}

void session_turn_drafts(const struct session *s, int64_t turn, int64_t *n_drafted,
                         int64_t *n_accepted) {
    const struct turn *t = session_turn(s, turn);
    *n_drafted = t ? t->n_drafted : 0;
    *n_accepted = t ? t->n_accepted : 0;
}
