// Older turns: their words are read from the disk when a request needs them. See history.h.
//
// A session keeps the words, log-probabilities and settings of its last HISTORY_TURNS turns, and of
// turns whose events a client has not taken yet. Of older turns it keeps a slim row: where their tokens
// and events lie. A request that needs more waits until the store has read those turns, and so do later
// requests for this session. When the session is settled, these turns become slim again.
#include "sessions/requests/history.h"
#include "base/err.h"
#include "sessions/clients/clients.h"
#include "sessions/requests/outline.h"
#include "sessions/state/title.h"
#include "sessions/state/tree.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

void history_trim(struct session *s) {
    size_t limit = s->n_turns > HISTORY_TURNS ? s->n_turns - HISTORY_TURNS : 0;
    int64_t told = INT64_MAX; // every client has taken the events up to here
    const struct attachment *a;
    if (s->preparing) return; // that request runs again, and needs the turns that were read for it
    if (limit > (size_t)s->dirty_from) limit = (size_t)s->dirty_from;
    if (s->full_from >= limit) return;
    DL_FOREACH(s->attachments, a) {
        if (a->cursor < told) told = a->cursor;
    }
    while (s->full_from < limit && s->turns[s->full_from]->rec.seq_last <= told) {
        struct turn *t = s->turns[s->full_from++];
        if (t->storage == TURN_SLIM) continue;
        title_keep(s);
        turn_slim(t);
    }
}

static size_t add_slim(const struct session *s, int64_t turn, int64_t *list) {
    const struct turn *t = session_turn(s, turn);
    list[0] = turn;
    return t && t->storage == TURN_SLIM;
}

static int missing_of_page(const struct session *s, const struct request *r, int64_t *list,
                           size_t *n) {
    struct session_page page;
    TRY(session_page(s, r->last, r->before, &page));
    for (size_t i = 0; i < page.n; i++) *n += add_slim(s, page.turns[i], list + *n);
    free(page.turns);
    return 0;
}

// Slim turns are over: their last number is known.
static size_t missing_since(const struct session *s, int64_t after, int64_t *list) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_turns; i++)
        if (s->turns[i]->rec.seq_last > after && s->turns[i]->rec.seq_first > 1)
            n += add_slim(s, (int64_t)i, list + n);
    return n;
}

// The turns whose ids a move of the head, or a fork, needs.
static int missing_of_path(const struct session *s, int64_t turn, bool leaf, int64_t *list,
                           size_t *n) {
    if (turn >= (int64_t)s->n_turns || turn < 0) return 0; // the empty log, or none at all
    if (leaf) turn = tree_newest_below(s, turn);
    if (turn < 0) return E_NOMEM;
    *n += tree_missing(s, turn, list + *n);
    return 0;
}

static size_t missing_of_outline(const struct session *s, const struct request *r, int64_t *list) {
    int64_t turns[OUTLINE_TURNS_MAX], next;
    size_t n = outline_turns(s, r, turns, &next), n_slim = 0;
    for (size_t i = 0; i < n; i++) n_slim += add_slim(s, turns[i], list + n_slim);
    return n_slim;
}

// Lists the turns that the request needs and that are not in memory (list: room for all turns, and one).
static int missing(const struct session *s, const struct request *r, int64_t *list, size_t *n) {
    bool forks =
        r->kind == REQUEST_FORK || (r->kind == REQUEST_START && r->start.in == START_OR_FORK);
    bool busy = session_has_turn(s) && !forks; // then the head will not be moved
    const struct turn *t = session_turn(s, r->turn == TURN_HEAD ? s->head : r->turn);
    switch (r->kind) {
    case REQUEST_GET:
        return missing_of_page(s, r, list, n);
    case REQUEST_ATTACH:
        if (r->after >= 0) *n = missing_since(s, r->after, list);
        return 0;
    case REQUEST_START:
    case REQUEST_WRITE:
    case REQUEST_FORK:
    case REQUEST_REWIND:
        return busy ? 0 : missing_of_path(s, r->turn, r->leaf, list, n);
    case REQUEST_REGENERATE:
    case REQUEST_EDIT:
        if (!t || busy) return 0;
        *n = add_slim(s, t->rec.turn, list);
        return missing_of_path(s, t->rec.parent, false, list, n);
    case REQUEST_OUTLINE:
        *n = missing_of_outline(s, r, list);
        return 0;
    default:
        return 0;
    }
}

static int by_number(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

int history_need(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct store_job *job = NULL;
    size_t n = 0;
    int64_t *list = malloc((s->n_turns + 1) * sizeof *list);
    int rc = list ? missing(s, r, list, &n) : E_NOMEM;
    if (rc < 0 || n == 0) {
        free(list);
        return rc;
    }
    qsort(list, n, sizeof *list, by_number);
    struct request *copy = request_copy(r);
    if (copy) job = store_job_new(STORE_TURNS, s->rec.key);
    if (!job || clients_defer(ss, r->client) < 0) {
        free(list);
        store_job_free(job);
        request_free(copy);
        return E_NOMEM;
    }
    job->owner = strdup(s->rec.owner); // without memory the read waits in the server's queue
    job->turns = list;
    job->n_turns = n;
    s->paging = copy;
    store_send(ss->store, job);
    return HISTORY_WAITS;
}

// The turns that were read take the places of the slim ones.
int history_fill(struct session *s, const struct stored_session *got) {
    for (size_t i = 0; i < got->n_turns; i++) {
        struct turn *old = session_turn(s, got->turns[i].rec.turn);
        if (!old || old->storage != TURN_SLIM) continue;
        struct turn *t = turn_new();
        int rc = t ? turn_restore(t, &got->turns[i]) : E_NOMEM;
        if (rc == 0 && t->out.n != old->out.n) rc = E_CORRUPT;
        if (rc < 0) {
            turn_free(t);
            return rc;
        }
        t->children = old->children;
        t->older = old->older;
        t->newer = old->newer;
        t->on_path = old->on_path;
        s->turns[old->rec.turn] = t;
        if ((size_t)t->rec.turn < s->full_from) s->full_from = (size_t)t->rec.turn;
        turn_free(old);
    }
    return 0;
}
