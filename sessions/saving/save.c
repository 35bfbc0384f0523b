// What memory has and the disk has not. See save.h.
//
// A save is the difference between a session and the database. A session has one save under way at a
// time; changes meanwhile go into the next one. When a save is refused, nothing of it is on disk: its
// requests are undone and answered store_failed. Facts (tokens, ends of turns, evictions) stay in memory
// and go into the next save. That comes after an ever longer pause, or at once with a request.
#include "sessions/saving/save.h"
#include "base/err.h"
#include "base/log.h"
#include "sessions/caches/routing.h"
#include "sessions/caches/spare_caches.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/clients.h"
#include "sessions/clients/deliver.h"
#include "sessions/clients/limits.h"
#include "sessions/saving/erasure.h"
#include "sessions/saving/head.h"
#include "sessions/saving/tail_writer.h"
#include "sessions/state/sampling_layers.h"
#include "sessions/state/title.h"
#include "sessions/state/tree.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define BACKOFF_FIRST_US 100000
#define BACKOFF_MAX_US 5000000
#define NO_TAIL_US 20000 // between commits of deltas, while the tail cannot be written

void save_now(struct session *s) {
    s->save_due_us = INT64_MIN; // whatever the clock says
    service_timers_changed(s);
    service_touch(s);
}

void save_tokens(struct session *s) {
    const struct sessions *ss = s->service;
    int64_t us = ss->o.commit_interval_us;
    if (ss->tail_error[0] && us > NO_TAIL_US) us = NO_TAIL_US;
    if (ss->o.durable == DURABLE_POWER) {
        save_now(s); // changes that come while a save is under way go into the next one
        return;
    }
    if (!s->save_due_us) s->save_due_us = service_now(ss) + us + 1;
    service_timers_changed(s);
    service_touch_tokens(s); // a token alone begins and ends nothing (settle_tokens)
}

static bool turn_wants_save(const struct turn *t) {
    return t->version != t->saved_version || t->n_saved < t->out.n;
}

bool save_wanted(const struct session *s) {
    // Its first turn's commit opens it. A fork that waits for a worker is committed at once: its source's rows may change.
    if (s->life == LIFE_OPENING && s->awaits_turn && !s->fork_turns) return false;
    return s->version != s->saved_version || s->saved_seq < event_log_seq(&s->events);
}

bool save_is_due(const struct session *s) {
    return s->save_due_us && s->save_due_us <= service_now(s->service) && s->save != SAVE_SENT &&
           s->life != LIFE_DELETING;
}

// While a turn runs, clients see deltas that are not on disk yet.
static int64_t reserve(const struct session *s, int64_t seq) {
    return s->running >= 0 ? seq + RESERVE_EVENTS : seq;
}

static int fill_turn(const struct turn *t, struct turn_save *out) {
    bool row = t->version != t->saved_version;
    *out = (struct turn_save){.version = t->version};
    out->whole = t->state == TURN_DONE && row;
    if (!row) {
        out->kind = TURN_GROW;
        out->rec.turn = t->rec.turn;
        out->rec.n_alternatives = t->rec.n_alternatives;
    } else {
        out->kind = t->storage == TURN_UNSAVED ? TURN_INSERT : TURN_SET;
        TRY(turn_record_copy(&out->rec, &t->rec));
        out->rec.n_output = (int64_t)t->out.n;
    }
    if (t->rec.log_first < 0) return 0;
    return turn_copy_run(t, out->whole ? 0 : t->n_saved, out->whole, &out->tokens);
}

static int fill_turns(struct session *s, struct session_save *save) {
    size_t n = 0;
    for (size_t i = (size_t)s->dirty_from; i < s->n_turns; i++) n += turn_wants_save(s->turns[i]);
    if (n == 0) return 0;
    save->turns = calloc(n, sizeof *save->turns);
    if (!save->turns) return E_NOMEM;
    for (size_t i = (size_t)s->dirty_from; i < s->n_turns; i++) {
        if (!turn_wants_save(s->turns[i])) continue;
        struct turn_save *t = &save->turns[save->n_turns++];
        TRY(fill_turn(s->turns[i], t));
        t->tokens.seq = save->rec.seq;
        t->tokens.seq_reserved = save->rec.seq_reserved;
    }
    return 0;
}

