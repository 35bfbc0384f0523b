// The settings of a model and of the engine that runs it, which the server and the commands that load
// a model share. Their rows have the server's defaults; a command has its own for some (cli.h).
#pragma once
#include "base/config.h"
#include "engine/engine.h"

struct model_settings {
    char *model, *tokenizer, *chat_template, *prompt_tasks, *device, *isa;
    char *compute_dtype; // "": as engine_options.compute_dtype says of NULL
    bool deterministic, fp8_activations;
    double gpu_memory_fraction, rank_timeout;
    int64_t threads, tensor_parallel, pipeline_parallel;
    int64_t kv_cache_bytes, block_tokens, prefill_chunk_tokens;
    int64_t session_len, memory_len, sink_len;
    int weight_dtype; // enum weight_format
    int kv_dtype;     // place in ENGINE_KV_DTYPES
};

// The placeholder of rows whose value names a model: a path, or a name on the hub, which commands replace by a path
// (cli/model_names.h).
#define MODEL_VALUE "MODEL"
#define MODEL_VALUE_HELP "a folder, a GGUF file, or ORG/NAME[:QUANT][@REVISION] of the hub"

#define MODEL_SETTINGS_MAX 32 // rows, at most
// Writes the rows of a section, "engine" or "sessions" (NULL: of both), to out and returns how many.
// offset: of the struct model_settings in the settings.
int model_setting_keys(struct config_key *out, const char *section, size_t offset);
// Default options of an engine with these settings, which stay the caller's and outlive *o.
void model_settings_engine(const struct model_settings *s, struct engine_options *o);
