// Automatic titles. See title.h.
#include "sessions/state/title.h"
#include "sessions/state/session.h"
#include <stdlib.h>
#include <string.h>

// The first turn with words on the path. Slim turns have lost theirs: with one on the path, the first
// turn with words is not known.
bool title_of(const struct session *s, int64_t turn, char out[SESSION_AUTO_TITLE_BYTES]) {
    const struct turn_record *first = NULL;
    for (const struct turn *t; (t = session_turn(s, turn)); turn = t->rec.parent)
        if (t->storage == TURN_SLIM)
            first = NULL;
        else if (title_has_words(t->rec.input_text, t->rec.input_text_len))
            first = &t->rec;
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
