// The kinds and scores of a SentencePiece vocabulary's pieces, beside the vocabulary itself.
#pragma once
#include "engine/text/token_list.h"
#include "engine/text/user_symbols.h"
#include "engine/text/vocab.h"

enum piece_kind { // as sentencepiece_model.proto numbers them
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN = 2,
    PIECE_CONTROL = 3,
    PIECE_USER_DEFINED = 4,
    PIECE_UNUSED = 5,
    PIECE_BYTE = 6
};

#define PIECE_MAX_BYTES 1024 // longer pieces would increase the time for each byte of a text

struct pieces {
    float *scores;        // [n_ids]
    unsigned char *kinds; // [n_ids], 0 for an id without a piece
    int32_t unk_id;
    bool byte_fallback;
    int32_t byte_ids[256]; // set if byte_fallback
    struct user_symbols symbols;
    bool has_unused;
};

// A word to encode, with the plain spans of the text that it is part of.
struct piece_word {
    const char *text;
    size_t len;
    size_t offset; // of the word in the text that the spans refer to
    const struct text_span *plain;
    size_t n_plain;
};

void pieces_release(struct pieces *p); // a zeroed one is allowed
// Appends the replacement for text that the vocabulary lacks: its byte pieces, or one unknown piece for
// a run of such texts. *in_run: whether the last id appended was the unknown piece.
int pieces_push_unknown(const struct pieces *p, const char *text, size_t len, bool *in_run,
                        struct token_list *out);
