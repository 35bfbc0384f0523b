// Tokens to text: the chain of steps that a tokenizer's file names, run token by token as they
// come. Whole decoding and streaming are the same run, so they cannot differ: what a step cannot
// know yet it keeps until it can.
//
// A step takes a list of strings, first the tokens' contents, and leaves a list for the next one;
// what the last one leaves is put together. A string may reach a step in parts, where a step before
// it has joined everything.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "engine/text/pattern.h"
#include "engine/text/vocab.h"

#define DECODER_MAX_STEPS 8

enum decode_kind {
    DECODE_BYTE_LEVEL, // byte alphabet to bytes, everything joined; what is not UTF-8 becomes
                       // U+FFFD
    DECODE_METASPACE,  // content to a space; none in the first token where flag
    DECODE_REPLACE,    // matches of the pattern by content; flag: the pattern is a single character
    DECODE_BYTE_FALLBACK, // runs of "<0x41>" to bytes; each byte of a run that is no UTF-8 as a
                          // whole becomes U+FFFD
    DECODE_FUSE,          // everything joined
    DECODE_STRIP,      // content, one character, up to start times in front and stop times behind
    DECODE_BPE,        // content, a suffix, to a space; to nothing in the last token
    DECODE_WORD_PIECE, // a space before each token but the first and those that begin with content;
                       // flag: cleaned up
    DECODE_CTC, // repeated tokens once, content gone, delimiter to a space where flag, which also
                // cleans up
    DECODE_SPACES,       // no decoder: tokens with spaces between
    DECODE_SENTENCEPIECE // by kinds of pieces; flag: a leading U+2581 goes; all: every leading one
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
void decoder_release(struct decoder *d);
// and nothing else: such vocabularies keep their tokens' bytes
bool decoder_is_byte_level(const struct decoder *d);
// The bytes that a token in the midst of a text stands for, where its content is [s, s + len).
// E_NOMEM.
int decoder_token_bytes(const struct decoder *d, const char *s, size_t len, struct buf *out,
                        struct err *err);

// One run. Zeroed before the first use.
struct decode_state {
    struct buf held; // of a string that came in parts
    struct buf last; // the string before this one, or a run of bytes
    struct buf made; // what this one becomes
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
void decoding_start(struct decoding *d,
                    const struct decoder *decoder); // keeps the memory of an earlier run
int decoding_token(struct decoding *d, const struct vocab *v, const struct token *token,
                   struct buf *out);
int decoding_end(struct decoding *d, struct buf *out); // what was kept
void decoding_release(struct decoding *d);
