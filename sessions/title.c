// Automatic titles. See title.h.
#include "sessions/title.h"
#include "base/utf8.h"
#include "sessions/session.h"
#include <stdlib.h>
#include <string.h>

static bool is_blank(char c) {
    return c == ' ' || (c >= '\t' && c <= '\r');
}

// Back to the end of a word when that does not lose more than half of it (languages without blanks
// are cut as they are).
static size_t cut_at_word(const char *text, size_t len) {
    for (size_t i = len; i > len / 2; i--)
        if (text[i - 1] == ' ') return i - 1;
    return len;
}

void title_from(const char *text, size_t len, char *out, size_t cap) {
    static const char dots[] = "\xe2\x80\xa6";
    size_t n = 0, room = cap - sizeof dots;
    bool blank = true, cut = false;
    for (size_t i = 0; i < len && !cut; i++) {
        if (is_blank(text[i]) && blank) continue;
        blank = is_blank(text[i]);
        if (n == room)
            cut = true;
        else
            out[n++] = blank ? ' ' : (unsigned char)text[i] < 0x20 ? '?' : text[i];
    }
    if (cut) n = cut_at_word(out, utf8_complete_len(out, n));
    while (n > 0 && out[n - 1] == ' ') n--;
    if (cut) {
        memcpy(out + n, dots, sizeof dots - 1);
        n += sizeof dots - 1;
    }
    out[n] = '\0';
}

// The first turn with words on the path. Slim turns have lost theirs: what lies above one may have
// been first, so the answer is not known.
bool title_of(const struct session *s, int64_t turn, char out[SESSION_AUTO_TITLE_BYTES]) {
    const struct turn_record *first = NULL;
    for (const struct turn *t; (t = session_turn(s, turn)); turn = t->rec.parent)
        if (t->slim || t->rec.input_text) first = t->slim ? NULL : &t->rec;
    if (first) title_from(first->input_text, first->input_text_len, out, SESSION_AUTO_TITLE_BYTES);
    return first && out[0];
}

void title_keep(struct session *s) {
    if (!s->first_words[0]) (void)title_of(s, s->head, s->first_words);
}

char *title_first_words(struct session *s) {
    title_keep(s);
    return strdup(s->first_words);
}

void title_follow(struct session *s, struct pending *p) {
    char title[SESSION_AUTO_TITLE_BYTES];
    if (!title_of(s, s->head, title)) return;
    memcpy(s->first_words, title, sizeof title);
    if (!s->rec.auto_title || strcmp(title, s->rec.title) == 0) return;
    char *copy = strdup(title);
    if (!copy) return; // the next message will do
    p->title = s->rec.title;
    s->rec.title = copy;
    s->marks |= MARK_TITLE;
}

void title_restore(struct session *s, struct pending *p) {
    memcpy(s->first_words, p->first_words, sizeof s->first_words);
    if (!p->title) return;
    free(s->rec.title);
    s->rec.title = p->title;
    s->rec.auto_title = p->auto_title;
    s->marks |= MARK_TITLE;
    p->title = NULL;
}
