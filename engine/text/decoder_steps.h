// The inside of decoder.h: its steps over whole strings (decoder_steps.c), and how they pass on
// what they make (decoder.c).
#pragma once
#include "engine/text/decoder.h"

// What step i makes goes on to the next one, or out. end: the string ends here.
int decoding_pass(struct decoding *d, int i, const char *s, size_t len, bool end);
// The same for bytes that need not be whole characters, parts of one string: an unfinished one is
// kept.
int decoding_pass_bytes(struct decoding *d, int i, const char *bytes, size_t len);
// One string for step i, whole.
int decode_string(struct decoding *d, int i, const char *s, size_t len);
// The strings have ended: what step i has kept.
int decode_end(struct decoding *d, int i);
// The byte that "<0x41>" spells, or -1.
int decode_byte_token(const char *s, size_t len);
int decode_replace(struct buf *out, const char *s, size_t len, const char *what, const char *with);
