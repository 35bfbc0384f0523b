// Finds turns by what stateless clients know of them. The store reads; the protocol uses the answer. See
// told.h.
#include "sessions/requests/match.h"
#include "base/err.h"
#include "sessions/clients/answers.h"
#include <stdlib.h>

static int copy_digests(struct store_told *q, const struct request *r) {
    bool failed = false;
    q->digests = calloc(r->match.n_digests + 1, sizeof *q->digests);
    if (!q->digests) return E_NOMEM;
    for (; q->n_digests < r->match.n_digests && !failed; q->n_digests++)
        q->digests[q->n_digests] = record_strdup(r->match.digests[q->n_digests], &failed);
    q->session = record_strdup(r->session, &failed);
    return failed ? E_NOMEM : 0;
}

int match_start(struct sessions *ss, const struct request *r) {
    bool failed = false;
    struct store_job *job = service_job(STORE_TOLD, r, r->session);
    struct store_told *q = job ? job->told = calloc(1, sizeof *q) : NULL;
    if (q) q->all = r->match.all;
    if (q) q->fingerprint = record_strdup(r->match.fingerprint, &failed);
    if (!q || failed || copy_digests(q, r) < 0) {
        store_job_free(job);
        return E_NOMEM;
    }
    store_send(ss->store, job);
    return 0;
}

void match_done(struct sessions *ss, struct store_job *job) {
    struct session_answer a = {
        .kind = ANSWER_MATCHED, .request_id = job->request_id, .matched = &job->told};
    if (job->rc < 0)
        answer_job_failed(ss, job);
    else
        ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}
