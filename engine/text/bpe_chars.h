// Byte-pair encoding over characters, as in tokenizer.json, with its handling of characters that
// the vocabulary lacks and its marks for the inside and the end of words.
#pragma once
#include "engine/text/bpe.h"

#define BPE_AFFIX_MAX 256 // bytes of a prefix or suffix

struct bpe_chars {
    struct bpe bpe;
    int32_t ascii[128];       // the token of each character, or -1
    int32_t byte_tokens[256]; // "<0x41>" under byte_fallback, or -1
    // prefix marks every character of a word but the first; suffix marks the last one. NULL: none.
    // At most BPE_AFFIX_MAX bytes
    char *prefix, *suffix;
    char *unk;      // NULL: unknown characters vanish
    int32_t unk_id; // -1: the vocabulary has no such token
    bool fuse_unk, ignore_merges;
    bool cuts; // no merge crosses the start of a run of U+2581, so a text may be cut into words
               // there
};

void bpe_chars_release(struct bpe_chars *b); // a zeroed one is allowed
// Call it after the last merge, with prefix, suffix, unk, fuse_unk and ignore_merges set.
int bpe_chars_finish(struct bpe_chars *b, const struct vocab *v, bool byte_fallback,
                     struct err *err);
// E_NOMEM; E_INVAL for a character without a token if unk is not a token.
int bpe_chars_encode(const struct bpe_chars *b, const struct vocab *v, const char *word, size_t len,
                     struct bpe_scratch *s, struct token_list *out);

// The ids of the byte tokens "<0x00>" to "<0xFF>" in the model's vocabulary; -1: it has no such token.
void vocab_byte_tokens(const struct vocab *v, int32_t ids[256]);
// Whether the content has no U+2581 after another character. If this is true of all contents, a text
// can be cut before U+2581 without changing its tokens.
bool content_starts_words(const char *content, size_t len);
size_t next_word_start(const char *text, size_t len, size_t from); // after from; len if none
