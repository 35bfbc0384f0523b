// Decodes tokens to text with the chain of steps that a tokenizer's file names, token by token.
// Complete decoding and streaming run the same code, so they cannot differ: a step holds text back
// until it can decide.
//
// A step takes a list of strings and makes a list for the next step; the first list is the tokens'
// contents, and the last one is concatenated. After a step that joins all strings, a string may
// arrive in parts.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "engine/text/pattern.h"
#include "engine/text/vocab.h"

#define DECODER_MAX_STEPS 8

enum decode_kind {
    DECODE_BYTE_LEVEL,    // byte alphabet to bytes, everything joined; invalid UTF-8 becomes U+FFFD
    DECODE_METASPACE,     // content becomes a space; flag: in the first token it is removed
    DECODE_REPLACE,       // content replaces matches of the pattern; flag: it is a single character
    DECODE_BYTE_FALLBACK, // runs of "<0x41>" to bytes; each byte of a run that is not UTF-8 as a
                          // whole becomes U+FFFD
    DECODE_FUSE,          // everything joined
    // removes content, one character, at most `start` times in front and `stop` times at the end
    DECODE_STRIP,
    DECODE_BPE,        // content, a suffix, becomes a space; the last token loses it
    DECODE_WORD_PIECE, // a space before each token, except the first and those that begin with
                       // content; flag: cleaned up
    DECODE_CTC, // repeated tokens count once, content is removed; flag: delimiter becomes a space,
                // and the text is cleaned up
    DECODE_SPACES,       // no decoder: tokens with spaces between
    DECODE_SENTENCEPIECE // depends on the kinds of pieces; flag: drops a leading U+2581; all: drops
                         // every leading one
};

struct decode_step {
    enum decode_kind kind;
    char *content, *delimiter;
    size_t start, stop;
    bool flag, all;
    struct pattern pattern;
};
struct decoder {
    struct decode_step steps[DECODER_MAX_STEPS];
    int n_steps;
};
void decoder_release(struct decoder *d); // also of a half-read one
// True if the only step is ByteLevel: then the vocabulary holds the tokens' bytes.
bool decoder_is_byte_level(const struct decoder *d);
// Appends the bytes that a token with the content [s, s + len) stands for inside a text. E_NOMEM.
int decoder_token_bytes(const struct decoder *d, const char *s, size_t len, struct buf *out,
                        struct err *err);

// One run. Zero it before the first use.
struct decode_state {
    struct buf held; // the parts of a string received so far
    struct buf last; // the previous string, or a run of bytes
    struct buf made; // the result for this string
    size_t n;        // strings seen; for SENTENCEPIECE and STRIP bytes or characters
    char pending[8]; // an unfinished character
    unsigned n_pending;
    bool flag;
};
struct decoding {
    const struct decoder *decoder;
    struct decode_state states[DECODER_MAX_STEPS];
    struct buf *out; // during a call
};
// Reuses the memory of an earlier run
void decoding_start(struct decoding *d, const struct decoder *decoder);
int decoding_token(struct decoding *d, const struct vocab *v, const struct token *token,
                   struct buf *out);
int decoding_end(struct decoding *d, struct buf *out); // appends the text held back
void decoding_release(struct decoding *d);
