// How byte-level tokenizers cut text before merging: the names that GGUF files have for it (tokenizer.ggml.pre).
#pragma once
#include "base/err.h"
#include <cjson/cJSON.h>
#include <stdbool.h>

// The patterns apply one after the other, each to the pieces of the one before.
#define GGUF_MAX_CUTS 6
struct gguf_cut {
    const char *pre;
    const char *patterns[GGUF_MAX_CUTS]; // the rest NULL
    bool ignore_merges;                  // a piece that is a token is that token
    bool starts;                         // a text begins with bos, unless the file says otherwise
};

// pre NULL: the file has none. E_UNSUPPORTED: that, or an unknown name.
int gguf_pre_find(const char *pre, const struct gguf_cut **out, struct err *err);
// The name of what a tokenizer.json's pre_tokenizer does. E_UNSUPPORTED: no name stands for it.
int gguf_pre_of(const cJSON *pre_tokenizer, bool ignore_merges, const char **pre, struct err *err);
