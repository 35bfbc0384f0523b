// Automatic titles. See title.h.
#include "sessions/title.h"
#include "base/utf8.h"
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

void title_keep(struct session *s, const struct turn_record *r) {
    bool first = !s->first_words[0] || (r->parent == TURN_NONE && r->turn > s->first_words_turn);
    if (!first || !r->input_text) return;
    title_from(r->input_text, r->input_text_len, s->first_words, sizeof s->first_words);
    s->first_words_turn = r->turn;
}

char *title_first_words(const struct session *s) {
    char title[SESSION_AUTO_TITLE_BYTES];
    memcpy(title, s->first_words, sizeof title);
    int64_t since = title[0] ? s->first_words_turn : -1;
    for (int64_t i = s->roots.last; i > since; i = s->turns[i]->older) {
        const struct turn_record *t = &s->turns[i]->rec;
        if (!t->input_text) continue;
        title_from(t->input_text, t->input_text_len, title, sizeof title);
        return strdup(title);
    }
    for (size_t i = 0; i < s->n_turns && !title[0]; i++) {
        const struct turn_record *t = &s->turns[i]->rec;
        if (t->input_text) title_from(t->input_text, t->input_text_len, title, sizeof title);
    }
    return strdup(title);
}

void title_set(struct session *s, const struct turn *t, struct pending *p) {
    char title[SESSION_AUTO_TITLE_BYTES];
    bool first = t->rec.parent == TURN_NONE || !s->rec.title[0];
    if (!s->rec.auto_title || !first || !t->rec.input_text) return;
    title_from(t->rec.input_text, t->rec.input_text_len, title, sizeof title);
    if (strcmp(title, s->rec.title) == 0) return;
    char *copy = strdup(title);
    if (!copy) return; // the next message will do
    p->title = s->rec.title;
    s->rec.title = copy;
    s->marks |= MARK_TITLE;
}
