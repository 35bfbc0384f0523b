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
#include <stdbool.h>
#include <stdint.h>

struct token_trie;

struct tail_lead {
    uint16_t chars, bytes; // of the set, before the tail
};
struct tail_token {
    int32_t id;
    uint16_t chars, bytes; // as above
};
struct tail_run {         // the tokens of one tail
    int32_t first;        // of them
    uint16_t shared, len; // bytes of the tail; the first `shared` are those of the run before
};
struct tails {
    // By the tail's first byte; those of one tail together, the fewest characters first.
    struct tail_token *tokens;
    // (first[256] + 1) By the tail's first byte, then sorted by bytes in two sequences: the tails that are whole tokens,
    // and the others. The first one of a sequence shares nothing.
    struct tail_run *runs;
    uint8_t *text;   // of each run, one behind the other, the bytes of the tail that are not shared
    bool whole[256]; // no token with this first byte has leading characters: the trie has them all
    int32_t first[257]; // the first run of each first byte
    int32_t begin[256]; // where the text of this run begins
    int64_t size;       // bytes of memory
};

// Leaves out the tokens of the set alone, but those of more than most_chars characters: their tail is the whole
// token. Leaves out too the tokens whose first byte begins no character of the set: all below a node of the trie
// (struct tails, whole). leads: (v->n) the leading characters of the set that each token has. NULL: no memory.
struct tails *tails_new(const struct token_trie *v, const struct tail_lead *leads,
                        int32_t most_chars);
void tails_free(struct tails *t); // NULL is allowed
