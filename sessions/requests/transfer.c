// Exports and imports on a running service. See transfer.h.
//
// The store's thread reads, writes and makes an export's text; a worker reads an import.
#include "sessions/requests/transfer.h"
#include "base/buf.h"
#include "base/err.h"
#include "sessions/archive/archive.h"
#include "sessions/clients/answers.h"
#include "sessions/clients/limits.h"
#include "sessions/clients/streams.h"
#include "sessions/requests/listing.h"
#include "sessions/turns/preparing.h"

#define PIECE_MAX_BYTES ((size_t)1 << 20) // of an export: far above what the archive makes of one

// --- export ------------------------------------------------------------------

static int begin(struct sessions *ss, const struct request *r, struct store_cursor *cursor) {
    struct store_job *job = cursor ? service_job(STORE_EXPORT, r, r->session) : NULL;
    if (!job) {
        if (cursor) cursor->free(cursor);
        return E_NOMEM;
    }
    buf_init(&job->archive, PIECE_MAX_BYTES);
    job->cursor = cursor;
    return streams_begin_job(ss, r, job);
}

int transfer_export(struct sessions *ss, const struct request *r) {
    if (limits_refuse_job(ss, r)) return 0;
    return begin(ss, r, archive_export_begin(r->owner, r->session));
}

// Readers without a token wait in one queue of the store, which is served as one owner's: they hold up no owner.
int transfer_shared(struct sessions *ss, const struct request *r) {
    char digest[SHARE_DIGEST_LEN + 1];
    if (share_digest(r->shared.token, digest) < 0) return refuse_not_found(ss, r);
    return begin(ss, r, archive_shared_begin(digest, r->shared.first));
}

// After the first piece, an error ends the answer.
void transfer_exported(struct sessions *ss, const struct store_job *job) {
    if (job->rc < 0 && !job->goes_on) {
        answer_job_failed(ss, job);
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

// Its session counts from here on, so that many imports at once stay within the limit.
static void count_import(struct sessions *ss, const char *owner, int n) {
    struct owner *o = owners_get(ss->owners, owner);
    if (!o) return;
    owner_use(o, OWNER_OUTSTANDING_JOBS, n);
    owner_use(o, OWNER_SESSIONS, n);
}

void transfer_import(struct sessions *ss, const struct request *r) {
    struct err err = {0};
    if (ss->draining)
        refuse(ss, r, "shutting_down", "the server is shutting down");
    else if (limits_refuse_job(ss, r) || limits_refuse_session(ss, r))
        return;
    else if (preparing_import(ss, r, &err) < 0)
        refuse_err(ss, r, &err);
    else
        count_import(ss, r->owner, 1);
}

void transfer_read(struct sessions *ss, struct preparation *p) {
    int64_t bytes = p->rc == 0 ? stored_session_bytes(p->imported) : 0;
    if (p->rc == 0 && limits_refuse_bytes(ss, p->import, bytes)) {
        count_import(ss, p->import->owner, -1);
        return;
    }
    struct store_job *job = p->rc == 0 ? service_job(STORE_IMPORT, p->import, NULL) : NULL;
    if (!job) {
        if (p->rc == 0) p->err.code = E_NOMEM;
        if (p->err.code == E_CORRUPT) p->err.code = E_FORMAT; // the file's fault, not ours
        count_import(ss, p->import->owner, -1);
        refuse_err(ss, p->import, &p->err);
        return;
    }
    limits_add_stored(ss, p->import->owner, 0, bytes);
    job->loaded = p->imported;
    p->imported = NULL;
    job->key = job->loaded->rec.key = ss->next_key++;
    store_send(ss->store, job);
}

void transfer_imported(struct sessions *ss, const struct store_job *job) {
    count_import(ss, job->owner, -1);
    if (job->rc < 0) {
        limits_add_stored(ss, job->owner, 0, -stored_session_bytes(job->loaded));
        answer_job_failed(ss, job);
        return;
    }
    struct session_answer a = {.kind = ANSWER_IMPORTED, .request_id = job->request_id};
    const struct session_record *r = &job->loaded->rec;
    listing_view(ss, r, &a.session);
    a.session_id = a.session.rec.id;
    limits_add_stored(ss, r->owner, 1, 0); // its bytes count since it was read
    service_changed(ss, r->key, r->owner, r->id, false);
    ss->cb.on_answer(ss->cb.ctx, job->client, &a);
}
