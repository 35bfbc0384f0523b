// Tokens by their tail, for masks inside a class of characters. A token has leading characters of a set, then a tail
// that begins with another byte. Tokens of equal tails with as many leading characters lead to the same configuration.
// So a mask walks each tail once for each number of characters, and a vocabulary has few tails: ends of strings,
// punctuation, parts of characters.
//
//   token      of letters      tail
//   he",       2 characters    ",
//   name",     4 characters    ",
//   ";         none            ";
//
// Constant once made; any thread.
#pragma once
#include <stdint.h>

struct token_trie;

struct tail_token {
    int32_t id;
    uint16_t chars, bytes; // of the set, before the tail
};
struct tails {
    // By the tail's first byte; those of one tail together, the fewest characters first.
    struct tail_token *tokens;
    int32_t *runs;      // (first[256] + 1) the first token of each tail
    int32_t first[257]; // the first run of each first byte
    int64_t size;       // bytes of memory
};

// Returns the bytes of the leading characters of the set in s (len >= 1), and their number.
typedef int32_t (*leading_fn)(const void *set, const uint8_t *s, int32_t len, int32_t *chars);
// Leaves out the tokens of the set alone, but those of more than most_chars characters: their tail is the whole
// token. NULL: no memory.
struct tails *tails_new(const struct token_trie *v, leading_fn leading, const void *set,
                        int32_t most_chars);
void tails_free(struct tails *t); // NULL is allowed
