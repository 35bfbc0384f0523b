// Byte-pair encoding of one word: start from its bytes, join the neighbouring pair with the lowest
// rank (the leftmost where several are equal) until no pair has one. Sennrich et al. 2016; over
// bytes, Radford et al. 2019.
#pragma once
#include "engine/text/token_list.h"
#include "engine/text/vocab.h"

struct merge_slot {
    uint64_t pair; // left id in the upper half, right id in the lower
    uint32_t rank; // UINT32_MAX: free
};
struct bpe {
    int32_t byte_ids[256]; // the token of each single byte, or -1 where text never needs it
    struct merge_slot *merges;
    size_t mask;
    uint64_t seed;
    int32_t *merged; // [n_merges] rank to the joined token
    uint32_t n_merges, cap_merges;
    // Words that are one token as a whole: all that a vocabulary has under ignore_merges, otherwise
    // those whose merges end in that one token. Most words of a text are, so this look-up replaces
    // the merging.
    struct string_table words;
};
// Memory for long words, kept between the words of one call. Zero before the first use.
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t cap_symbols;
    uint64_t *heap;
    size_t n_heap, cap_heap;
};

int bpe_init(struct bpe *b, uint32_t n_merges, struct err *err); // room for at most n_merges
void bpe_release(struct bpe *b);
// The next rank's merge. A pair that comes again takes the later rank, as Hugging Face has it.
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t merged);
// After the last merge. E_UNSUPPORTED when a byte of UTF-8 has no token.
int bpe_finish(struct bpe *b, const struct vocab *v, bool ignore_merges, struct err *err);
int bpe_encode(const struct bpe *b, const struct vocab *v, const char *word, size_t len,
               struct bpe_scratch *s,
               struct token_list *out); // E_NOMEM
void bpe_scratch_release(struct bpe_scratch *s);
