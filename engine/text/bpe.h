// Byte-pair encoding of one word: start from its symbols, and merge the neighbouring pair with the
// lowest rank (of equal ones, the leftmost) until no pair has a rank. Sennrich et al. 2016; over
// bytes, Radford et al. 2019. The first symbols are bytes here, characters in bpe_chars.h and
// SentencePiece's symbols in bpe_pieces.h.
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
    int32_t byte_ids[256]; // the token of each single byte, or -1
    bool has_gaps;         // text may have bytes without a token, which are left out
    struct merge_slot *merges;
    size_t mask;
    uint64_t seed;
    uint32_t n_merges;
    // Words that are a single token: with ignore_merges the whole vocabulary, otherwise the words
    // whose merges end in that token. Most words of a text are in this table, and a look-up costs
    // less than merging.
    struct string_table words;
};
// Memory for long words, reused for the words of one call. Zero it before the first use.
struct bpe_scratch {
    struct bpe_symbol *symbols;
    size_t cap_symbols;
    uint64_t *heap;
    size_t n_heap, cap_heap;
    int32_t *first; // a word's symbols before merging
    size_t cap_first;
    struct token_list joined;  // the symbols after merging, if they are not ids yet
    struct cached_word *cache; // [WORD_CACHE_SIZE] or NULL
    // [n_ids] for each symbol the last pair seen that would merge into it. NULL: not recorded
    struct merge_halves *halves;
};
#define NO_HALF (-1)
struct merge_halves {
    int32_t left, right; // NO_HALF: none seen
};

int bpe_init(struct bpe *b, uint32_t n_merges, struct err *err); // room for at most n_merges
void bpe_release(struct bpe *b);                                 // a zeroed one is allowed
// Adds the merge of the next rank. A repeated pair takes the later rank, as in Hugging Face.
void bpe_add_merge(struct bpe *b, int32_t left, int32_t right, int32_t merged);
// The same with a rank that the caller gives; merges may share it.
void bpe_add_ranked_merge(struct bpe *b, uint32_t rank, int32_t left, int32_t right,
                          int32_t merged);
// Room for a word of n symbols. NULL: out of memory.
int32_t *bpe_first_symbols(struct bpe_scratch *s, size_t n);
// Merges n < 2^32 symbols and appends the result; negative symbols merge with nothing. Overwrites
// symbols. E_NOMEM.
int bpe_merge(const struct bpe *b, int32_t *symbols, size_t n, struct bpe_scratch *s,
              struct token_list *out);
// From now on, merging records the two halves of each symbol in s->halves. E_NOMEM.
int bpe_scratch_keep_halves(struct bpe_scratch *s, int32_t n_ids);
// Starts caching the results of words for a text of this length. Does nothing if the text is short
// or memory is out.
void bpe_scratch_keep_words(struct bpe_scratch *s, size_t text_len);
void bpe_scratch_release(struct bpe_scratch *s);

// Byte-level BPE. bpe_finish: call it after the last merge. Some vocabularies lack bytes that their texts never had, as
// control characters; E_UNSUPPORTED when it is a byte that is printed.
int bpe_finish(struct bpe *b, const struct vocab *v, bool ignore_merges, struct err *err);
int bpe_encode(const struct bpe *b, const struct vocab *v, const char *word, size_t len,
               struct bpe_scratch *s,
               struct token_list *out); // E_NOMEM
