// config.json of a GGUF file.
#pragma once
#include "engine/gguf/gguf.h"

// Adds the keys to an object. The rope_freqs tensor is read for it.
int gguf_config_make(const struct gguf *g, cJSON *into, struct err *err);
