// See stop_matcher.h. A stop string matches at the byte that completes it, however the text was cut
// into pieces. If one byte completes several, the longest one matches. Without a match, the longest
// suffix of the text that begins a stop string is held back.
#include "engine/text/stop_matcher.h"
#include "base/err.h"
#include "base/utf8.h"
#include <string.h>

int stop_matcher_init(struct stop_matcher *m, const char *const *strings, int n_strings) {
    *m = (struct stop_matcher){.matched = -1};
    if (n_strings < 0 || n_strings > STOP_MAX_STRINGS) return E_INVAL;
    for (int i = 0; i < n_strings; i++) {
        size_t len = strlen(strings[i]);
        if (len == 0 || len > STOP_MAX_BYTES - 1 || !utf8_valid(strings[i], len)) return E_INVAL;
        m->strings[i] = strings[i];
        m->lens[i] = len;
    }
    m->n_strings = n_strings;
    return 0;
}

// The bytes held and the new ones as one text.
struct window {
    const char *held, *text;
    size_t n_held;
};

static bool window_equals(const struct window *w, size_t from, const char *s, size_t len) {
    if (from < w->n_held) {
        size_t part = w->n_held - from < len ? w->n_held - from : len;
        if (memcmp(w->held + from, s, part) != 0) return false;
        from += part;
        s += part;
        len -= part;
    }
    return len == 0 || memcmp(w->text + from - w->n_held, s, len) == 0;
}

static int window_give(const struct window *w, size_t len, struct buf *out) {
    size_t part = len < w->n_held ? len : w->n_held;
    TRY(buf_add(out, w->held, part));
    return buf_add(out, w->text, len - part);
}

// The longest stop string that ends at `end`; its last byte is compared first, which nearly always
// settles it.
static int completed_at(const struct stop_matcher *m, const struct window *w, size_t end) {
    int best = -1;
    char last = w->text[end - 1 - w->n_held];
    for (int i = 0; i < m->n_strings; i++) {
        size_t len = m->lens[i];
        if (len > end || m->strings[i][len - 1] != last || (best >= 0 && m->lens[best] >= len))
            continue;
        if (window_equals(w, end - len, m->strings[i], len)) best = i;
    }
    return best;
}

// The number of bytes at the end of the window that may be the start of a stop string.
static size_t held_len(const struct stop_matcher *m, const struct window *w, size_t total) {
    size_t best = 0;
    for (int i = 0; i < m->n_strings; i++) {
        size_t n = m->lens[i] - 1 < total ? m->lens[i] - 1 : total;
        while (n > best && !window_equals(w, total - n, m->strings[i], n)) n--;
        if (n > best) best = n;
    }
    return best;
}

// Gives all but the tail that may begin a stop string.
static int hold_tail(struct stop_matcher *m, const struct window *w, size_t total,
                     struct buf *out) {
    size_t keep = held_len(m, w, total), give = total - keep;
    TRY(window_give(w, give, out));
    char tail[STOP_MAX_BYTES];
    for (size_t i = 0; i < keep; i++, give++)
        tail[i] = give < w->n_held ? w->held[give] : w->text[give - w->n_held];
    memcpy(m->held, tail, keep);
    m->n_held = keep;
    return 0;
}

int stop_matcher_feed(struct stop_matcher *m, const char *text, size_t len, struct buf *out) {
    if (m->matched >= 0) return 1; // the turn is over: text behind it is dropped
    struct window w = {.held = m->held, .text = text, .n_held = m->n_held};
    size_t total = m->n_held + len;
    for (size_t end = m->n_held + 1; end <= total; end++) {
        int i = completed_at(m, &w, end);
        if (i < 0) continue;
        TRY(window_give(&w, end - m->lens[i], out));
        m->matched = i;
        m->n_held = 0;
        return 1;
    }
    return hold_tail(m, &w, total, out);
}

int stop_matcher_pass(struct stop_matcher *m, const char *text, size_t len, struct buf *out) {
    struct window w = {.held = m->held, .text = text, .n_held = m->n_held};
    return hold_tail(m, &w, m->n_held + len, out);
}

int stop_matcher_flush(struct stop_matcher *m, struct buf *out) {
    int rc = buf_add(out, m->held, m->n_held);
    m->n_held = 0;
    return rc;
}
