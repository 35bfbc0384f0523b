// One conversation in memory. See session.h.
#include "base/err.h"
#include "base/utf8.h"
#include "sessions/service.h" // the view tells of a file that only the engine knows of
#include "sessions/tree.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct session *session_new(struct sessions *service, const char *id) {
    struct session *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->service = service;
    s->rec.id = strdup(id);
    s->running = -1;
    s->head = s->rec.head = s->rec.forked_turn = TURN_NONE;
    s->roots = (struct turn_children){.first = TURN_NONE, .last = TURN_NONE};
    s->shown_state = -1;
    s->deferred_end = &s->deferred;
    event_log_init(&s->events);
    if (s->rec.id) return s;
    free(s);
    return NULL;
}

void pending_free(struct pending *p) {
    free(p->title);
    free(p->sampling);
    tree_cut_release(&p->cut);
    free(p);
}

void session_free(struct session *s) {
    if (!s) return;
    struct pending *p, *next;
    DL_FOREACH_SAFE(s->pending, p, next) pending_free(p);
    DL_FOREACH_SAFE(s->told, p, next) pending_free(p);
    for (size_t i = 0; i < s->n_turns; i++) turn_free(s->turns[i]);
    free(s->turns);
    free(s->fork_turns);
    for (size_t i = 0; i < s->n_origins; i++) free(s->origins[i]);
    free(s->log);
    free(s->sampling);
    event_log_release(&s->events);
    session_record_release(&s->rec);
    free(s);
}

int session_log_reserve(struct session *s, size_t more) {
    if (s->cap_log - s->n_log >= more) return 0;
    size_t cap = s->cap_log ? s->cap_log : 64;
    while (cap - s->n_log < more) cap *= 2;
    int32_t *grown = realloc(s->log, cap * sizeof *grown);
    if (!grown) return E_NOMEM;
    s->log = grown;
    s->cap_log = cap;
    return 0;
}

static int push_turn(struct session *s, struct turn *t) {
    if (s->n_turns == s->cap_turns) {
        size_t cap = s->cap_turns ? s->cap_turns * 2 : 4;
        struct turn **grown = realloc(s->turns, cap * sizeof *grown);
        if (!grown) return E_NOMEM;
        s->turns = grown;
        s->cap_turns = cap;
    }
    s->turns[s->n_turns++] = t;
    tree_add(s, t);
    return 0;
}

int session_add_turn(struct session *s, struct turn *t) {
    t->rec.turn = (int64_t)s->n_turns;
    t->rec.parent = s->head;
    TRY(push_turn(s, t));
    t->on_path = true;
    s->head = t->rec.turn;
    return 0;
}

void session_drop_turn(struct session *s) {
    struct turn *t = s->turns[s->n_turns - 1];
    tree_remove(s, t);
    s->head = t->rec.parent;
    s->n_turns--;
}

struct turn *session_turn(const struct session *s, int64_t index) {
    return index >= 0 && index < (int64_t)s->n_turns ? s->turns[index] : NULL;
}

struct turn *session_next_queued(const struct session *s) {
    struct turn *first = NULL;
    int64_t n = 0;
    for (size_t i = s->n_turns; i-- > 0 && n < s->n_queued;)
        if (s->turns[i]->state == TURN_QUEUED) first = s->turns[i], n++;
    return first;
}

struct turn *session_find_request(const struct session *s, const char *request_id) {
    if (!request_id[0]) return NULL;
    for (size_t i = s->n_turns; i-- > 0 && s->n_turns - i <= SESSION_IDEMPOTENT_TURNS;) {
        const char *asked = s->turns[i]->rec.request_id; // NULL: it came with a fork
        if (asked && strcmp(asked, request_id) == 0) return s->turns[i];
    }
    return NULL;
}

bool session_has_turn(const struct session *s) {
    return s->running >= 0 || s->n_queued > 0;
}

