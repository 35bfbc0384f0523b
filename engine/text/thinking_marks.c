// See thinking_marks.h.
#include "engine/text/thinking_marks.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE_ENDS = 2 };

// Places of the lists in `ends`. Closings: by matched bytes, then the one that begins a line.
enum {
    AT_CLOSING = 0,
    AT_CLOSING_LINE = THINKING_MARK_MAX,
    AT_GAP,
    AT_OPENING,
    AT_SPILL = AT_OPENING + THINKING_MARK_MAX,
    N_LISTS = AT_SPILL + THINKING_MARK_MAX,
};
_Static_assert(N_LISTS == 3 * THINKING_MARK_MAX + 2, "thinking_marks.ends");

// --- marks ---------------------------------------------------------------------------------------

int32_t thinking_mark_step(const struct thinking_mark *mark, int32_t matched, char c) {
    while (matched > 0 && mark->text[matched] != c) matched = mark->fail[matched - 1];
    return matched + (mark->text[matched] == c);
}

static int mark_init(struct thinking_mark *mark, const char *text, struct err *err) {
    size_t len = strlen(text);
    if (len == 0 || len >= THINKING_MARK_MAX)
        return err_set(err, E_UNSUPPORTED, "'%.64s' is too long for a mark of thinking", text);
    snprintf(mark->text, sizeof mark->text, "%s", text);
    mark->len = (int32_t)len;
    for (int32_t i = 1; i < mark->len; i++)
        mark->fail[i] = thinking_mark_step(mark, mark->fail[i - 1], text[i]);
    return 0;
}

// --- line ends -----------------------------------------------------------------------------------

// The bytes of a line end at `at` of a template: as it is, or as \n inside of a string; 0: none.
static size_t line_end_at(const char *s, size_t len, size_t at) {
    if (at < len && s[at] == '\n') return 1;
    return at + 1 < len && s[at] == '\\' && s[at + 1] == 'n' ? 2 : 0;
}

static bool line_end_before(const char *s, size_t at) {
    return (at >= 1 && s[at - 1] == '\n') || (at >= 2 && s[at - 2] == '\\' && s[at - 1] == 'n');
}

// How many line ends the template writes behind the closing mark, and whether one before it. It may name the
// mark at other places too, as where it takes an answer apart.
static int32_t find_line_ends(const char *template, size_t len, const struct thinking_mark *close,
                              bool *before) {
    int32_t most = 0;
    *before = false;
    for (const char *at = template;
         (at = memmem(at, len - (size_t)(at - template), close->text, (size_t)close->len));) {
        size_t place = (size_t)(at - template), end = place + (size_t)close->len, one;
        int32_t n = 0;
        *before = *before || line_end_before(template, place);
        for (; n < MOST_LINE_ENDS && (one = line_end_at(template, len, end)) > 0; n++) end += one;
        if (n > most) most = n;
        at += close->len;
    }
    return most;
}

// --- lists of ids --------------------------------------------------------------------------------

static struct thinking_ids list_at(const struct thinking_marks *m, int32_t i) {
    int32_t from = i == 0 ? 0 : m->ends[i - 1];
    return (struct thinking_ids){m->ids.ids + from, m->ends[i] - from};
}

// Whether the ids from `from` on are the text's bytes.
static bool writes(const struct thinking_marks *m, size_t from, const char *text) {
    size_t len, n = 0;
    for (size_t i = from; i < m->ids.len; i++) {
        const char *bytes = tokenizer_bytes(m->tokenizer, m->ids.ids[i], &len);
        if (!bytes || strncmp(text + n, bytes, len) != 0) return false;
        n += len;
    }
    return text[n] == '\0';
}

// Adds a list: the ids of `text` as it continues other text. The list is empty if the ids decode to another text.
static int add_text(struct thinking_marks *m, int32_t i, const char *text, struct err *err) {
    const struct encode_options midst = {.continues = true, .in_midst = true};
    size_t from = m->ids.len;
    if (text[0]) TRY(tokenizer_encode(m->tokenizer, text, strlen(text), &midst, &m->ids, err));
    if (!writes(m, from, text)) m->ids.len = from;
    m->ends[i] = (int32_t)m->ids.len;
    return 0;
}

