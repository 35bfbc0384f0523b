// A vocabulary as a trie over bytes, for masks. One walk in preorder finds the tokens that may follow; it skips the
// subtree below a dead byte. Built once for a vocabulary; then constant, any thread.
//
// Most tokens of a vocabulary are harmless: whole UTF-8 characters without a quote, a backslash or a control
// character. Inside a JSON string all of them lead to the same configuration, so no walk is needed for them:
// harmless[k] is the mask of those with exactly k characters, and `tails` has the other tokens (tails.h).
#pragma once
#include "base/err.h"
#include "engine/grammar/tails.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HARMLESS_CHARS = 32 }; // longer tokens are not harmless

struct trie_node {
    int32_t after;  // the next node that is not below this one
    int32_t token;  // the first with these bytes; -1: none
    uint16_t depth; // from 1
    uint8_t byte;
};
struct trie_part {
    struct trie_node *nodes; // in preorder
    int32_t n, depth;        // depth: of the deepest node
};

struct token_trie {
    atomic_int n_holders;
    int32_t n;       // tokens of the model
    int32_t n_words; // of 64 bits in a mask
    int32_t longest; // bytes
    struct trie_part all;
    // The node of each byte, and of each two bytes (256, 256); -1: none. Deeper nodes have few siblings.
    int32_t singles[256], *pairs;
    int32_t *same;          // (n) the next token with the same bytes; -1: none
    uint64_t *harmless;     // (HARMLESS_CHARS + 1, n_words): row k: those of exactly k characters
    uint64_t *any_harmless; // (HARMLESS_CHARS + 1, n_words): row k: those of 1 to k characters
    struct tails *tails;    // of the tokens that are not harmless, behind harmless characters
    bool writes[256];       // the byte alone is a token: a text of such bytes can always be written
    uint8_t *text;          // the bytes of all tokens
    const uint8_t **bytes;  // (n) of each token, in text; NULL: it stands for no text
    int32_t *len;           // (n)
};

// The bytes of a token; NULL: it stands for no text (a special token, an end of answers).
typedef const char *(*token_bytes_fn)(void *ctx, int32_t id, size_t *len);
int token_trie_new(struct token_trie **out, int32_t n, token_bytes_fn bytes, void *ctx,
                   struct err *err);
struct token_trie *token_trie_hold(struct token_trie *v);
void token_trie_free(struct token_trie *v); // the last holder's frees it; NULL is allowed

// Calls `each` for all tokens that text begins with, shortest first.
void token_trie_prefixes(const struct token_trie *v, const uint8_t *text, int32_t len,
                         void (*each)(void *ctx, int32_t id, int32_t n_bytes), void *ctx);
