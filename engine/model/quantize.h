// Writes a model folder with its matrices in 8 bits, bit for bit what weight_dtype makes of them while
// loading (README.md). Integers are stored in the CPU's layout, so that loading maps them; e4m3 in a
// format that other programs read (compressed-tensors: a scale for each output).
#pragma once
#include "base/err.h"
#include "engine/model/weight_format.h"
#include <signal.h>
#include <stdint.h>

// Writes out_dir, which must not exist: model.safetensors (matrices in panels, or as e4m3 in their
// old shape, each with its scales in NAME_scale; everything else unchanged, without unused
// tensors), config.json with its quantization_config, and the text files (tokenizer, chat template,
// generation_config.json). Writes to out_dir.partial and renames it when it is complete; a failure
// removes everything. Memory holds a block of rows of one tensor (a whole tensor if it is stored
// inputs by outputs). E_FULL: the disk; E_UNSUPPORTED: a value that no scale can express, naming
// the tensor, or a model that is already quantised; E_CANCELLED: *stop was set.
struct quantize_options {
    const char *model_dir, *out_dir;
    enum weight_format weights;                               // WEIGHTS_INT8 or WEIGHTS_FP8
    void (*progress)(void *ctx, int64_t done, int64_t total); // bytes read
    void *progress_ctx;
    const volatile sig_atomic_t *stop; // may be NULL
};
struct quantize_result {
    int64_t n_matrices, bytes_before, bytes_after; // of tensors
};
int quantize_write(const struct quantize_options *o, struct quantize_result *out, struct err *err);
