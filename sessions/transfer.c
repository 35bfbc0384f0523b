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

#define PIECE_MAX_BYTES ((size_t)1 << 20) // of an export: far above what the archive makes of one

static const char *job_code(const struct store_job *job) {
    const char *code = answer_code(job->rc);
    return strcmp(code, "internal") == 0 ? "store_failed" : code;
}

// What the store refused, in the words of the wire.
static void fail_job(struct sessions *ss, const struct store_job *job) {
    // The same sentence as for a missing session: another owner's must not show.
    const char *message = job->rc == E_NOTFOUND ? "there is no such session" : job->err.text;
    struct asker to = {.client = job->client, .request_id = job->request_id, .session = job->id};
    answer_error(ss, &to, job_code(job), job->rc, message);
}

// --- export ------------------------------------------------------------------

int transfer_export(struct sessions *ss, const struct request *r) {
    struct store_job *job = service_job(STORE_EXPORT, r, r->session);
    if (job) {
        buf_init(&job->archive, PIECE_MAX_BYTES);
        job->cursor = archive_export_begin(r->owner, r->session);
    }
    if (job && job->cursor) return streams_begin(ss, r, job);
    store_job_free(job);
    return E_NOMEM;
}

// Behind the first piece an error ends the answer.
void transfer_exported(struct sessions *ss, const struct store_job *job) {
    if (job->rc < 0 && !job->goes_on) {
        fail_job(ss, job);
        return;
    }
    struct session_answer a = {.kind = ANSWER_EXPORTED,
                               .request_id = job->request_id,
                               .session_id = job->id,
                               .first = !job->goes_on,
                               .last = job->rc < 0 || !job->more,
                               .archive = buf_z(&job->archive),
                               .archive_len = job->rc < 0 ? 0 : job->archive.len};
    if (job->rc < 0) a.code = job_code(job), a.message = job->err.text;
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}

// --- import ------------------------------------------------------------------

void transfer_import(struct sessions *ss, const struct request *r) {
    struct err err = {0};
    if (ss->draining)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (!limits_refuse_session(ss, r) && preparing_import(ss, r, &err) < 0)
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
    const struct session_record *r = &job->loaded->rec;
    listing_view(ss, r, &a.session);
    a.session_id = a.session.id;
    limits_add_stored(ss, r->owner, 1, stored_session_bytes(job->loaded));
    service_changed(ss, r->key, r->owner, r->id, false);
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}
