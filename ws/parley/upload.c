// See upload.h.
#include "ws/parley/upload.h"

void upload_release(struct upload *u) {
    if (u->total) *u->total -= u->text.len;
    buf_release(&u->text);
    *u = (struct upload){0};
}

void upload_tick(struct upload *u, int64_t now_us) {
    if (u->total && now_us - u->since_us > UPLOAD_PAUSE_US) upload_release(u);
}

static int add(struct upload *u, int64_t at, const char *piece, size_t len, struct err *err) {
    if (at < 0 || (size_t)at != u->text.len)
        return err_set(err, E_INVAL, "at is %lld, but %zu bytes of the archive have come",
                       (long long)at, u->text.len);
    if (len > UPLOAD_TOTAL_BYTES - *u->total)
        return err_set(err, E_BUSY, "other archives are being imported");
    int rc = buf_add(&u->text, piece, len);
    if (rc == E_LIMIT)
        return err_set(err, rc, "an archive may have %zu bytes", (size_t)UPLOAD_BYTES);
    if (rc < 0) return err_set(err, E_BUSY, "the server is out of memory");
    *u->total += len;
    return 0;
}

int upload_add(struct upload *u, size_t *total, int64_t at, const char *piece, size_t len,
               int64_t now_us, struct err *err) {
    if (at == 0) upload_release(u);
    if (!u->total) buf_init(&u->text, UPLOAD_BYTES);
    u->total = total;
    u->since_us = now_us;
    int rc = add(u, at, piece, len, err);
    if (rc < 0) upload_release(u);
    return rc;
}
