// The rules of the decoder's steps (decoder.h): each turns one string into another and knows
// nothing of the chain of steps (decoder.c).
#pragma once
#include "engine/text/decoder.h"

// The byte that "<0x41>" spells, or -1.
int decode_byte_token(const char *s, size_t len);
// Each appends the result for s to *out.
int decode_replace(struct buf *out, const char *s, size_t len, const char *what, const char *with);
int decode_replace_pattern(const struct decode_step *step, const char *s, size_t len,
                           struct buf *out);
int decode_byte_level(struct buf *out, const char *text, size_t len);
// Adds one token's text to s->made, after a space if the step puts one.
int decode_word_piece(const struct decode_step *step, struct decode_state *s, const char *text,
                      size_t len);
// Removes the spaces that tokenizers of English words put around punctuation.
int decode_clean_up(struct buf *text);
// Removes the characters that the step strips from both ends of [*s, *s + *len).
void decode_strip(const struct decode_step *step, const char **s, size_t *len);
