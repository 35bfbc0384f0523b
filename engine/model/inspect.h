// Describes a model folder and its memory needs. Reads only headers, no weights, and opens no device.
#pragma once
#include "base/err.h"

struct json_writer;

// Writes members into the JSON object that the caller has open: family, the switches in which families
// differ, sizes, token ids, sampling suggestions, tensors (number, bytes, by dtype), cache bytes for a
// token and for the longest session, bytes of the weights in 8 bits, memory for some numbers of
// sessions, the tokenizer and chat template files, the fingerprint. On failure the writer's buffer does
// not change.
int model_inspect(const char *dir, struct json_writer *w, struct err *err);
