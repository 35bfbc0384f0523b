// Compares two tokenizers by what they make of texts.
#pragma once
#include "base/err.h"

// Encodes some texts, which take the ways that tokenizers differ in, with the tokenizers of both models (folders or
// GGUF files). E_UNSUPPORTED names the first text that they cut otherwise; others as tokenizer_open.
int probe_texts_compare(const char *a, const char *b, struct err *err);
