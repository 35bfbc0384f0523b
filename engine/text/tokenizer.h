// Text to token ids and back, from a model folder's own tokenizer files. Read-only after opening:
// any number of threads may use one tokenizer at once. Lengths are size_t throughout; input must be
// valid UTF-8.
//
// Time is linear in the input's length for any text: merging a word uses a queue, not rescans, and
// the backtracking of pre-tokeniser patterns is bounded.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "engine/text/token_list.h"
#include <stdbool.h>

struct tokenizer;

// Reads the first of these in the folder: tokenizer.json; a SentencePiece model (tokenizer.model,
// sentencepiece.bpe.model, spiece.model); vocab.json with merges.txt. Also reads
// tokenizer_config.json, special_tokens_map.json and added_tokens.json if present. E_NOTFOUND: no
// tokenizer; E_UNSUPPORTED names the unknown part; E_FORMAT.
int tokenizer_open(struct tokenizer **out, const char *model_dir, struct err *err);
// The same from memory: the text of a tokenizer.json, or the bytes of a SentencePiece model. The model
// alone finds no special tokens in text, as in SentencePiece.
int tokenizer_open_json(struct tokenizer **out, const char *json, size_t len, struct err *err);
int tokenizer_open_model(struct tokenizer **out, const char *bytes, size_t len, struct err *err);
void tokenizer_close(struct tokenizer *t);

int32_t tokenizer_n_tokens(const struct tokenizer *t); // highest id + 1, added tokens included

// A plain span: bytes of the text in which the tokenizer finds no added tokens, so that a user's text
// cannot forge them. Exception: runs of white space that are added tokens (GPT-NeoX) are found
// everywhere, since they are words and forge nothing.
struct text_span {
    size_t from, to; // [from, to)
};
struct encode_options {
    bool no_special; // finds no added special tokens
    // The text continues an earlier one: gets no prefix (a space) that only the start of a text gets.
    bool continues;
    // The text follows text that is already encoded: gets no prefix, and a space before its first word
    // is encoded as inside a text. Not with plain spans.
    bool in_midst;
    const struct text_span *plain; // ascending, disjoint
    size_t n_plain;
};
// Appends the ids of text to *out. opt may be NULL (special tokens recognised everywhere). Adds no
// bos or eos.
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t len,
                     const struct encode_options *opt, struct token_list *out, struct err *err);
// Decodes ids with the tokenizer's own decoder and appends the text; keeps special tokens unless
// skip_special. Bytes that are not UTF-8 become U+FFFD. E_INVAL names an id outside the vocabulary.
int tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                     struct buf *out, struct err *err);

// The bytes that a token stands for inside a text (not always whole UTF-8), borrowed. NULL for an id
// outside the vocabulary.
const char *tokenizer_bytes(const struct tokenizer *t, int32_t id, size_t *len);
// The length of the longest token in bytes: a text of n bytes has at least n / longest tokens. 0: no
// such bound holds, because a normaliser, a pre-tokeniser or an added token removes bytes, or one
// unknown token stands for many bytes.
size_t tokenizer_longest_token(const struct tokenizer *t);
// The token of this text, if there is one, is part of text for people from now on, although the files call it
// special. Before any other thread uses the tokenizer.
void tokenizer_show(struct tokenizer *t, const char *content);
bool tokenizer_is_special(const struct tokenizer *t, int32_t id);
// An added or vocabulary token's id, or -1
int32_t tokenizer_find(const struct tokenizer *t, const char *content);
// bos_token and eos_token for templates; "" if absent.
const char *tokenizer_bos(const struct tokenizer *t);
const char *tokenizer_eos(const struct tokenizer *t);
// The token that a text of its own begins with where the files say so (add_bos_token, a post-processor's template, the
// class); -1: none. tokenizer_encode does not add it.
int32_t tokenizer_start(const struct tokenizer *t);
// The token that ends a text of its own where a post-processor's template says so; -1: none.
int32_t tokenizer_end(const struct tokenizer *t);
// "byte-level BPE, 4,096 tokens": for `parley inspect`. Owned by the tokenizer.
const char *tokenizer_description(const struct tokenizer *t);
