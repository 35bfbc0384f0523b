// Writes a model as a FasterTransformer checkpoint: OUT_DIR/N-gpu with config.ini, one file for each
// array and rank, and the source's tokenizer files.
//
// The source is GPT-2, OPT, BLOOM or GPT-J, in Hugging Face's format or in FasterTransformer's (to
// split it for another number of ranks). Another family, or a switch without a key in config.ini, is
// E_UNSUPPORTED by name, so that the written model always computes the same as its source.
// Streamed: memory holds one matrix of one layer. The folder gets its name when it is complete; a
// failure removes all files. An existing folder is E_EXISTS.
#pragma once
#include "base/err.h"
#include <limits.h>
#include <signal.h>
#include <stdint.h>

struct ft_export_options {
    const char *model_dir, *out_dir;
    int32_t tensor_parallel; // ranks; divides the heads and the feed-forward width
    const char *dtype; // "fp32", "fp16", "bf16"; NULL: the source's; fp32 if the source has several
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *progress_ctx;
    // If set, the export ends with E_CANCELLED and removes all files; may be NULL.
    const volatile sig_atomic_t *stop;
};
// written: receives the path of the folder, for a message.
int ft_export(const struct ft_export_options *o, char written[PATH_MAX], struct err *err);
