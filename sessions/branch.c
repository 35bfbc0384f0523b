// Branching: moving the head of a session's tree, asking for an answer again, and forking. See
// service.h, tree.h.
//
// A move is an event, `rewound`, and a change of the path in memory; its commit is the next save's,
// together with the turn that it was made for. The engine is told nothing: it compares each turn's
// log with what its cache holds, and keeps what agrees.
#include "base/err.h"
#include "base/random_id.h"
#include "sessions/service.h"
#include "sessions/tree.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static bool refuse(struct session *s, const struct request *r, const char *code, const char *fmt,
                   ...) __attribute__((format(printf, 4, 5)));
static bool refuse(struct session *s, const struct request *r, const char *code, const char *fmt,
                   ...) {
    char message[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    requests_fail(s->service, r->client, r->request_id, s->rec.id, code, 0, message);
    return false;
}

static bool refuse_memory(struct session *s, const struct request *r) {
    requests_fail(s->service, r->client, r->request_id, s->rec.id, "overloaded", RETRY_AFTER_MS,
                  "the server is out of memory");
    return false;
}

// --- moving the head ---------------------------------------------------------

bool branch_can_move(struct session *s, const struct request *r, int64_t turn) {
    if (s->rec.closed_ms || s->closing)
        return refuse(s, r, "session_closed",
                      "the session is closed: it can be read, not continued");
    if (session_has_turn(s))
        return refuse(s, r, "session_busy",
                      "a turn of this session is running: it cannot be rewound now");
    if (turn != TURN_NONE && !session_turn(s, turn))
        return refuse(s, r, "invalid", "the session has no turn %lld", (long long)turn);
    return true;
}

int branch_move(struct session *s, int64_t turn, struct pending *p) {
    TRY(event_log_reserve(&s->events, 1));
    TRY(tree_move(s, turn, &p->cut));
    p->rewound_seq =
        event_log_add(&s->events, EVENT_REWOUND, turn, NULL, service_now_ms(s->service));
    s->rec.updated_ms = service_now_ms(s->service);
    s->version++;
    s->changed = true;
    return 0;
}

void branch_move_back(struct session *s, struct pending *p) {
    if (!p->rewound_seq) return;
    session_remove_event(s, p->rewound_seq);
    p->rewound_seq = 0;
    tree_move_back(s, &p->cut);
    s->rec.updated_ms = p->updated_ms;
    s->version++;
    s->changed = true;
}

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
    if (!branch_can_move(s, r, to)) return;
    if (r->leaf) to = tree_newest_below(s, to);
    struct pending *p = to < TURN_NONE ? NULL : save_pending(s, PENDING_REWIND, r, 0);
    if (!p) {
        refuse_memory(s, r);
        return;
    }
    if (to == s->head) {
        answer_in_place(s, p);
        return;
    }
    if (branch_move(s, to, p) < 0) {
        DL_DELETE(s->pending, p);
        pending_free(p);
        refuse_memory(s, r);
        return;
    }
    p->seq = p->rewound_seq;
    save_now(s);
}

// --- asking again ------------------------------------------------------------

