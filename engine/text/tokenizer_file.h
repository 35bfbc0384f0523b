// The tokenizer's inside, shared by the reader of its files (tokenizer_json.c) and its use
// (tokenizer.c).
#pragma once
#include "engine/text/added_tokens.h"
#include "engine/text/bpe.h"
#include "engine/text/normalizer.h"
#include "engine/text/pre_tokenizer.h"
#include "engine/text/tokenizer.h"
#include "engine/text/vocab.h"

struct tokenizer {
    struct vocab vocab;
    struct added_tokens added;            // found in the text as it came
    struct normalizer normalizer;         // then each piece between them is normalised,
    struct added_tokens added_normalized; // searched for these,
    struct pre_tokenizer pre;             // cut into words,
    struct bpe bpe;                       // and encoded
    char *bos, *eos;
    char description[64];
};

// Fills the zeroed *t from the model folder; what is in it after a failure, tokenizer_close frees.
int tokenizer_read(struct tokenizer *t, const char *model_dir, struct err *err);
// The steps of a pre_tokenizer or normalizer value of tokenizer.json; NULL and null have none.
struct cJSON;
int tokenizer_read_pre(struct pre_tokenizer *p, const struct cJSON *json, struct err *err);
int tokenizer_read_normalizer(struct normalizer *n, const struct cJSON *json, struct err *err);
// E_UNSUPPORTED for a key of obj that is not among the known ones (ends with NULL).
int tokenizer_known_keys(const struct cJSON *obj, const char *where, const char *const *known,
                         struct err *err);