static int fill_events(const struct session *s, struct session_save *save) {
    size_t first = s->events.n, n = 0;
    while (first > 0 && s->events.entries[first - 1].rec.seq > s->saved_seq) first--;
    for (size_t i = first; i < s->events.n; i++) n += s->events.entries[i].rec.kind != EVENT_DELTA;
    if (n == 0) return 0;
    save->events = calloc(n, sizeof *save->events);
    if (!save->events) return E_NOMEM;
    for (size_t i = first; i < s->events.n; i++)
        if (s->events.entries[i].rec.kind != EVENT_DELTA)
            save->events[save->n_events++] = s->events.entries[i].rec;
    return 0;
}

// On disk, a session whose only turn was refused is temporary: a crash leaves no empty session.
static int note_awaited(const struct session *s, struct session_record *out) {
    bool failed = false;
    if (s->awaits_turn && !out->note) out->note = record_strdup(RECORD_TEMPORARY, &failed);
    return failed ? E_NOMEM : 0;
}

// A commit of tokens alone, made several times a second for each running turn: of the session it needs
// only its number and how far its events are.
static int fill_session(const struct session *s, struct session_save *save) {
    const struct session_record *r = &s->rec;
    save->session_changed = save->n_events > 0 || s->version != s->saved_version;
    if (save->session_changed || save->insert || save->title_changed || save->note_changed) {
        if (save->insert) save->prompt = prompt_hold(s->prompt);
        TRY(session_record_copy(&save->rec, r));
        return note_awaited(s, &save->rec);
    }
    save->rec =
        (struct session_record){.key = r->key, .seq = r->seq, .seq_reserved = r->seq_reserved};
    return 0;
}

static struct session_save *make_save(struct session *s) {
    struct session_save *save = calloc(1, sizeof *save);
    if (!save) return NULL;
    s->rec.seq = event_log_seq(&s->events);
    s->rec.seq_reserved = reserve(s, s->rec.seq);
    s->rec.n_turns = (int64_t)s->n_turns;
    s->rec.n_tokens = (int64_t)s->n_log;
    s->rec.head = s->head;
    save->insert = s->life == LIFE_OPENING;
    save->title_changed = s->marks & MARK_TITLE;
    save->note_changed = s->marks & MARK_NOTE;
    save->version = s->version;
    if (fill_events(s, save) < 0 || fill_session(s, save) < 0 || fill_turns(s, save) < 0 ||
        erasure_fill(s, save) < 0)
        goto fail;
    save->fork_key = s->fork_key;
    save->fork_turns = s->fork_turns;
    save->n_fork_turns = s->n_fork_turns;
    s->fork_turns = NULL; // once: a session whose first save is refused goes
    s->n_fork_turns = 0;
    return save;
fail:
    session_save_free(save);
    return NULL;
}

static int64_t backoff(int64_t n_failures) {
    int64_t us = BACKOFF_FIRST_US;
    for (int64_t i = 1; i < n_failures && us < BACKOFF_MAX_US; i++) us *= 2;
    return us < BACKOFF_MAX_US ? us : BACKOFF_MAX_US;
}

static void retry_later(struct session *s) {
    s->save = SAVE_REFUSED;
    s->n_failures++;
    s->save_due_us = save_wanted(s) ? service_now(s->service) + backoff(s->n_failures) : 0;
    service_timers_changed(s);
    service_touch(s);
}

void save_begin(struct session *s) {
    s->save_due_us = 0;
    service_timers_changed(s);
    if (!save_wanted(s)) return;
    struct store_job *job = store_job_new(STORE_SAVE, s->rec.key);
    if (job) job->save = make_save(s);
    if (!job || !job->save) {
        store_job_free(job);
        s->service->memory_short = true;
        retry_later(s);
        return;
    }
    s->save = SAVE_SENT;
    s->marks &= ~(unsigned)(MARK_TITLE | MARK_NOTE);
    store_send(s->service->store, job);
}

