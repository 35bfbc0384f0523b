// Finds added tokens in text: the leftmost, and of several there the longest (Aho-Corasick's
// leftmost-longest, as in Hugging Face). The search walks a trie from each byte that can begin a
// token; a token's length is capped, so a walk is too.
#pragma once
#include "engine/text/tokenizer.h"

#define ADDED_TOKEN_MAX_BYTES 1024

struct added_token {
    int32_t id;
    bool special;
    bool single_word;    // found only where no word character touches it
    bool lstrip, rstrip; // also matches the white space before it, after it
    bool blank;          // white space only: not markup, so it is also found in plain text
};
struct added_node {
    int32_t child, sibling; // or -1
    int32_t token;          // the token that ends here, or -1
    unsigned char byte;
};
struct added_tokens {
    struct added_token *tokens;
    size_t n_tokens, cap_tokens;
    struct added_node *nodes;
    size_t n_nodes, cap_nodes;
    int32_t roots[256]; // the node of each first byte, or -1
};
struct added_match {
    size_t from, to;
    const struct added_token *token; // NULL: words without a token
};
// One pass over a text. It returns the pieces in order, words and tokens, none of them empty.
struct added_scan {
    const struct added_tokens *tokens;
    const char *text;
    size_t len;
    const struct text_span *plain;
    size_t n_plain;
    bool no_special;
    size_t done;               // where the next piece begins
    struct added_match queued; // a token found behind words that must be returned first
};

// A zeroed struct is not an empty one: a root of 0 is a node. A released one is.
void added_tokens_init(struct added_tokens *a);
void added_tokens_release(struct added_tokens *a);
// The first of two tokens with the same content is kept. E_NOMEM, E_LIMIT.
int added_tokens_add(struct added_tokens *a, const char *content, size_t len,
                     const struct added_token *token);
void added_scan_init(struct added_scan *s, const struct added_tokens *a, const char *text,
                     size_t len, const struct text_span *plain, size_t n_plain, bool no_special);
bool added_scan_next(struct added_scan *s, struct added_match *m);
