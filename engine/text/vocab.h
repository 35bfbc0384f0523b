// The tokens of a model. Maps an id to its content (as the tokenizer's file spells it) and to the bytes
// that it stands for, and a content to its id. Ids may have holes.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "engine/text/string_table.h"

enum {
    TOKEN_MODEL = 1,    // in the model's own vocabulary: encoding words may produce it
    TOKEN_ADDED = 2,    // in added_tokens: found in the text before the model sees it
    TOKEN_SPECIAL = 4,  // markup, not words: omitted from text for people
    TOKEN_ALPHABET = 8, // its content is spelled in the byte alphabet
    TOKEN_BYTE = 16     // a SentencePiece byte piece
};

struct token {
    uint32_t content, content_len; // into the arena, NUL-terminated there
    uint32_t bytes, bytes_len;     // into the arena
    uint8_t flags;                 // 0: a hole
};
struct vocab {
    struct token *tokens; // [n_ids]
    int32_t n_ids;        // highest id + 1
    int32_t n_tokens;     // without the holes
    struct buf arena;
    struct string_table by_content;
};

// n_ids: ids are below it. n_expected: how many tokens to make room for. E_NOMEM, E_IO; release it in any case.
int vocab_init(struct vocab *v, int32_t n_ids, size_t n_expected, struct err *err);
void vocab_release(struct vocab *v);
// Adds content as id, or adds flags if they are already a token. E_FORMAT: the id has another content,
// or the content another id.
int vocab_add(struct vocab *v, const char *content, int32_t id, unsigned flags, struct err *err);
// Replaces the bytes of token id, at first those that its content spells in the byte alphabet.
int vocab_set_bytes(struct vocab *v, int32_t id, const char *bytes, size_t len, struct err *err);
int32_t vocab_find(const struct vocab *v, const char *content, size_t len); // or -1
// Finds only tokens of the model's own vocabulary; or -1
int32_t vocab_find_model(const struct vocab *v, const char *content, size_t len);
// NULL for a hole or an id out of range.
const struct token *vocab_token(const struct vocab *v, int64_t id);
static inline const char *vocab_content(const struct vocab *v, const struct token *t) {
    return v->arena.data + t->content;
}
// (t->bytes_len), which may hold NUL bytes; borrowed until the vocabulary grows.
static inline const char *vocab_bytes(const struct vocab *v, const struct token *t) {
    return v->arena.data + t->bytes;
}