// Numbers above seq become n smaller, wherever they have been noted.
static void shift_numbers(struct session *s, int64_t seq, int64_t n) {
    for (size_t i = 0; i < s->n_turns; i++) {
        struct turn_record *r = &s->turns[i]->rec;
        if (r->seq_first > seq) r->seq_first -= n;
        if (r->seq_last > seq) r->seq_last -= n;
    }
    if (s->safe_seq > seq) s->safe_seq -= n;
    struct pending *p;
    DL_FOREACH(s->pending, p) {
        if (p->seq > seq && p->seq != INT64_MAX) p->seq -= n;
        if (p->rewound_seq > seq) p->rewound_seq -= n;
    }
}

void session_remove_event(struct session *s, int64_t seq) {
    event_log_remove(&s->events, seq);
    shift_numbers(s, seq, 1);
}

void session_pop_turn(struct session *s) {
    struct turn *t = s->turns[s->n_turns - 1];
    for (size_t i = s->events.n; i-- > 0;) {
        struct event_record r = s->events.entries[i].rec;
        if (r.turn != t->rec.turn) continue;
        event_log_remove_entry(&s->events, i);
        shift_numbers(s, r.seq, r.n);
        if (i > s->events.n) i = s->events.n; // two runs around it may have become one
    }
    if (t->rec.log_first >= 0) s->n_log = (size_t)t->rec.log_first;
    if (t->state == TURN_QUEUED) s->n_queued--;
    if (s->running == t->rec.turn) s->running = -1;
    session_drop_turn(s);
    turn_free(t);
}

// --- from the database -------------------------------------------------------

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
    t->chat_begun = t->rec.kind == INPUT_CONTENT || tree_chat_begun(s, t->rec.parent);
    if (rc == 0) rc = push_turn(s, t);
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
        if (!t || *token >= (int64_t)t->n_out) return E_CORRUPT;
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
    session_record_release(&s->rec);
    s->rec = stored->rec;
    stored->rec = (struct session_record){0};
    memcpy(s->origins, stored->origins, sizeof s->origins);
    s->n_origins = stored->n_origins;
    stored->n_origins = 0;
    for (size_t i = 0; i < stored->n_turns; i++) TRY(restore_turn(s, &stored->turns[i]));
    TRY(restore_path(s));
    if ((int64_t)s->n_turns != s->rec.n_turns || (int64_t)s->n_log != s->rec.n_tokens)
        return E_CORRUPT;
    TRY(restore_events(s, stored));
    s->saved_seq = s->saved_reserved = s->rec.seq;
    s->dirty_from = (int64_t)s->n_turns;
    s->on_disk = true;
    return 0;
}

// --- what clients may see ----------------------------------------------------

int64_t session_tellable(const struct session *s) {
    int64_t fact = event_log_next_fact(&s->events, s->saved_seq);
    int64_t last = fact ? fact - 1 : event_log_seq(&s->events);
    int64_t safe = s->safe_seq > s->saved_seq ? s->safe_seq : s->saved_seq;
    if (s->deltas_wait && last > safe) last = safe;
    return last < s->saved_reserved ? last : s->saved_reserved;
}

bool session_has_cache(const struct session *s) {
    return s->cached_tokens > 0 || s->parked;
}

enum session_state session_state(const struct session *s) {
    if (s->rec.closed_ms) return SESSION_CLOSED;
    if (session_has_turn(s)) return SESSION_ACTIVE;
    if (s->cached_tokens > 0) return SESSION_IDLE;
    if (s->parked) return SESSION_PARKED;
    return s->n_log == 0 ? SESSION_OPEN : SESSION_COLD;
}

bool session_turn_visible(const struct session *s, const struct turn *t) {
    return t->rec.seq_first > 0 && t->rec.seq_first <= session_tellable(s);
}

static bool end_visible(const struct turn *t, int64_t limit) {
    return t->state == TURN_DONE && t->rec.seq_last <= limit;
}

void session_turn_view(const struct session *s, const struct turn *t, struct turn_view *out) {
    int64_t limit = session_tellable(s);
    bool done = end_visible(t, limit);
    int64_t n = done ? (int64_t)t->n_out : event_log_tokens_upto(&s->events, t->rec.turn, limit);
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
    for (size_t i = 0, first = 0; i < n; i++) { // first the place of the first one of each
        if (said[i].input != said[first].input) first = i;
        inputs[said[i].at] = (int32_t)said[first].at;
    }
    for (size_t i = 0; i < n; i++) // and in the list's order, their numbers
        inputs[i] = inputs[i] == (int32_t)i ? next++ : inputs[inputs[i]];
    free(said);
    return 0;
}

