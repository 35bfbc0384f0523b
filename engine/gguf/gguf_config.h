// config.json of a GGUF file.
#pragma once
#include "engine/gguf/gguf.h"

#define GGUF_POOLING "gguf_pooling_type" // the key of embedding models, with llama.cpp's number

// Adds the keys to an object. The rope_freqs tensor is read for it.
int gguf_config_make(const struct gguf *g, cJSON *into, struct err *err);