static int add_closings(struct thinking_marks *m, const char *gap, bool before, struct err *err) {
    char text[2 * THINKING_MARK_MAX + 64];
    for (int32_t i = 0; i < THINKING_MARK_MAX; i++) {
        snprintf(text, sizeof text, "%s%s", m->close.text + i, gap);
        TRY(add_text(m, AT_CLOSING + i, i < m->close.len ? text : "", err));
    }
    snprintf(text, sizeof text, "%s%s%s", before ? "\n" : "", m->close.text, gap);
    TRY(add_text(m, AT_CLOSING_LINE, text, err));
    TRY(add_text(m, AT_GAP, gap, err));
    for (int32_t i = 0; i <= AT_CLOSING_LINE; i++) {
        int32_t n = list_at(m, i).n;
        if (n > m->longest_close) m->longest_close = n;
    }
    if (list_at(m, AT_CLOSING).n == 0)
        return err_set(err, E_UNSUPPORTED, "the tokenizer does not write '%s'", m->close.text);
    return 0;
}

static int add_openings(struct thinking_marks *m) {
    int32_t n_tokens = tokenizer_n_tokens(m->tokenizer);
    for (int32_t at = 0; at < THINKING_MARK_MAX; at++) {
        int32_t left = m->open.len - at;
        for (int32_t id = 0; left > 0 && id < n_tokens; id++) {
            size_t len;
            const char *bytes = tokenizer_bytes(m->tokenizer, id, &len);
            if (!bytes || len == 0 || len > (size_t)left) continue;
            if (memcmp(bytes, m->open.text + at, len) == 0) TRY(token_list_push(&m->ids, id));
        }
        m->ends[AT_OPENING + at] = (int32_t)m->ids.len;
    }
    return 0;
}

static bool spills(const struct thinking_mark *close, int32_t matched, const char *bytes,
                   size_t len) {
    for (size_t i = 0; i + 1 < len; i++) {
        matched = thinking_mark_step(close, matched, bytes[i]);
        if (matched == close->len) return true;
    }
    return false;
}

static int add_spills(struct thinking_marks *m) {
    char last = m->close.text[m->close.len - 1];
    int32_t n_tokens = tokenizer_n_tokens(m->tokenizer);
    for (int32_t at = 0; at < THINKING_MARK_MAX; at++) {
        for (int32_t id = 0; at < m->close.len && id < n_tokens; id++) {
            size_t len;
            const char *bytes = tokenizer_bytes(m->tokenizer, id, &len);
            if (!bytes || len < 2 || !memchr(bytes, last, len - 1)) continue; // most tokens
            if (spills(&m->close, at, bytes, len)) TRY(token_list_push(&m->ids, id));
        }
        m->ends[AT_SPILL + at] = (int32_t)m->ids.len;
    }
    return 0;
}

// --- public --------------------------------------------------------------------------------------

int thinking_marks_new(struct thinking_marks **out, const struct tokenizer *t, const char *open,
                       const char *close, const char *template, size_t len, struct err *err) {
    return thinking_marks_new_before(out, t, open, close, NULL, template, len, err);
}

int thinking_marks_new_before(struct thinking_marks **out, const struct tokenizer *t,
                              const char *open, const char *close, const char *answer,
                              const char *template, size_t len, struct err *err) {
    struct thinking_marks *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m) return err_set(err, E_NOMEM, "no memory for the marks of thinking");
    m->tokenizer = t;
    token_list_init(&m->ids);
    bool before = false;
    int rc, n = 0;
    TRY_GOTO(fail, mark_init(&m->open, open, err));
    TRY_GOTO(fail, mark_init(&m->close, close, err));
    if (!answer) n = find_line_ends(template, len, &m->close, &before);
    TRY_GOTO(fail, add_closings(m, answer ? answer : &"\n\n"[MOST_LINE_ENDS - n], before, err));
    TRY_GOTO(fail, add_openings(m));
    TRY_GOTO(fail, add_spills(m));
    *out = m;
    return 0;
fail:
    if (rc == E_NOMEM) err_set(err, rc, "no memory for the marks of thinking");
    thinking_marks_free(m);
    return rc;
}

void thinking_marks_free(struct thinking_marks *m) {
    if (!m) return;
    token_list_release(&m->ids);
    free(m);
}

struct thinking_ids thinking_closing(const struct thinking_marks *m, int32_t matched,
                                     bool in_line) {
    struct thinking_ids rest = list_at(m, AT_CLOSING + matched);
    struct thinking_ids line = list_at(m, AT_CLOSING_LINE);
    if (matched == 0 && in_line && line.n > 0) return line;
    return rest.n > 0 ? rest : list_at(m, AT_CLOSING);
}

struct thinking_ids thinking_gap(const struct thinking_marks *m) {
    return list_at(m, AT_GAP);
}

struct thinking_ids thinking_openings(const struct thinking_marks *m, int32_t matched) {
    return list_at(m, AT_OPENING + matched);
}

struct thinking_ids thinking_spills(const struct thinking_marks *m, int32_t matched) {
    return list_at(m, AT_SPILL + matched);
}
