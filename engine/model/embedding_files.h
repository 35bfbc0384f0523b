// Models that give embeddings and no text: a folder of sentence-transformers (modules.json), or one whose architecture
// is a model without a head ("Qwen3Model").
#pragma once
#include "engine/model/model_config.h"

// Sets config->embeddings, and no_head, by the folder's files; both stay as they are in any other folder. A module that
// changes the embedding besides pooling and normalising is E_UNSUPPORTED by name. Any thread.
int embedding_files_read(struct model_config *config, const char *model_dir, struct err *err);
