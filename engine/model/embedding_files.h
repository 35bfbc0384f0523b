// Models that give embeddings and no text: a folder of sentence-transformers (modules.json), one whose architecture is a
// model without a head ("Qwen3Model"), or a GGUF file with a pooling_type.
#pragma once
#include "base/json.h"
#include "engine/model/model_config.h"

// Sets config->embeddings, and no_head, by the folder's files; both stay as they are in any other folder. A module that
// changes the embedding besides pooling and normalising is E_UNSUPPORTED by name. Any thread.
int embedding_files_read(struct model_config *config, const char *model_dir, struct err *err);
// The same of a GGUF file, by the pooling_type that its metadata name: json is what gguf_config_make gave. llama.cpp gives
// such embeddings unit length. E_UNSUPPORTED: a number that is unknown.
int embedding_gguf_read(struct model_config *config, const cJSON *json, struct err *err);