struct pending *save_pending(struct session *s, enum pending_kind kind, const struct request *r,
                             int64_t seq) {
    struct pending *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->kind = kind;
    p->client = r->client;
    memcpy(p->request_id, r->request_id, sizeof p->request_id);
    p->seq = seq;
    p->turn = -1;
    p->updated_ms = s->rec.updated_ms;
    p->auto_title = s->rec.auto_title;
    p->pinned = s->rec.pinned;
    p->archived = s->rec.archived;
    p->awaited = s->awaits_turn;
    memcpy(p->first_words, s->first_words, sizeof p->first_words);
    p->cancel_after_ms = s->rec.cancel_after_ms;
    DL_APPEND(s->pending, p);
    return p;
}

// --- verdicts ----------------------------------------------------------------

static void mark_saved(struct session *s, const struct session_save *save) {
    s->save = SAVE_IDLE;
    s->n_failures = 0;
    s->saved_seq = save->rec.seq;
    s->saved_reserved = save->rec.seq_reserved;
    s->saved_version = save->version;
    for (size_t i = 0; i < save->n_turns; i++) {
        struct turn *t = session_turn(s, save->turns[i].rec.turn);
        if (t->storage == TURN_UNSAVED) t->storage = TURN_STORED;
        t->n_saved = (size_t)save->turns[i].tokens.first + save->turns[i].tokens.n;
        if (save->turns[i].kind != TURN_GROW) t->saved_version = save->turns[i].version;
    }
    while (s->dirty_from < (int64_t)s->n_turns) {
        const struct turn *t = s->turns[s->dirty_from];
        if (t->state != TURN_DONE || turn_wants_save(t)) break;
        s->dirty_from++;
    }
}

static void saved(struct session *s, const struct session_save *save) {
    if (s->life == LIFE_OPENING) life_set(&s->life, LIFE_LIVE);
    mark_saved(s, save);
    service_store_works(s->service);
    if (save->n_erased) erasure_commit(s);
    struct pending *p, *next;
    DL_FOREACH_SAFE(s->pending, p, next) {
        if (p->seq > s->saved_seq) continue;
        DL_DELETE(s->pending, p);
        if (p->kind == PENDING_CLOSE) spare_or_drop(s);
        deliver_committed(s, p);
    }
    if (save->session_changed) s->marks |= MARK_WATCHERS;
    if (sessions_settled(s->service)) tail_writer_trim(s->service, false); // once, after the last
    if (save_wanted(s) && !s->save_due_us) save_tokens(s);
}

static void undo_turn(struct session *s, struct pending *p) {
    struct turn *t = session_turn(s, p->turn);
    if (s->engine_turn && t->number == s->engine_turn)
        routing_cancel(s, t->number); // its end will find no turn, and be ignored
    routing_wait_end(s);
    if (t->state != TURN_DONE)
        limits_turn_ends(s, t);
    else
        service_add_bytes(s, -turn_bytes(&t->rec));
    tree_pop_turn(s);
    if (s->dirty_from > (int64_t)s->n_turns) s->dirty_from = (int64_t)s->n_turns;
}

static void undo_edit(struct session *s, struct pending *p) {
    struct turn *t = session_turn(s, p->turn);
    head_move_back(s, p);
    service_add_bytes(s, -turn_bytes(&t->rec));
    tree_unlink_newest(s);
    if (s->dirty_from > (int64_t)s->n_turns) s->dirty_from = (int64_t)s->n_turns;
    turn_free(t);
}

static void swap(char **a, char **b) {
    char *other = *a;
    *a = *b;
    *b = other;
}

void save_swap_settings(struct session *s, struct pending *p) {
    if (p->sampling) {
        swap(&p->sampling, &s->rec.sampling);
        layers_changed(s);
    }
    if (p->note_changed) {
        service_add_bytes(s, -session_bytes(&s->rec));
        swap(&p->note, &s->rec.note);
        service_add_bytes(s, session_bytes(&s->rec));
    }
    if (p->share_changed) swap(&p->share, &s->rec.share);
    if (p->folder_changed) swap(&p->folder, &s->rec.folder);
}

