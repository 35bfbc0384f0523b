// The tokenizer's struct, shared by the readers of its files (tokenizer_json.c and its parts,
// tokenizer_model.c, tokenizer_folder.c) and tokenizer.c, which uses it.
#pragma once
#include "engine/text/added_tokens.h"
#include "engine/text/bpe_chars.h"
#include "engine/text/bpe_pieces.h"
#include "engine/text/decoder.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/unigram.h"

enum tokenizer_kind {
    TOKENIZER_BYTE_BPE,     // words as bytes, bpe.h
    TOKENIZER_CHAR_BPE,     // bpe_chars.h
    TOKENIZER_UNIGRAM,      // unigram.h
    TOKENIZER_PIECE_BPE,    // SentencePiece's: bpe_pieces.h
    TOKENIZER_PIECE_UNIGRAM // unigram.h, by SentencePiece's rules
};

struct tokenizer {
    enum tokenizer_kind kind;
    struct vocab vocab;
    struct added_tokens added;            // 1. found in the unchanged text
    struct normalizer normalizer;         // 2. normalises each piece between them
    struct added_tokens added_normalized; // 3. found in the normalised piece
    struct pre_tokenizer pre;             // 4. cuts the rest into words
    struct bpe bpe;                       // 5. encodes a word, or the model that kind names does
    struct bpe_chars chars;
    struct unigram unigram;
    struct pieces pieces; // of SentencePiece
    struct bpe_pieces piece_bpe;
    struct decoder decoder;
    char *bos, *eos;
    char *start; // the token before a text of its own, by the files; NULL: none
    char *end;   // the token behind it, by a post-processor; NULL: none
    char description[64];
};

// Each fills the zeroed *t. After a failure tokenizer_close frees its contents.
struct cJSON;
int tokenizer_read_folder(struct tokenizer *t, const char *model_dir, struct err *err);
int tokenizer_read_json(struct tokenizer *t, const struct cJSON *root, struct err *err);
struct model_options { // settings from the files beside a SentencePiece model
    // a list like tokenizer.json's added_tokens; NULL: only the model's own
    const struct cJSON *added;
    // contents of further special tokens; new ones get ids in this order
    const char *const *special;
    size_t n_special;
    bool known;             // the files exist: control pieces are special tokens, found in text
    bool prefix_first_only; // "legacy": false
    bool no_prefix;         // "add_prefix_space": false
    bool xglm;              // ids as XGLMTokenizer numbers them
};
// bytes: a whole SentencePiece file, borrowed for the call.
int tokenizer_read_model(struct tokenizer *t, const char *bytes, size_t len,
                         const struct model_options *o, struct err *err);

// --- parts of a tokenizer.json

#define TOKENIZER_MAX_NESTING 8

// Each reads one part of the JSON; without it (NULL, or JSON's null) the part has no steps.
// *byte_level: the last step is ByteLevel, so words are bytes.
int tokenizer_read_pre(struct pre_tokenizer *p, const struct cJSON *json, bool *byte_level,
                       struct err *err);
int tokenizer_read_normalizer(struct normalizer *n, const struct cJSON *json, struct err *err);
int tokenizer_read_decoder(struct decoder *d, const struct cJSON *json, struct err *err);
int tokenizer_read_added(struct tokenizer *t, const struct cJSON *list, struct err *err);
int tokenizer_token_id(const struct cJSON *item, int32_t *id, const char *content, struct err *err);

// E_UNSUPPORTED if obj has a key that is not in known, a list that ends with NULL.
int tokenizer_known_keys(const struct cJSON *obj, const char *where, const char *const *known,
                         struct err *err);
int tokenizer_type_of(const struct cJSON *json, const char *where, const char **type,
                      struct err *err);
// Reads "pattern": {"Regex": ...} or {"String": ...}. Sets one of *regex and *string.
int tokenizer_read_pattern(const struct cJSON *json, const char *where, const char **regex,
                           const char **string, struct err *err);
bool tokenizer_is_character(const char *s); // s is exactly one character
struct tokenizer_metaspace {
    const char *replacement;
    enum pre_prepend prepend;
    bool split;
};
// The settings of a Metaspace step; *m borrows from json. E_FORMAT, E_UNSUPPORTED, with `where` in the message.
int tokenizer_read_metaspace(const struct cJSON *json, const char *where,
                             struct tokenizer_metaspace *m, struct err *err);
