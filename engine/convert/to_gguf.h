// Writes a model folder of Hugging Face as one GGUF file, which llama.cpp and Parley read: weights, shape, tokenizer
// and chat template.
#pragma once
#include "base/err.h"
#include <signal.h>
#include <stdint.h>

// The type of the matrices. Vectors and routers are F32. Q4_0: embedding and head are Q8_0. Matrices whose columns 32
// does not divide keep the folder's type.
enum gguf_weights { GGUF_Q8_0, GGUF_Q4_0, GGUF_F16, GGUF_BF16 };

struct to_gguf_options {
    const char *model_dir;
    const char *out; // the file, NAME.gguf; it must not exist
    enum gguf_weights weights;
    void (*progress)(void *ctx, int64_t done, int64_t total); // bytes read
    void *progress_ctx;
    const volatile sig_atomic_t *stop; // may be NULL
};
struct to_gguf_result {
    int64_t n_matrices, bytes_before, bytes_after; // of tensors
};

// Writes NAME.partial.gguf, and renames it when it is complete; a failure removes it. Before the first weight is
// written, the file's metadata are read back: if they describe another model, or a tokenizer that cuts some text
// otherwise, the file is not written. Memory holds two rows of a matrix beside metadata and tokenizers.
// E_UNSUPPORTED names what the file cannot say, or a tensor with a value that its type cannot; E_EXISTS; E_FULL;
// E_CANCELLED: *stop was set.
int to_gguf_write(const struct to_gguf_options *o, struct to_gguf_result *out, struct err *err);
