// Byte-pair encoding as in SentencePiece: two neighbours merge if together they spell a piece, the
// best score first. SentencePiece's files have no list of merges: this module builds it from every
// way to cut a piece in two.
#pragma once
#include "engine/text/bpe.h"
#include "engine/text/pieces.h"

struct bpe_pieces {
    struct bpe bpe;
    int32_t ascii[128]; // first symbol of each character
    // characters that are part of a piece but not a piece themselves: symbols from n_ids on
    struct string_table strange;
    uint32_t *strange_chars; // [n_strange] their code points
    int32_t n_strange;
    struct buf arena; // of strange
    bool cuts;        // as in bpe_chars.h
};

void bpe_pieces_release(struct bpe_pieces *b); // a zeroed one is allowed
// E_NOMEM, E_LIMIT.
int bpe_pieces_init(struct bpe_pieces *b, const struct vocab *v, const struct pieces *p,
                    struct err *err);
int bpe_pieces_encode(const struct bpe_pieces *b, const struct vocab *v, const struct pieces *p,
                      const struct piece_word *word, struct bpe_scratch *s,
                      struct token_list *out); // E_NOMEM
