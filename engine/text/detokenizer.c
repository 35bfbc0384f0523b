// See detokenizer.h. An unfinished character is at most 3 bytes, so the state is a few bytes by
// value.
#include "engine/text/detokenizer.h"
#include "base/utf8.h"
#include <string.h>

void detokenizer_init(struct detokenizer *d, const struct tokenizer *t) {
    *d = (struct detokenizer){.tokenizer = t};
}

// Joins the pending bytes with the first few new ones and gives out what that completes. *used: new
// bytes consumed.
static int finish_pending(struct detokenizer *d, const char *bytes, size_t len, size_t *used,
                          struct buf *out) {
    char joined[sizeof d->pending];
    size_t n = d->n_pending, more = sizeof joined - n;
    if (more > len) more = len;
    memcpy(joined, d->pending, n);
    memcpy(joined + n, bytes, more);
    size_t whole = utf8_complete_len(joined, n + more);
    if (whole < n) whole = 0; // all of it still waits
    TRY(utf8_sanitize(out, joined, whole));
    *used = whole ? whole - n : more;
    d->n_pending = whole ? 0 : (unsigned)(n + more);
    memcpy(d->pending, joined, d->n_pending);
    return 0;
}

int detokenizer_feed(struct detokenizer *d, int32_t id, struct buf *out) {
    size_t len, used = 0;
    const char *bytes = tokenizer_bytes(d->tokenizer, id, &len);
    if (!bytes) return E_INVAL;
    if (tokenizer_is_special(d->tokenizer, id)) return 0;
    d->started = true;
    if (d->n_pending) TRY(finish_pending(d, bytes, len, &used, out));
    if (d->n_pending) return 0;
    bytes += used;
    len -= used;
    size_t whole = utf8_complete_len(bytes, len);
    TRY(utf8_sanitize(out, bytes, whole));
    d->n_pending = (unsigned)(len - whole);
    memcpy(d->pending, bytes + whole, d->n_pending);
    return 0;
}

int detokenizer_flush(struct detokenizer *d, struct buf *out) {
    int rc = utf8_sanitize(out, d->pending, d->n_pending);
    detokenizer_init(d, d->tokenizer);
    return rc;
}
