// Byte-pair encoding over characters, as tokenizer.json has it: what to do with characters that the
// vocabulary lacks, and marks for the inside and the end of words.
#pragma once
#include "engine/text/bpe.h"

#define BPE_AFFIX_MAX 256 // bytes of a prefix or suffix

struct bpe_chars {
    struct bpe bpe;
    int32_t ascii[128];       // the token of each character, or -1
    int32_t byte_tokens[256]; // "<0x41>" under byte_fallback, or -1
    char *prefix, *suffix;    // of every character but a word's first; of its last. NULL: none. At
                              // most BPE_AFFIX_MAX bytes
    char *unk;                // NULL: unknown characters vanish
    int32_t unk_id;           // -1: the vocabulary has no such token
    bool fuse_unk, ignore_merges;
    bool cuts; // no merge reaches across the start of a run of U+2581, so that a text may be cut
               // into words there
};

void bpe_chars_release(struct bpe_chars *b);
// After the last merge, with prefix, suffix, unk, fuse_unk and ignore_merges set.
int bpe_chars_finish(struct bpe_chars *b, const struct vocab *v, bool byte_fallback,
                     struct err *err);
// E_NOMEM; E_INVAL for a character without token where unk is no token.
int bpe_chars_encode(const struct bpe_chars *b, const struct vocab *v, const char *word, size_t len,
                     struct bpe_scratch *s, struct token_list *out);

// The tokens of single bytes, "<0x00>" to "<0xFF>", that the vocabulary's model has; -1 for others.
void vocab_byte_tokens(const struct vocab *v, int32_t ids[256]);
// Before which character a text can be cut without changing its tokens: true where no content has
// U+2581 behind another character.
bool content_starts_words(const char *content, size_t len);
size_t next_word_start(const char *text, size_t len, size_t from); // behind from; len at the end
