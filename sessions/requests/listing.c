// Lists and searches: rows of the database; a session in memory is shown as it is there. See
// listing.h.
#include "sessions/requests/listing.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/limits.h"
#include "sessions/clients/streams.h"
#include "sessions/requests/settle.h"
#include "sessions/state/record_view.h"
#include <stdlib.h>
#include <string.h>

#define LIST_DEFAULT 50
#define LIST_MAX 200
#define PIECE_BYTES ((size_t)64 << 10) // of rows

int listing_start(struct sessions *ss, const struct request *r) {
    bool failed = false;
    struct store_job *job = service_job(STORE_LIST, r, NULL);
    struct store_list *l = job ? job->list = calloc(1, sizeof *l) : NULL;
    if (l) {
        l->owner = record_strdup(r->owner, &failed);
        l->query = record_strdup(r->list.query, &failed);
        l->forked_from = record_strdup(r->list.forked_from, &failed);
        l->cursor = record_strdup(r->list.cursor, &failed);
        l->pinned = r->pinned;
        l->archived = r->archived;
        l->in_folder = r->in_folder;
        l->limit = r->limit <= 0 ? LIST_DEFAULT : r->limit > LIST_MAX ? LIST_MAX : r->limit;
        l->max_bytes = PIECE_BYTES;
    }
    if (l && !failed) return streams_begin_job(ss, r, job);
    store_job_free(job);
    return E_NOMEM;
}

// Memory is newer than the disk.
void listing_view(struct sessions *ss, const struct session_record *row, struct session_view *out) {
    const struct session *s = service_find(ss, row->owner, row->id);
    if (s && session_is_known(s)) {
        session_view_fill(s, out);
        return;
    }
    char lasting[SESSION_LASTING_BYTES];
    session_lasting_name(row->owner, row->id, lasting);
    record_session_view(row, out);
    out->snapshot = placement_has_snapshot(&ss->placement, lasting);
}

// A list that fails behind its first piece ends there, with a cursor for the rest.
static void answer_list(struct sessions *ss, struct store_job *job) {
    struct store_list *l = job->list;
    struct asker to = {.client = job->client, .request_id = job->request_id};
    struct session_view *views = calloc(l->n_rows + 1, sizeof *views);
    if (!views) job->rc = E_NOMEM;
    if (job->rc < 0 && !job->goes_on) {
        answer_error(ss, &to, job->rc == E_INVAL || job->rc == E_BUSY ? NULL : "store_failed",
                     job->rc, job->err.text);
        free(views);
        return;
    }
    if (job->rc < 0) {
        store_list_cut(l);
        store_list_clear(l);
    }
    for (size_t i = 0; i < l->n_rows; i++) {
        listing_view(ss, &l->rows[i], &views[i]);
        if (!l->places) continue;
        views[i].found_turn = l->places[i].turn;
        views[i].found_text = l->places[i].text;
    }
    struct session_answer a = {.kind = ANSWER_LIST,
                               .request_id = job->request_id,
                               .sessions = views,
                               .n_sessions = l->n_rows,
                               .first = !job->goes_on,
                               .last = job->rc < 0 || !job->more,
                               .cursor = l->next[0] ? l->next : NULL};
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
    free(views);
}

// One row, for a watcher.
static void answer_changed(struct sessions *ss, const struct store_job *job) {
    const struct store_list *l = job->list;
    struct session_answer a = {.kind = ANSWER_CHANGED, .request_id = ""};
    if (job->rc == 0 && l->n_rows == 1 && strcmp(l->rows[0].owner, l->owner) == 0)
        listing_view(ss, &l->rows[0], &a.session);
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}

void listing_done(struct sessions *ss, struct store_job *job) {
    if (job->key)
        answer_changed(ss, job);
    else
        answer_list(ss, job);
}

void listing_news(struct sessions *ss, const struct store_list *l) {
    for (size_t i = 0; i < l->n_rows; i++) {
        limits_add_stored(ss, l->rows[i].owner, 1, l->rows[i].stored_bytes);
        service_changed(ss, l->rows[i].key, l->rows[i].owner, l->rows[i].id, false);
    }
}

// --- for watchers ------------------------------------------------------------

static int read_changed(struct sessions *ss, uint64_t client, const char *owner, int64_t key) {
    bool failed = false;
    struct store_job *job = store_job_new(STORE_LIST, key);
    struct store_list *l = job ? calloc(1, sizeof *l) : NULL;
    if (job) job->list = l;
    if (l) {
        job->client = client;
        l->owner = record_strdup(owner, &failed);
        l->keys = record_memdup(&key, sizeof key, &failed);
        l->n_keys = 1;
    }
    if (!l || failed) {
        store_job_free(job);
        return E_NOMEM;
    }
    service_enter(ss);
    store_send(ss->store, job);
    service_leave(ss);
    return 0;
}

int sessions_changed(struct sessions *ss, uint64_t client, const char *owner, int64_t key,
                     struct session_view *out) {
    const struct session *s = service_find_key(ss, key);
    if (!s || !session_is_known(s)) return read_changed(ss, client, owner, key);
    session_view_fill(s, out);
    return 1;
}
