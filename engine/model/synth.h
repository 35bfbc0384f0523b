// Random checkpoints of any shape, for benchmarks and tests without the real weights.
#pragma once
#include "base/err.h"
#include <stdint.h>

// like: a named shape ("llama-1b", "llama-8b", "qwen3-0.6b", "demo", ...; synth_names) or NULL with
// config_path, a config.json whose shape is taken. Writes out_dir/config.json,
// generation_config.json and model.safetensors (sharded past 4 GiB), values normal with a scale
// that keeps activations near one, norms near one; streamed, so memory does not hold the model.
// tokenizer_from: a folder whose tokenizer files are copied, or NULL. Same seed, same bytes. A
// folder that already holds a model is E_EXISTS; a failure removes the checkpoint's files.
struct synth_options {
    const char *like, *config_path, *out_dir, *tokenizer_from;
    const char *dtype; // NULL: the shape's own; "bf16", "f16", "f32"
    uint64_t seed;
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
};
int synth_write(const struct synth_options *o, struct err *err);
const char *synth_names(void); // comma separated, for --help
