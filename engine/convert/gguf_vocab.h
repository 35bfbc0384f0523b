// The tokenizer and the chat template of a model folder, as metadata of a GGUF file. engine/gguf/gguf_tokenizer.c
// takes the way back.
#pragma once
#include "engine/convert/gguf_writer.h"
#include "engine/model/model_config.h"

// Reads tokenizer.json (byte-level BPE) or tokenizer.model (SentencePiece's BPE), tokenizer_config.json and
// chat_template.jinja. A folder without a tokenizer gives tokenizer.ggml.model "none". E_UNSUPPORTED names what
// the metadata cannot say.
int gguf_vocab_put(struct gguf_writer *w, const char *dir, const struct model_config *c,
                   struct err *err);
