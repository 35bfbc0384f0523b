// See rewrite.h.
#include "engine/text/rewrite.h"

void rewrite_init(struct rewrite *r, const char *text, size_t len, struct buf *out,
                  struct text_span *spans, size_t n_spans) {
    *r = (struct rewrite){
        .text = text, .len = len, .out = out, .spans = spans, .n = 2 * n_spans, .at_start = true};
}

static size_t *border(struct rewrite *r) {
    return r->next % 2 ? &r->spans[r->next / 2].to : &r->spans[r->next / 2].from;
}

int rewrite_copy(struct rewrite *r, size_t n) {
    size_t end = r->done + n;
    for (; r->next < r->n && *border(r) <= end; r->next++)
        *border(r) = *border(r) - r->done + r->out->len;
    int rc = buf_add(r->out, r->text + r->done, n);
    r->done = end;
    return rc;
}

// A border at the start of the changed bytes stays in front of them; one inside moves out, so that the
// span grows. Bytes inserted at the start of the text (n is 0) belong to the bytes after them.
int rewrite_put(struct rewrite *r, size_t n, const char *bytes, size_t len) {
    size_t before = r->out->len, end = r->done + n;
    for (; r->next < r->n && *border(r) <= r->done && n > 0; r->next++) *border(r) = before;
    for (; r->next < r->n && *border(r) < end; r->next++)
        *border(r) = r->next % 2 ? before + len : before;
    if (n > 0 && len == 0 && before == 0) r->at_start = false;
    r->done = end;
    return buf_add(r->out, bytes, len);
}

int rewrite_end(struct rewrite *r) {
    TRY(rewrite_copy(r, r->len - r->done));
    return buf_reserve(r->out, 0);
}
