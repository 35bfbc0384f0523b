// Normalises a text before it is cut into words. Each step of a chain rewrites the result of the
// previous step. Linear in the text. Read-only after building.
#pragma once
#include "engine/text/charsmap.h"
#include "engine/text/normal_form.h"
#include "engine/text/pattern.h"
#include "engine/text/user_symbols.h"

#define NORMALIZER_MAX_STEPS 16
// The size to which a text may grow. Unicode's compatibility forms make at most 11 bytes from one, the
// byte alphabet at most 2. Without the bound, a Replace that turns each character into a sentence
// would turn one user's message into gigabytes, in memory that all users share.
#define NORMALIZED_MAX_BYTES(len) (((size_t)64 << 10) + 64 * (size_t)(len))

enum normalize_kind {
    NORMALIZE_NFC, // the forms, in the order of enum normal_form
    NORMALIZE_NFD,
    NORMALIZE_NFKC,
    NORMALIZE_NFKD,
    NORMALIZE_LOWERCASE,     // each character by itself
    NORMALIZE_STRIP,         // white space on the left, the right
    NORMALIZE_DROP_MARKS,    // categories Mn, Mc, Me
    NORMALIZE_DROP_ACCENTS,  // Mn only
    NORMALIZE_NMT,           // drops control characters, turns separators into spaces
    NORMALIZE_BERT_CLEAN,    // the same by BERT's rules
    NORMALIZE_BERT_CHINESE,  // spaces around ideographs
    NORMALIZE_BYTE_ALPHABET, // each byte as a character of byte_alphabet.h
    NORMALIZE_PREPEND,       // puts content before a text that is not empty
    NORMALIZE_REPLACE,       // replaces matches of the pattern by content
    NORMALIZE_CHARSMAP,      // as Hugging Face tokenizers applies it
    NORMALIZE_SENTENCEPIECE  // as SentencePiece does, with its white space rules
};

struct normalize_step {
    enum normalize_kind kind;
    bool left, right;                   // STRIP
    struct pattern pattern;             // REPLACE
    char *content;                      // REPLACE, PREPEND
    struct charsmap charsmap;           // CHARSMAP, SENTENCEPIECE; without units: none
    const struct user_symbols *symbols; // SENTENCEPIECE leaves them unchanged; borrowed or NULL
    bool prefix_first_only;             // no dummy prefix after an added token
    bool add_dummy_prefix, remove_extra_whitespaces, escape_whitespaces;
};
struct normalizer {
    struct normalize_step steps[NORMALIZER_MAX_STEPS]; // applied in order
    int n_steps;
};

void normalizer_release(struct normalizer *n); // also of a half-read one
// Replaces *out by the normalised text. spans (ascending, disjoint, of text) move with their bytes.
// If a border falls inside characters that a step joins or reorders, the span grows to include them.
// *at_start (NULL: true): in, whether text begins where the user's text begins; out, false if a step
// removed its first bytes. bare: no prefix is added.
int normalizer_apply(const struct normalizer *n, const char *text, size_t len, struct buf *out,
                     struct text_span *spans, size_t n_spans, bool bare, bool *at_start,
                     struct err *err);
bool normalizer_puts_space(const struct normalizer *n); // whether it adds a space before a text

// The steps on single characters (normalize_chars.c) and those of the charsmap
// (normalize_charsmap.c).
int normalize_chars(enum normalize_kind kind, struct rewrite *r);
int normalize_strip(const struct normalize_step *s, struct rewrite *r);
int normalize_charsmap(const struct normalize_step *s, struct rewrite *r);
int normalize_sentencepiece(const struct normalize_step *s, struct rewrite *r);
