// Random checkpoints of any shape, for benchmarks and tests without the real weights.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

// Writes out_dir/config.json, generation_config.json and model.safetensors (sharded past 4 GiB). Norms
// are near one; other values are normally distributed, with a scale that keeps activations near one.
// Streamed, so memory does not hold the model. The same seed gives the same bytes. A folder that already
// holds a model is E_EXISTS; a failure removes the checkpoint's files.
struct synth_options {
    const char *like;        // a named shape ("llama-1b", "demo" ...; synth_names), or NULL
    const char *config_path; // like NULL: a config.json with the shape
    const char *out_dir;
    const char *tokenizer_from; // a folder whose tokenizer files are copied, or NULL
    const char *dtype;          // NULL: the shape's own; "bf16", "f16", "f32"
    uint64_t seed;
    // Writes random.json instead of the weights: loading the folder makes the same values in memory.
    bool no_weights;
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
};
int synth_write(const struct synth_options *o, struct err *err);
void synth_remove(
    const char *out_dir);      // removes the files of a folder without weights; the folder stays
const char *synth_names(void); // comma separated, for --help
