// Forks: a new session with a copy of a path. See fork.h.
//
// The store copies the rows in the transaction that makes the new session; memory copies the log and
// the turns' numbers; the engine shares the cache's blocks.
#include "sessions/requests/fork.h"
#include "base/err.h"
#include "sessions/caches/routing.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/limits.h"
#include "sessions/requests/opening.h"
#include "sessions/state/title.h"
#include "sessions/state/tree.h"
#include <stdlib.h>
#include <string.h>

// The turn to fork at, or TURN_HEAD: the request was refused. A turn has ended when clients may see its
// end: then its rows are on the disk, where they are copied.
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
        refuse(s->service, r, "invalid", "the session has no turn %lld", (long long)turn);
    else if (t->state != TURN_DONE || t->rec.seq_last > told)
        refuse(s->service, r, "session_busy", "turn %lld has not ended yet", (long long)turn);
    else
        return turn;
    return TURN_HEAD;
}

static int copy_record(struct session *to, const struct session *from, const struct request *r,
                       int64_t turn) {
    struct session_record *rec = &to->rec;
    char *id = rec->id;
    bool failed = false;
    free(rec->owner);
    int rc = session_record_copy(rec, &from->rec);
    free(rec->id);
    rec->id = id;
    TRY(rc);
    free(rec->forked_from);
    rec->forked_from = record_strdup(from->rec.id, &failed);
    for (size_t i = 0; i < RECORD_ORIGINS && i < from->n_origins + 1; i++)
        to->origins[to->n_origins++] =
            record_strdup(i ? from->origins[i - 1] : from->lasting, &failed);
    rec->forked_turn = turn;
    to->prompt = prompt_hold(from->prompt);
    free(rec->note); // a protocol's note is about the other session
    rec->note = record_strdup(r->temporary ? RECORD_TEMPORARY : NULL, &failed);
    if (r->title) {
        free(rec->title);
        rec->title = record_strdup(r->title, &failed);
        rec->auto_title = r->title[0] == '\0';
    }
    rec->key = rec->closed_ms = 0;
    rec->pinned = rec->archived = false;
    free(rec->folder);
    rec->folder = NULL;
    free(rec->share);
    rec->share = NULL;
    rec->stored_bytes = session_bytes(rec);
    rec->created_ms = rec->updated_ms = service_now_ms(to->service);
    return failed ? E_NOMEM : 0;
}

// A slim turn: its words are on the disk after the first save.
static int copy_turn(struct session *to, const struct turn *from) {
    struct turn *t = turn_new();
    if (!t) return E_NOMEM;
    t->rec = from->rec;
    t->rec.seq_first = t->rec.seq_last = 1;
    turn_forget_words(&t->rec);
    turn_set(t, TURN_DONE);
    t->out.n = t->out.cap = t->n_saved = from->out.n;
    t->storage = TURN_SLIM;
    if (tree_add_turn(to, t) < 0) {
        turn_free(t);
        return E_NOMEM;
    }
    t->said = from->said;
    to->rec.stored_bytes += turn_bytes(&from->rec);
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
    TRY(copy_record(to, from, r, turn));
    TRY(copy_path(to, from, turn));
    memcpy(to->first_words, from->first_words, sizeof to->first_words);
    if (!title_of(from, turn, to->first_words) || !to->rec.auto_title || r->title) return 0;
    free(to->rec.title);
    return (to->rec.title = strdup(to->first_words)) ? 0 : E_NOMEM;
}

// True when it has been answered.
static bool fork_refused(struct sessions *ss, const struct request *r) {
    if (ss->draining)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (r->title && strlen(r->title) > SESSION_TITLE_BYTES)
        refuse(ss, r, "invalid", "title has more than %d bytes", SESSION_TITLE_BYTES);
    else if (r->fork.new_session && !session_id_valid(r->fork.new_session))
        refuse(ss, r, "invalid", "new_session must be 1 to %d letters, digits, '-' or '_'",
               SESSION_ID_MAX);
    else if (r->fork.new_session && service_find(ss, r->owner, r->fork.new_session))
        refuse(ss, r, "session_exists", "there is a session '%s' already", r->fork.new_session);
    else
        return limits_refuse_session(ss, r) || limits_refuse_resident(ss, r);
    return true;
}

int fork_start(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    char drawn[SESSION_ID_MAX + 1];
    if (fork_refused(ss, r)) return 0;
    int64_t turn = fork_turn(s, r);
    if (turn == TURN_HEAD) return 0;
    if (!r->fork.new_session) sessions_draw_id(ss, drawn);
    struct session *copy =
        session_new(ss, r->owner, r->fork.new_session ? r->fork.new_session : drawn, LIFE_OPENING);
    if (!copy || fill_fork(copy, s, r, turn) < 0) {
        session_free(copy);
        return E_NOMEM;
    }
    TRY(opening_admit(copy, r, copy->head));
    if (!s->instance) return 0;
    routing_enter(copy, s->instance);
    engine_sequence_fork(s->instance->engine, (uint64_t)s->rec.key, (uint64_t)copy->rec.key,
                         (int64_t)copy->n_log);
    return 0;
}
