// What a model folder holds and needs, from its headers alone: no weight is read, no device opened.
#pragma once
#include "base/err.h"

struct json_writer;

// Writes into a JSON object that the caller has open: family, the switches in which families
// differ, sizes, token ids, sampling suggestions, tensors (number, bytes, by dtype), bytes of cache
// for a token, bytes of the weights in 8 bits, memory for some numbers of sessions, which tokenizer
// and chat template files are there, fingerprint. On failure the writer's buffer is as it was.
int model_inspect(const char *dir, struct json_writer *w, struct err *err);
