// The user-defined symbols of a SentencePiece vocabulary: found as a whole anywhere in a text, before
// the model encodes it. Vocabularies use them for markup, so they are not found in or across plain
// spans (except runs of white space, which forge nothing).
#pragma once
#include "engine/text/tokenizer.h"
#include "engine/text/trie.h"

struct user_symbols {
    struct trie trie; // symbol to id; no nodes: no symbols
};

// A cursor over the plain spans of a text; positions only increase.
struct plain_cursor {
    const struct text_span *spans;
    size_t n;
};
// The number of bytes from `at` to the next plain span, at most `len`.
static inline size_t plain_room(struct plain_cursor *c, size_t at, size_t len) {
    while (c->n && c->spans->to <= at) {
        c->spans++;
        c->n--;
    }
    if (c->n == 0) return len;
    size_t room = c->spans->from > at ? c->spans->from - at : 0;
    return room < len ? room : len;
}

// The length of the longest symbol at the start of text, 0 for none. Ignores a symbol longer than
// room, unless it is blank.
size_t user_symbols_find(const struct user_symbols *u, const char *text, size_t len, size_t room,
                         int32_t *id);
bool user_symbol_is_blank(const char *symbol, size_t len); // white space and U+2581 only
