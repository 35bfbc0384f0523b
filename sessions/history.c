// Older turns of a conversation in memory: what nobody asks for is on the disk alone. See
// service.h.
//
// A session keeps the words, log-probabilities and settings of its last HISTORY_TURNS turns, and of
// those that a client has yet to be told of. Of the ones before it keeps a slim row: where their
// tokens and events lie. A request that needs more waits, and with it what comes behind it for this
// session, until the store has read those turns; what it brought goes again when it is settled.
#include "base/err.h"
#include "base/log.h"
#include "sessions/service.h"
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// The first words of a conversation are its automatic title for ever.
static void keep_first_words(struct session *s, const struct turn_record *r) {
    if (!s->first_words[0] && r->input_text)
        session_title_from(r->input_text, r->input_text_len, s->first_words, sizeof s->first_words);
}

void history_trim(struct session *s) {
    size_t limit = s->n_turns > HISTORY_TURNS ? s->n_turns - HISTORY_TURNS : 0;
    int64_t told = INT64_MAX; // every client has taken what is up to here
    const struct attachment *a;
    if (limit > (size_t)s->dirty_from) limit = (size_t)s->dirty_from;
    if (s->full_from >= limit) return;
    DL_FOREACH(s->attachments, a) {
        if (a->cursor < told) told = a->cursor;
    }
    while (s->full_from < limit && s->turns[s->full_from]->rec.seq_last <= told) {
        struct turn *t = s->turns[s->full_from++];
        if (t->slim) continue;
        keep_first_words(s, &t->rec);
        turn_slim(t);
    }
}

// The turns that the request needs and memory has not, as [first, end). False: none.
static bool missing(const struct session *s, const struct request *r, int64_t *first,
                    int64_t *end) {
    size_t from = s->n_turns, to = s->n_turns;
    if (r->kind == REQUEST_GET)
        session_page(s, r->last, r->before, &from, &to);
    else if (r->kind == REQUEST_ATTACH && r->after >= 0) // slim ones are over: their last is known
        for (from = 0; from < to && s->turns[from]->slim; from++)
            if (s->turns[from]->rec.seq_last > r->after) break;
    while (from < to && !s->turns[from]->slim) from++;
    while (to > from && !s->turns[to - 1]->slim) to--;
    *first = (int64_t)from;
    *end = (int64_t)to;
    return from < to;
}

int history_need(struct session *s, const struct request *r) {
    struct sessions *ss = s->service;
    struct store_job *job = NULL;
    int64_t first, end;
    if (!debug_needs(s, r, &first, &end) && !missing(s, r, &first, &end)) return 0;
    struct request *copy = request_copy(r);
    if (copy) job = store_job_new(STORE_TURNS, s->rec.key);
    if (!job || deliver_defer(ss, r->client) < 0) {
        store_job_free(job);
        request_free(copy);
        return E_NOMEM;
    }
    job->first = first;
    job->end = end;
    s->paging = copy;
    store_send(ss->store, job);
    return HISTORY_WAITS;
}

// What came takes the slim ones' places.
static int fill(struct session *s, const struct stored_session *got) {
    for (size_t i = 0; i < got->n_turns; i++) {
        struct turn *old = session_turn(s, got->turns[i].rec.turn);
        if (!old || !old->slim) continue;
        struct turn *t = turn_new();
        int rc = t ? turn_restore(t, &got->turns[i]) : E_NOMEM;
        if (rc == 0 && t->n_out != old->n_out) rc = E_CORRUPT;
        if (rc < 0) {
            turn_free(t);
            return rc;
        }
        s->turns[old->rec.turn] = t;
        if ((size_t)t->rec.turn < s->full_from) s->full_from = (size_t)t->rec.turn;
        turn_free(old);
    }
    return 0;
}

void history_done(struct sessions *ss, struct store_job *job) {
    struct session *s = service_find_key(ss, job->key);
    if (!s || !s->paging) return;
    struct request *r = s->paging;
    s->paging = NULL;
    r->client = deliver_resume(ss, r->client);
    int64_t first, end;
    bool shown = debug_needs(s, r, &first, &end); // as it is, not to be kept
    int rc = job->rc;
    if (rc == 0 && (int64_t)job->loaded->n_turns != job->end - job->first) rc = E_CORRUPT;
    if (rc == 0 && !shown) rc = fill(s, job->loaded);
    if (rc < 0) {
        if (rc == E_NOMEM)
            err_set(&job->err, rc, "the server is out of memory");
        else if (rc == E_CORRUPT)
            err_set(&job->err, rc, "the record of this session is damaged");
        log_error("session.history", "session=%s error=%s", s->rec.id, err_name(rc));
        requests_fail(ss, r->client, r->request_id, s->rec.id,
                      rc == E_NOMEM ? "overloaded" : "store_failed",
                      rc == E_NOMEM ? RETRY_AFTER_MS : 0, job->err.text);
    } else if (shown) {
        debug_read(s, r, job->loaded);
    } else {
        requests_run(s, r);
    }
    request_free(r);
    requests_run_deferred(s);
    service_touch(s);
}