static void undo_settings(struct session *s, struct pending *p) {
    title_restore(s, p);
    save_swap_settings(s, p);
    if (p->note_changed) s->marks &= ~(unsigned)MARK_NOTE;
    s->rec.pinned = p->pinned;
    s->rec.archived = p->archived;
    s->rec.cancel_after_ms = p->cancel_after_ms;
    s->rec.updated_ms = p->updated_ms;
}

static void undo(struct session *s, struct pending *p) {
    switch (p->kind) {
    case PENDING_OPEN:
        break; // the session goes as a whole
    case PENDING_TURN:
        if (!p->repeated) {
            undo_turn(s, p);
            head_move_back(s, p);
            undo_settings(s, p);
            s->awaits_turn = p->awaited;
        }
        break;
    case PENDING_REWIND:
        head_move_back(s, p);
        break;
    case PENDING_EDIT:
        undo_edit(s, p);
        break;
    case PENDING_ERASE:
        service_add_bytes(s, erasure_bytes(s));
        erasure_unmark(s);
        head_move_back(s, p);
        break;
    case PENDING_UPDATE:
        session_remove_event(s, p->seq);
        undo_settings(s, p);
        break;
    case PENDING_CLOSE:
        if (s->rec.closed_ms) session_remove_event(s, p->seq);
        s->rec.closed_ms = 0;
        break;
    }
}

void save_undo(struct session *s, struct pending *p) {
    DL_DELETE(s->pending, p);
    undo(s, p);
    pending_free(p);
}

const char *save_refusal(int rc) {
    return rc == E_EXISTS     ? "session_exists"
           : rc == E_NOTFOUND ? "session_not_found" // the session to copy
                              : "store_failed";
}

// Undoes the newest request first: each undo finds the session as its request had left it.
static void take_back(struct session *s, const struct store_job *job) {
    struct pending *answers = NULL, *p, *before;
    // utlist: the head's prev is the last.
    for (p = s->pending ? s->pending->prev : NULL; p; p = before) {
        before = p == s->pending ? NULL : p->prev;
        // A close that waits for its turn's end was not in the save.
        if (p->kind == PENDING_CLOSE && p->seq == INT64_MAX) continue;
        DL_DELETE(s->pending, p);
        undo(s, p);
        DL_PREPEND(answers, p);
    }
    while ((p = answers)) {
        DL_DELETE(answers, p);
        struct asker to = {.client = p->client, .request_id = p->request_id, .session = s->rec.id};
        answer_fail(s->service, &to, save_refusal(job->rc), "%s", job->err.text);
        pending_free(p);
    }
}

static void refused(struct session *s, const struct store_job *job) {
    struct sessions *ss = s->service;
    if (job->save->title_changed) s->marks |= MARK_TITLE;
    if (job->save->note_changed) s->marks |= MARK_NOTE;
    if (job->rc != E_EXISTS && job->rc != E_NOTFOUND) service_store_failed(ss, &job->err);
    if (job->rc == E_NOMEM) ss->memory_short = true;
    bool had_pending = s->pending;
    take_back(s, job);
    if (s->life == LIFE_OPENING) {
        s->save = SAVE_IDLE;
        clients_drop(s);
        return;
    }
    log_debug("session.save", "session=%s error=%s attempt=%lld taken_back=%d", s->rec.id,
              err_name(job->rc), (long long)s->n_failures + 1, had_pending);
    if (s->n_failures == 0) {
        s->refused_since_us = service_now(ss);
        ss->n_sessions_refused++;
    }
    deliver_stalled(s, &job->err, service_now(ss) - s->refused_since_us);
    retry_later(s);
}

void save_done(struct session *s, const struct store_job *job) {
    service_touch(s);
    if (job->rc == 0)
        saved(s, job->save);
    else
        refused(s, job);
}
