// The symbols that a SentencePiece vocabulary's author defined: found as a whole anywhere, before
// the model encodes the text. Such vocabularies write markup with them, so they are not found in or
// across plain spans (except runs of white space, which forge nothing).
#pragma once
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"

struct user_symbols {
    struct trie trie; // of ids; without nodes: none
};

// A cursor over the plain spans of a text; positions only increase.
struct plain_cursor {
    const struct text_span *spans;
    size_t n;
};
// Bytes from `at` to the next plain one, at most `len`.
static inline size_t plain_room(struct plain_cursor *c, size_t at, size_t len) {
    while (c->n && c->spans->to <= at) {
        c->spans++;
        c->n--;
    }
    if (c->n == 0) return len;
    size_t room = c->spans->from > at ? c->spans->from - at : 0;
    return room < len ? room : len;
}

// Bytes of the longest symbol at the start of text, 0 for none. A symbol longer than room is
// ignored unless it is blank.
size_t user_symbols_find(const struct user_symbols *u, const char *text, size_t len, size_t room,
                         int32_t *id);
bool user_symbol_is_blank(const char *symbol, size_t len); // white space and U+2581 only