int session_below(const struct session *s, int64_t head, int64_t limit) {
    const struct turn *t = session_turn(s, head);
    const struct turn_children *c = t ? &t->children : &s->roots;
    return s->n_turns > 0 && c->n > 0 && s->turns[c->first]->rec.seq_first <= limit;
}

// Length of the log of a path as far as it may be told.
static int64_t visible_tokens(const struct session *s, int64_t head, int64_t limit) {
    for (const struct turn *t; (t = session_turn(s, head)); head = t->rec.parent) {
        if (t->rec.log_first < 0) continue;
        int64_t n_told = end_visible(t, limit)
                             ? (int64_t)t->n_out
                             : event_log_tokens_upto(&s->events, t->rec.turn, limit);
        return t->rec.log_first + t->rec.n_input + n_told;
    }
    return 0;
}

int64_t session_tokens_at(const struct session *s, int64_t seq) {
    return visible_tokens(s, session_head_at(s, seq), seq);
}

void session_view_fill(const struct session *s, struct session_view *out) {
    const struct session_record *r = &s->rec;
    int64_t limit = session_tellable(s);
    size_t n_turns = s->n_turns;
    while (n_turns > 0 && s->turns[n_turns - 1]->rec.seq_first > limit) n_turns--;
    int64_t head = session_head_at(s, limit);
    const struct turn *queued = session_next_queued(s);
    int64_t turn = s->running >= 0 ? s->running : queued ? queued->rec.turn : -1;
    *out = (struct session_view){
        .id = r->id,
        .title = r->title,
        .model = r->model,
        .system = r->system,
        .auto_title = r->auto_title,
        .state = session_state(s),
        .created_ms = r->created_ms,
        .updated_ms = r->updated_ms,
        .n_turns = (int64_t)n_turns,
        .n_tokens = visible_tokens(s, head, limit),
        .head = head,
        .below = session_below(s, head, limit),
        .forked_from = r->forked_from,
        .forked_turn = r->forked_turn,
        .cancel_after_ms = r->cancel_after_ms,
        .session_len = r->session_len,
        .cached_tokens = s->cached_tokens,
        .seq = limit,
        .memory_len = r->memory_len,
        .sink_len = r->sink_len,
        .turn = turn < (int64_t)n_turns ? turn : -1,
        .sampling = r->sampling,
    };
    if (out->cached_tokens > out->n_tokens) out->cached_tokens = out->n_tokens;
    out->snapshot = s->service && engine_has_snapshot(s->service->engine, r->id);
}

// --- small things ------------------------------------------------------------

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// Back to the end of a word when that does not lose more than half of it (languages without blanks
// are cut as they are).
static size_t cut_at_word(const char *text, size_t len) {
    for (size_t i = len; i > len / 2; i--)
        if (text[i - 1] == ' ') return i - 1;
    return len;
}

void session_title_from(const char *text, size_t len, char *out, size_t cap) {
    static const char dots[] = "\xe2\x80\xa6";
    size_t n = 0, room = cap - sizeof dots;
    bool blank = true, cut = false;
    for (size_t i = 0; i < len && !cut; i++) {
        if (is_blank(text[i]) && blank) continue;
        blank = is_blank(text[i]);
        if (n == room)
            cut = true;
        else
            out[n++] = blank ? ' ' : (unsigned char)text[i] < 0x20 ? '?' : text[i];
    }
    if (cut) n = cut_at_word(out, utf8_complete_len(out, n));
    while (n > 0 && out[n - 1] == ' ') n--;
    if (cut) {
        memcpy(out + n, dots, sizeof dots - 1);
        n += sizeof dots - 1;
    }
    out[n] = '\0';
}

struct attachment *session_attachment(const struct session *s, uint64_t client) {
    struct attachment *a;
    DL_FOREACH(s->attachments, a) {
        if (a->client == client) return a;
    }
    return NULL;
}

const char *session_id(const struct session *s) {
    return s->rec.id;
}
