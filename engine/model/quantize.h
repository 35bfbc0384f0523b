// A model folder with its matrices in 8 bits: what weight_dtype makes at load, bit for bit, written
// once (README.md). Integers lie as the CPU multiplies by them, so that loading them is a map; e4m3
// as other programs have it too (compressed-tensors: a scale for each output).
#pragma once
#include "base/err.h"
#include "engine/model/weight_format.h"
#include <signal.h>
#include <stdint.h>

// Writes out_dir, which must not exist: model.safetensors (matrices in panels, or as e4m3 in the
// shape they had, each with its scales in NAME_scale, everything else as it is; what the model does
// not use is left out), config.json with the quantization_config that says so, and the files of
// words (tokenizer, chat template, generation_config.json). All of it goes to out_dir.partial,
// which takes the name out_dir when it is whole; after a failure nothing is left. Memory holds a
// block of rows of one tensor (all of one where it is stored inputs by outputs). E_FULL: the disk;
// E_UNSUPPORTED: a value that no scale can say, by its tensor, or a model that is quantised
// already; E_CANCELLED: *stop was set.
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
