// Exports and imports on a running service. See service.h.
//
// The store's thread reads, writes and makes an export's text; a worker reads an import.
#include "base/buf.h"
#include "base/err.h"
#include "sessions/answers.h"
#include "sessions/archive/archive.h"
#include "sessions/preparing.h"
#include "sessions/service.h"
#include <string.h>

// What the store refused, in the words of the wire.
static void fail_job(struct sessions *ss, const struct store_job *job) {
    const char *code = answer_code(job->rc);
    if (job->rc == E_LIMIT) code = "too_large";
    if (!strcmp(code, "internal")) code = "store_failed";
    // The same sentence as for a missing session: another owner's must not show.
    const char *message = job->rc == E_NOTFOUND ? "there is no such session" : job->err.text;
    struct asker to = {.client = job->client, .request_id = job->request_id, .session = job->id};
    answer_error(ss, &to, code, job->rc, message);
}

// --- export ------------------------------------------------------------------

void transfer_export(struct sessions *ss, const struct request *r) {
    struct store_job *job = service_job(STORE_EXPORT, r, r->session);
    if (!job) {
        refuse_memory(ss, r);
        return;
    }
    buf_init(&job->archive, TRANSFER_BYTES);
    job->render = archive_export;
    store_send(ss->store, job);
}

void transfer_exported(struct sessions *ss, const struct store_job *job) {
    if (job->rc < 0) {
        fail_job(ss, job);
        return;
    }
    struct session_answer a = {.kind = ANSWER_EXPORTED,
                               .request_id = job->request_id,
                               .session_id = job->id,
                               .archive = job->archive.data,
                               .archive_len = job->archive.len};
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}

// --- import ------------------------------------------------------------------

void transfer_import(struct sessions *ss, const struct request *r) {
    struct err err = {0};
    if (ss->draining)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (preparing_import(ss, r, &err) < 0)
        refuse_err(ss, r, &err);
}

void transfer_read(struct sessions *ss, struct preparation *p) {
    struct store_job *job = p->rc == 0 ? service_job(STORE_IMPORT, p->import, NULL) : NULL;
    if (!job) {
        if (p->rc == 0) p->err.code = E_NOMEM;
        if (p->err.code == E_CORRUPT) p->err.code = E_FORMAT; // the file's fault, not ours
        refuse_err(ss, p->import, &p->err);
        return;
    }
    job->loaded = p->imported;
    p->imported = NULL;
    job->key = job->loaded->rec.key = ss->next_key++;
    store_send(ss->store, job);
}

void transfer_imported(struct sessions *ss, const struct store_job *job) {
    if (job->rc < 0) {
        fail_job(ss, job);
        return;
    }
    struct session_answer a = {.kind = ANSWER_IMPORTED, .request_id = job->request_id};
    listing_view(ss, &job->loaded->rec, &a.session);
    a.session_id = a.session.id;
    if (ss->cb.on_changed && !ss->closing)
        ss->cb.on_changed(ss->cb.ctx, job->loaded->rec.owner, &a.session, false);
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}
