// A GGUF file as the folder of Hugging Face that it stands for: the files that such a folder would have, made from
// the metadata. So that whatever reads a folder reads a GGUF file.
//   config.json            shape and switches, rope_freqs as factors
//   tokenizer.json         byte-level BPE ("gpt2"), with the splitting pattern that `pre` names
//   tokenizer.model        SentencePiece ("llama")
//   tokenizer_config.json  bos, eos, added tokens, chat template(s)
#pragma once
#include "base/buf.h"
#include "engine/gguf/gguf.h"

// Whether the path is a GGUF file that has such a file. False too if it cannot be read.
bool gguf_folder_holds(const char *path, const char *name);
// The JSON file of that name. E_NOTFOUND: it has none; others as gguf_open, and E_UNSUPPORTED for an architecture, a
// tokenizer or a `pre` that is unknown. cJSON_Delete the result.
int gguf_folder_json(cJSON **out, const char *path, const char *name, struct err *err);
// An object with the key chat_template of tokenizer_config.json alone, if the file has one: the vocabulary is not read.
int gguf_folder_templates(cJSON **out, const char *path, struct err *err);
// tokenizer.model. Initialises *out, which is the caller's also on failure.
int gguf_folder_model(struct buf *out, const char *path, struct err *err);