void branch_regenerate(struct session *s, const struct request *r) {
    struct err err = {0};
    const struct turn *t = session_turn(s, r->turn == TURN_HEAD ? s->head : r->turn);
    if (!t) {
        if (r->turn == TURN_HEAD)
            refuse(s, r, "invalid", "the log is empty: there is nothing to ask again");
        else
            refuse(s, r, "invalid", "the session has no turn %lld", (long long)r->turn);
        return;
    }
    struct turn_sampling *sampling = malloc(sizeof *sampling);
    if (sampling) turn_sampling_init(sampling);
    if (!sampling || layers_again(s, t->rec.request, r->sampling, sampling, &err) < 0) {
        if (sampling)
            requests_fail_err(s->service, r, &err);
        else
            requests_fail_memory(s->service, r);
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
    run_turn_start(s, &again);
    free(sampling);
}

// --- forking -----------------------------------------------------------------

// The turn to fork at, or TURN_HEAD when the request has been answered. Ended means that its end
// may be told: then its rows are on the disk, where they are copied.
static int64_t fork_turn(struct session *s, const struct request *r) {
    int64_t told = session_tellable(s), turn = r->turn;
    const struct turn *t = session_turn(s, turn);
    if (turn == TURN_HEAD) {
        for (turn = session_head_at(s, told); (t = session_turn(s, turn)); turn = t->rec.parent)
            if (t->state == TURN_DONE && t->rec.seq_last <= told) break;
        return turn;
    }
    if (turn == TURN_NONE) return turn;
    if (!t || !session_turn_visible(s, t))
        refuse(s, r, "invalid", "the session has no turn %lld", (long long)turn);
    else if (t->state != TURN_DONE || t->rec.seq_last > told)
        refuse(s, r, "session_busy", "turn %lld has not ended yet", (long long)turn);
    else
        return turn;
    return TURN_HEAD;
}

static int copy_record(struct session *to, const struct session *from, const struct request *r,
                       int64_t turn) {
    struct session_record *rec = &to->rec;
    char *id = rec->id;
    bool failed = false;
    rec->id = NULL;
    int rc = session_record_copy(rec, &from->rec);
    free(rec->id);
    rec->id = id;
    TRY(rc);
    free(rec->forked_from);
    rec->forked_from = record_strdup(from->rec.id, &failed);
    for (size_t i = 0; i < RECORD_ORIGINS && i < from->n_origins + 1; i++)
        to->origins[to->n_origins++] =
            record_strdup(i ? from->origins[i - 1] : from->rec.id, &failed);
    rec->forked_turn = turn;
    if (r->title) {
        free(rec->title);
        rec->title = record_strdup(r->title, &failed);
        rec->auto_title = r->title[0] == '\0';
    }
    rec->key = rec->closed_ms = 0;
    rec->created_ms = rec->updated_ms = service_now_ms(to->service);
    return failed ? E_NOMEM : 0;
}

// As a slim one: its words are on the disk, behind the first save.
static int copy_turn(struct session *to, const struct turn *from) {
    struct turn *t = turn_new();
    if (!t) return E_NOMEM;
    t->rec = from->rec;
    t->rec.seq_first = t->rec.seq_last = 1;
    turn_forget_words(&t->rec);
    t->state = TURN_DONE;
    t->n_out = t->cap = t->n_saved = from->n_out;
    t->on_disk = t->slim = true;
    if (session_add_turn(to, t) < 0) {
        turn_free(t);
        return E_NOMEM;
    }
    t->chat_begun = from->chat_begun;
    t->said = from->said;
    return 0;
}

static int copy_path(struct session *to, const struct session *from, int64_t turn) {
    size_t n = 0;
    for (int64_t i = turn; i != TURN_NONE; i = from->turns[i]->rec.parent) n++;
    to->fork_turns = malloc((n + 1) * sizeof *to->fork_turns);
    if (!to->fork_turns) return E_NOMEM;
    to->fork_key = from->rec.key;
    to->n_fork_turns = n;
    for (int64_t i = turn; i != TURN_NONE; i = from->turns[i]->rec.parent) to->fork_turns[--n] = i;
    for (; n < to->n_fork_turns; n++) TRY(copy_turn(to, from->turns[to->fork_turns[n]]));
    to->full_from = (size_t)(to->dirty_from = (int64_t)n);
    free(to->log);
    to->log = tree_copy_log(from, turn, &to->n_log);
    to->cap_log = to->log ? to->n_log + 1 : 0;
    return to->log ? 0 : E_NOMEM;
}

static int fill_fork(struct session *to, const struct session *from, const struct request *r,
                     int64_t turn) {
    char *words;
    TRY(copy_record(to, from, r, turn));
    TRY(copy_path(to, from, turn));
    if (!(words = requests_first_words(from))) return E_NOMEM;
    snprintf(to->first_words, sizeof to->first_words, "%s", words);
    free(words);
    return 0;
}

// True when it has been answered.
static bool fork_refused(struct session *s, const struct request *r) {
    if (s->service->draining) return !refuse(s, r, "shutting_down", "the server is shutting down");
    if (r->title && strlen(r->title) > SESSION_TITLE_BYTES)
        return !refuse(s, r, "invalid", "title has more than %d bytes", SESSION_TITLE_BYTES);
    if (!r->new_session) return false;
    if (!session_id_valid(r->new_session))
        return !refuse(s, r, "invalid", "new_session must be 1 to %d letters, digits, '-' or '_'",
                       SESSION_ID_MAX);
    if (service_find(s->service, r->new_session))
        return !refuse(s, r, "session_exists", "there is a session '%s' already", r->new_session);
    return false;
}

void branch_fork(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    char drawn[RANDOM_ID_LEN + 1];
    if (fork_refused(s, r)) return;
    int64_t turn = fork_turn(s, r);
    if (turn == TURN_HEAD) return;
    if (!r->new_session) random_id(drawn);
    struct session *copy = session_new(ss, r->new_session ? r->new_session : drawn);
    if (!copy || fill_fork(copy, s, r, turn) < 0) {
        session_free(copy);
        refuse_memory(s, r);
        return;
    }
    if (!opening_admit(copy, r, copy->head)) return;
    engine_sequence_fork(ss->engine, (uint64_t)s->rec.key, (uint64_t)copy->rec.key,
                         (int64_t)copy->n_log);
}
