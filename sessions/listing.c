// Lists and searches: rows of the database, shown as they are in memory where they are. See
// service.h.
#include "base/err.h"
#include "sessions/answers.h"
#include "sessions/service.h"
#include <stdlib.h>
#include <string.h>

#define LIST_DEFAULT 50
#define LIST_MAX 200

void listing_start(struct sessions *ss, const struct request *r) {
    bool failed = false;
    struct store_job *job = service_job(STORE_LIST, r, NULL);
    struct store_list *l = job ? job->list = calloc(1, sizeof *l) : NULL;
    if (l) {
        l->owner = record_strdup(r->owner, &failed);
        l->query = record_strdup(r->query, &failed);
        l->forked_from = record_strdup(r->forked_from, &failed);
        l->cursor = record_strdup(r->cursor, &failed);
        l->limit = r->limit <= 0 ? LIST_DEFAULT : r->limit > LIST_MAX ? LIST_MAX : r->limit;
    }
    if (!l || failed) {
        store_job_free(job);
        refuse_memory(ss, r);
    } else {
        store_send(ss->store, job);
    }
}

// Memory is newer than the disk.
void listing_view(struct sessions *ss, const struct session_record *row, struct session_view *out) {
    const struct session *s = service_find(ss, row->owner, row->id);
    if (s && session_is_known(s)) {
        session_view_fill(s, out);
        return;
    }
    struct session cold = {.rec = *row, .running = -1};
    char lasting[SESSION_LASTING_BYTES];
    session_view_fill(&cold, out);
    out->state = row->closed_ms ? SESSION_CLOSED : row->n_tokens ? SESSION_COLD : SESSION_OPEN;
    session_lasting_name(row->owner, row->id, lasting);
    out->snapshot = engine_has_snapshot(ss->engine, lasting);
    out->n_turns = row->n_turns;
    out->n_tokens = row->n_tokens;
    out->seq = row->seq;
    out->head = row->head;
    out->below = -1;
}

void listing_done(struct sessions *ss, struct store_job *job) {
    struct store_list *l = job->list;
    struct asker to = {.client = job->client, .request_id = job->request_id, .session = NULL};
    struct session_view *views = job->rc < 0 ? NULL : calloc(l->n_rows + 1, sizeof *views);
    if (!views) {
        int rc = job->rc < 0 ? job->rc : E_NOMEM;
        answer_error(ss, &to, rc == E_INVAL || rc == E_BUSY ? NULL : "store_failed", rc,
                     job->err.text);
        return;
    }
    for (size_t i = 0; i < l->n_rows; i++) listing_view(ss, &l->rows[i], &views[i]);
    struct session_answer a = {.kind = ANSWER_LIST,
                               .request_id = job->request_id,
                               .sessions = views,
                               .n_sessions = l->n_rows,
                               .cursor = l->next[0] ? l->next : NULL};
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
    free(views);
}

void listing_news(struct sessions *ss, const struct store_list *l) {
    struct session_view view;
    for (size_t i = 0; i < l->n_rows && ss->cb.on_changed && !ss->closing; i++) {
        listing_view(ss, &l->rows[i], &view);
        ss->cb.on_changed(ss->cb.ctx, l->rows[i].owner, &view, false);
    }
}
