// Writes a model folder with its matrices in 8 bits, bit for bit equal to those that weight_dtype makes
// while loading (README.md). Integers have the CPU's layout, so that loading can map them. e4m3 numbers
// have a format that other programs read (compressed-tensors: a scale for each output). So have integers of 4 bits
// (compressed-tensors' W4A16, pack-quantized: a scale for each 128 columns, kernels/int4.h): there the embedding, the
// head and matrices whose columns 128 does not divide stay as they are.
#pragma once
#include "base/err.h"
#include "engine/model/weight_format.h"
#include "kernels/int4.h"
#include <signal.h>
#include <stdint.h>

// Writes out_dir, which must not exist. Its files are model.safetensors (matrices in panels, or as e4m3
// in their old shape, each with its scales in NAME_scale; or NAME_packed, NAME_scale in the matrix's own
// type and NAME_shape; other tensors unchanged; unused ones left out), config.json with its quantization_config, and the text files (tokenizer, chat template,
// generation_config.json). Writes to out_dir.partial and renames it when it is complete; a failure
// removes all files. Memory holds a block of rows of one tensor (a whole tensor if it is stored
// inputs by outputs). E_FULL: the disk is full; E_UNSUPPORTED: a value that no scale can express (the
// error names the tensor), a model that is already quantised, or in 4 bits one without a matrix that
// has such groups; E_CANCELLED: *stop was set.
struct quantize_options {
    const char *model_dir, *out_dir;
    enum weight_format weights;                               // not WEIGHTS_OWN
    void (*progress)(void *ctx, int64_t done, int64_t total); // bytes read
    void *progress_ctx;
    // Of 4 bits: what is known of the inputs of a tensor's matrix. NULL: nothing of any.
    struct int4_inputs (*inputs)(void *ctx, const char *tensor, int64_t cols);
    void *inputs_ctx;
    const volatile sig_atomic_t *stop; // may be NULL
};
struct quantize_result {
    int64_t n_matrices, bytes_before, bytes_after; // of tensors
};
int quantize_write(const struct quantize_options *o, struct quantize_result *out, struct err *err);
// Removes a folder that quantize_write made, with everything in it.
void quantize_remove(const char *out_dir);
