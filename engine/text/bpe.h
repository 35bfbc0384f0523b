// Byte-pair encoding of one word: start from its symbols, join the neighbouring pair with the
// lowest rank (the leftmost where several are equal) until no pair has one. Sennrich et al. 2016;
// over bytes, Radford et al. 2019. What the first symbols are differs: bytes here, characters in
// bpe_chars.h, SentencePiece's in bpe_pieces.h.
#pragma once
#include "engine/text/token_list.h"
#include "engine/text/vocab.h"
#include "engine/text/word_cache.h"

struct merge_slot {
    uint64_t pair; // left id in the upper half, right id in the lower
    uint32_t rank; // UINT32_MAX: free
    int32_t merged;
};
struct bpe {
    int32_t byte_ids[256]; // the token of each single byte, or -1 where text never needs it
    struct merge_slot *merges;
    size_t mask;
    uint64_t seed;
    uint32_t n_merges;
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
    int32_t *first; // a word's symbols before merging
    size_t cap_first;
    struct token_list joined;  // and after it, where they are no ids yet
    struct cached_word *cache; // [WORD_CACHE_SIZE] or NULL
    // [n_ids] of each symbol, the pair last seen that would make it. NULL: not kept
    struct merge_halves *halves;
};
#define NO_HALF (-1)
struct merge_halves {
    int32_t left, right; // NO_HALF: none seen
};

int bpe_init(struct bpe *b, uint32_t n_merges, struct err *err); // room for at most n_merges
void bpe_release(struct bpe *b);
// The next rank's merge. A pair that comes again takes the later rank, as Hugging Face has it.
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t merged);
// The same with a rank of the caller's, which merges may share.
void bpe_add_ranked_merge(struct bpe *b, uint32_t rank, int32_t left, int32_t right,
                          int32_t merged);
// Room for a word of n symbols; NULL where memory is out.
int32_t *bpe_first_symbols(struct bpe_scratch *s, size_t n);
// Joins n < 2^32 symbols, of which negative ones join nothing, and appends what is left; symbols is
// used up. E_NOMEM.
int bpe_merge(const struct bpe *b, int32_t *symbols, size_t n, struct bpe_scratch *s,
              struct token_list *out);
// From here on merging notes in s->halves what each symbol was put together from. E_NOMEM.
int bpe_scratch_keep_halves(struct bpe_scratch *s, int32_t n_ids);
// Keeps what words become, for a text of this length; does without where it is short, or memory is.
void bpe_scratch_keep_words(struct bpe_scratch *s, size_t text_len);
void bpe_scratch_release(struct bpe_scratch *s);

// Words as bytes. After the last merge: E_UNSUPPORTED when a byte of UTF-8 has no token.
int bpe_finish(struct bpe *b, const struct vocab *v, bool ignore_merges, struct err *err);
int bpe_encode(const struct bpe *b, const struct vocab *v, const char *word, size_t len,
               struct bpe_scratch *s,
               struct token_list *out); // E_NOMEM
