// Wide matrix products by cuBLASLt, which is looked for when a GPU is opened (dlopen): a program
// built with CUDA runs where it is missing, on the simple kernel.
//
// cuBLASLt has many algorithms for one product and its own guess is not always the best, so for
// each weight's shape and a few widths the likeliest are measured once, when a model is opened, and
// the winners kept in a file for that GPU and version ($XDG_CACHE_HOME/parley, ~/.cache/parley). A
// width in between uses the next larger one's algorithm.
#pragma once
#include "kernels/cuda/cuda.h"

enum { CUBLAS_MAX_PLANS = 4096, CUBLAS_WORKSPACE_BYTES = 32 << 20, CUBLAS_WIDE_BYTES = 32 << 20 };

struct cublas_plan { // n 0: free
    int32_t n, rows, cols, ld, dtype, y_f32;
    uint64_t algo[8]; // cublasLtMatmulAlgo_t
};

struct cublas {
    void *lib, *handle; // lib NULL: not there
    const struct cublas_api *api;
    void *workspace;
    void *wide; // CUBLAS_WIDE_BYTES: 8-bit weights pass through it in pieces, widened
    struct cublas_plan *plans; // (CUBLAS_MAX_PLANS) a hash table
    int32_t n_plans, n_new;
    char path[512]; // of the file; "" for none
};

// 0 also where the library is missing (said in the log); E_NOMEM, E_DEVICE.
int cublas_open(struct cublas *b, const char *gpu_name, struct err *err);
void cublas_close(struct cublas *b); // of a zeroed one: nothing
// Measures what is not yet known for these weights at widths of 17 to l->max_rows rows, tells
// l->progress of it, and writes the file.
int cublas_tune(struct cublas *b, const struct cuda_linear *shapes, int n_shapes,
                const struct step_limits *l, cudaStream_t stream, struct err *err);
// Weights of 8 bits are widened to x's dtype in pieces that stay in the GPU's cache (one more
// rounding than in the narrow kernel, of the size of x's own). CUDA_NOT_MINE: no library, or
// nothing in it takes this product.
int cublas_linear(struct cublas *b, const struct cuda_linear *a, cudaStream_t stream);
