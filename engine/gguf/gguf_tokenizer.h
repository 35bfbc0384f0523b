// Tokenizer files of a GGUF file: see gguf_folder.h.
#pragma once
#include "base/buf.h"
#include "engine/gguf/gguf.h"

enum gguf_tokenizer {
    GGUF_TOKENIZER_NONE, // ids only
    GGUF_TOKENIZER_BYTE_LEVEL,
    GGUF_TOKENIZER_PIECES, // merges over text whose spaces are U+2581, with tokens of bytes (Gemma 4)
    GGUF_TOKENIZER_SENTENCEPIECE
};

// E_UNSUPPORTED names a kind that is unknown.
int gguf_tokenizer_kind(const struct gguf *g, enum gguf_tokenizer *out, struct err *err);
// tokenizer.json of GGUF_TOKENIZER_BYTE_LEVEL and GGUF_TOKENIZER_PIECES; g with its long arrays. E_UNSUPPORTED names a `pre` that is unknown.
int gguf_tokenizer_json(const struct gguf *g, cJSON *into, struct err *err);
// tokenizer.model of GGUF_TOKENIZER_SENTENCEPIECE; g with its long arrays.
int gguf_tokenizer_model(const struct gguf *g, struct buf *out, struct err *err);
// The chat templates of tokenizer_config.json; g with or without its long arrays.
int gguf_tokenizer_templates(const struct gguf *g, cJSON *into, struct err *err);
// tokenizer_config.json; g with its long arrays.
int gguf_tokenizer_config(const struct gguf *g, cJSON *into, struct err *err);
