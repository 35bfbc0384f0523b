// Unicode's normalisation forms over utf8proc's tables. An ASCII character is its own normal form and
// never combines with the character before it. So ASCII text is copied, up to the last ASCII character
// before a run of others, and only such a run goes through the tables. Linear in the text: combining
// marks are sorted here, because utf8proc's own reordering is quadratic in a run of them.
#include "engine/text/normal_form.h"
#include "engine/text/char_class.h"
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_DECOMPOSED 32 // one character becomes at most 18 (U+FDFA under NFKC)

struct codepoints {
    utf8proc_int32_t *at;
    size_t len, cap;
};

static int reserve(struct codepoints *c, size_t more) {
    if (c->len + more <= c->cap) return 0;
    size_t cap = 2 * c->cap + more;
    utf8proc_int32_t *at = realloc(c->at, cap * sizeof *at);
    if (!at) return E_NOMEM;
    c->at = at;
    c->cap = cap;
    return 0;
}

static unsigned combining_class(utf8proc_int32_t c) {
    return (unsigned)utf8proc_get_property(c)->combining_class;
}

// Stable sort by combining class: by insertion while that is short, by counting otherwise.
static int sort_marks(utf8proc_int32_t *marks, size_t n) {
    if (n <= 16) {
        for (size_t i = 1; i < n; i++) {
            utf8proc_int32_t mark = marks[i];
            size_t j = i;
            for (; j > 0 && combining_class(marks[j - 1]) > combining_class(mark); j--)
                marks[j] = marks[j - 1];
            marks[j] = mark;
        }
        return 0;
    }
    utf8proc_int32_t *sorted = malloc(n * sizeof *sorted);
    if (!sorted) return E_NOMEM;
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++) at[combining_class(marks[i]) + 1]++;
    for (int c = 0; c < 256; c++) at[c + 1] += at[c];
    for (size_t i = 0; i < n; i++) sorted[at[combining_class(marks[i])]++] = marks[i];
    memcpy(marks, sorted, n * sizeof *sorted);
    free(sorted);
    return 0;
}

static int reorder(struct codepoints *c) {
    for (size_t i = 0, from; i < c->len; i++) {
        if (combining_class(c->at[i]) == 0) continue;
        for (from = i; i < c->len && combining_class(c->at[i]) != 0;) i++;
        TRY(sort_marks(c->at + from, i - from));
    }
    return 0;
}

static int normalize_stretch(enum normal_form form, const char *s, size_t len, struct codepoints *c,
                             struct buf *out) {
    bool compose = form == NORMAL_NFC || form == NORMAL_NFKC;
    int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE);
    if (form == NORMAL_NFKC || form == NORMAL_NFKD) options |= UTF8PROC_COMPAT;
    c->len = 0;
    int boundary = 0;
    for (const char *end = s + len; s < end; s += char_utf8_len(s)) {
        TRY(reserve(c, MAX_DECOMPOSED));
        utf8proc_ssize_t n = utf8proc_decompose_char(
            (utf8proc_int32_t)char_decode(s), c->at + c->len, MAX_DECOMPOSED, options, &boundary);
        if (n < 0 || n > MAX_DECOMPOSED) return E_INTERNAL;
        c->len += (size_t)n;
    }
    TRY(reorder(c));
    utf8proc_ssize_t n = (utf8proc_ssize_t)c->len;
    if (compose) n = utf8proc_normalize_utf32(c->at, n, options);
    if (n < 0) return E_INTERNAL;
    for (utf8proc_ssize_t i = 0; i < n; i++) {
        utf8proc_uint8_t utf8[4];
        utf8proc_ssize_t size = utf8proc_encode_char(c->at[i], utf8);
        TRY(buf_add(out, utf8, (size_t)size));
    }
    return 0;
}

int normal_form_apply(enum normal_form form, struct rewrite *r) {
    struct codepoints c = {0};
    struct buf stretch;
    const char *text = r->text;
    size_t len = r->len;
    int rc = 0;
    buf_init(&stretch, SIZE_MAX);
    for (size_t i = 0, ascii, end; i < len && rc == 0; i = end) {
        for (ascii = i; ascii < len && (unsigned char)text[ascii] < 0x80;) ascii++;
        for (end = ascii; end < len && (unsigned char)text[end] >= 0x80;) end++;
        // The last ASCII character may take the marks behind it.
        size_t copied = ascii > i && ascii < len ? ascii - 1 : ascii;
        rc = rewrite_copy(r, copied - i);
        if (rc < 0 || copied == end) continue;
        buf_reset(&stretch);
        rc = normalize_stretch(form, text + copied, end - copied, &c, &stretch);
        if (rc < 0) break;
        // It took none: its border stands
        size_t same = copied < ascii && stretch.data[0] == text[copied];
        rc = rewrite_copy(r, same);
        if (rc == 0)
            rc = rewrite_put(r, end - copied - same, stretch.data + same, stretch.len - same);
    }
    free(c.at);
    buf_release(&stretch);
    return rc;
}
