// See thinking.h.
#include "engine/run/thinking.h"
#include <string.h>

static bool is_white(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

static void enter(struct thinking *t, enum thinking_state state) {
    t->state = state;
    t->matched = 0;
    t->in_line = true;
}

static void feed_byte(struct thinking *t, char c) {
    const struct thinking_mark *open = &t->marks->open, *close = &t->marks->close;
    if (t->state == THINKING_MAY_BEGIN) {
        if (t->matched == 0 && is_white(c)) return;
        if (c != open->text[t->matched])
            enter(t, THINKING_OVER);
        else if (++t->matched == open->len)
            enter(t, THINKING_OPEN);
    } else if (t->state == THINKING_OPEN) {
        t->matched = thinking_mark_step(close, t->matched, c);
        t->in_line = c != '\n';
        if (t->matched == close->len) enter(t, THINKING_OVER);
    }
}

// --- the log before the answer -------------------------------------------------------------------

static bool is_mark(const struct thinking_mark *mark, const char *bytes, size_t len) {
    return len == (size_t)mark->len && memcmp(bytes, mark->text, len) == 0;
}

// Where the text begins that can hold marks: after the last special token, so that no question is searched
// where the template separates it from the answer.
static int64_t tail_of(const struct thinking_marks *m, const int32_t *log, int64_t n_log) {
    int64_t from = n_log;
    for (; from > 0; from--) {
        size_t len;
        const char *bytes = tokenizer_bytes(m->tokenizer, log[from - 1], &len);
        if (!bytes) break;
        if (is_mark(&m->open, bytes, len) || is_mark(&m->close, bytes, len)) return from - 1;
        if (tokenizer_is_special(m->tokenizer, log[from - 1])) break;
    }
    return from;
}

void thinking_begin(struct thinking *t, const struct thinking_marks *marks, const int32_t *log,
                    int64_t n_log, bool goes_on) {
    *t = (struct thinking){.marks = marks, .state = THINKING_OVER};
    int32_t matched = 0;
    bool marked = false;
    for (int64_t i = tail_of(marks, log, n_log); i < n_log; i++) {
        size_t len = 0;
        const char *bytes = tokenizer_bytes(marks->tokenizer, log[i], &len);
        for (size_t k = 0; k < len; k++) {
            matched = thinking_mark_step(&marks->open, matched, bytes[k]);
            if (t->state == THINKING_OPEN) feed_byte(t, bytes[k]);
            if (matched < marks->open.len) continue;
            matched = 0;
            marked = true;
            enter(t, THINKING_OPEN);
        }
    }
    if (t->state == THINKING_OVER && !marked && !goes_on) enter(t, THINKING_MAY_BEGIN);
}

// --- the answer ----------------------------------------------------------------------------------

// A token that is not the forced one was drawn before the answer went on here.
void thinking_accept(struct thinking *t, int32_t id) {
    bool forced = t->forced.n > 0 && t->forced.ids[0] == id;
    t->forced.n = forced ? t->forced.n - 1 : 0;
    if (forced) t->forced.ids++;
    if (t->state == THINKING_OPEN && !forced) t->n_drawn++;
    size_t len = 0;
    const char *bytes = tokenizer_bytes(t->marks->tokenizer, id, &len);
    for (size_t i = 0; bytes && i < len; i++) feed_byte(t, bytes[i]);
}

void thinking_close(struct thinking *t) {
    t->forced = thinking_closing(t->marks, t->matched, t->in_line);
}
