// Unigram language model (Kudo 2018): of all ways to write a word as pieces, Viterbi's algorithm
// finds the one with the highest sum of scores. There are two versions: tokenizer.json's sums are
// doubles, SentencePiece's are floats, and the last bit decides between equals.
#pragma once
#include "engine/text/pieces.h"

struct unigram {
    struct trie trie; // of all pieces that text can be made of
    double *scores;   // [n_ids]
    double unk_score; // the score of one character that no piece covers
    int32_t unk_id;   // -1: such a character is an error
    bool byte_fallback;
    int32_t byte_ids[256];       // -1 where there is none
    const struct pieces *pieces; // set: SentencePiece's rules; borrowed. NULL: tokenizer.json's
    // The highest score of the normal pieces. If all scores are negative it is FLT_MIN, the value
    // from which SentencePiece starts its search for the maximum.
    float max_score;
};
struct unigram_node {
    double score;  // of the best path to this byte
    uint32_t from; // the start of its last piece; NOT_REACHED: there is no path
    int32_t id;
};
struct unigram_scratch { // zero before the first use
    struct unigram_node *nodes;
    size_t cap;
    struct token_list path;
};

void unigram_release(struct unigram *u); // a zeroed one is allowed
// For tokenizer.json: takes ownership of scores [n_ids]. E_NOMEM; E_LIMIT: a piece is too long.
int unigram_init(struct unigram *u, const struct vocab *v, double *scores, int32_t unk_id,
                 bool byte_fallback, struct err *err);
int unigram_init_pieces(struct unigram *u, const struct vocab *v, const struct pieces *p,
                        struct err *err);
// E_NOMEM; E_INVAL: no piece covers a character, and there is no unknown piece.
int unigram_encode(const struct unigram *u, const struct vocab *v, const struct piece_word *word,
                   struct unigram_scratch *s, struct token_list *out);
void unigram_scratch_release(struct unigram_scratch *s);
