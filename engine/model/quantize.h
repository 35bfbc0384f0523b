// Writes a model folder with its matrices in 8 bits, bit for bit equal to those that weight_dtype makes
// while loading (README.md). Integers have the CPU's layout, so that loading can map them. e4m3 numbers
// have a format that other programs read (compressed-tensors: a scale for each output).
#pragma once
#include "base/err.h"
#include "engine/model/weight_format.h"
#include <signal.h>
#include <stdint.h>

// Writes out_dir, which must not exist. Its files are model.safetensors (matrices in panels, or as e4m3
// in their old shape, each with its scales in NAME_scale; other tensors unchanged; unused ones left
// out), config.json with its quantization_config, and the text files (tokenizer, chat template,
// generation_config.json). Writes to out_dir.partial and renames it when it is complete; a failure
// removes all files. Memory holds a block of rows of one tensor (a whole tensor if it is stored
// inputs by outputs). E_FULL: the disk is full; E_UNSUPPORTED: a value that no scale can express (the
// error names the tensor), or a model that is already quantised; E_CANCELLED: *stop was set.
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
