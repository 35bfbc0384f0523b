// Automatic titles: the first words of a conversation, unless its user has given it a title.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SESSION_AUTO_TITLE_BYTES 60

struct pending;
struct session;

// The title that a message makes: at most cap bytes with the NUL, whole characters, one line, without Markdown and
// without the files before its words; the first file's name if there are no words.
void title_from(const char *text, size_t len, char *out, size_t cap);
// Whether a title can be made of the text: it has a character besides blanks and U+FFFD.
bool title_has_words(const char *text, size_t len);
// The automatic title of the path to a turn. False: memory lacks the words, or there are none.
bool title_of(const struct session *s, int64_t turn, char out[SESSION_AUTO_TITLE_BYTES]);
// The session's automatic title; free it. NULL: no memory.
char *title_first_words(struct session *s);
// Before a turn becomes slim: its words may be the automatic title.
void title_keep(struct session *s);
// After a first message or a move of the head: the path's first words become the title, unless the
// user gave one. p can take it back.
void title_follow(struct session *s, struct pending *p);
void title_restore(struct session *s, struct pending *p);
