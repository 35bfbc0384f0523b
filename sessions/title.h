// Automatic titles: the first words of a conversation, as long as its user gives it no title.
#pragma once
#include "sessions/session.h"

// The title that a message makes: at most cap bytes with the NUL, whole characters, one line.
void title_from(const char *text, size_t len, char *out, size_t cap);
// The automatic title; free it. NULL: no memory.
char *title_first_words(const struct session *s);
// A turn is about to become slim: keeps its words where they are the automatic title.
void title_keep(struct session *s, const struct turn_record *r);
// A new turn's words become the title where they are the first, or replace those; p takes it back.
void title_set(struct session *s, const struct turn *t, struct pending *p);
