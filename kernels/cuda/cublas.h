// Wide matrix products by cuBLASLt. Opening a GPU loads the library with dlopen; without it, the
// simple kernel multiplies.
//
// cuBLASLt has many algorithms for one product, and its own guess is not always the fastest. So
// opening a model measures the likeliest ones once for each weight shape and some numbers of rows,
// and keeps the winners in a file for that GPU and library version ($XDG_CACHE_HOME/parley or
// ~/.cache/parley). Other numbers of rows use the algorithm of the next larger one.
#pragma once
#include "kernels/cuda/cuda.h"

enum { CUBLAS_MAX_PLANS = 4096, CUBLAS_WORKSPACE_BYTES = 32 << 20, CUBLAS_WIDE_BYTES = 32 << 20 };

struct cublas_plan { // n 0: free
    int32_t n, rows, cols, ld, dtype, y_f32;
    uint64_t algo[8]; // cublasLtMatmulAlgo_t
};

struct cublas {
    void *lib, *handle; // lib NULL: not found
    const struct cublas_api *api;
    void *workspace;
    void *wide;                // (CUBLAS_WIDE_BYTES) pieces of 8-bit weights, widened
    struct cublas_plan *plans; // (CUBLAS_MAX_PLANS) a hash table
    int32_t n_plans, n_new;    // n_new: not in the file yet
    char path[512];            // of the file; "" for none
};

// Whether an 8-bit product of n rows is computed without scales, in F32 (linear_fp8.c).
bool cuda_fp8_unscaled(const struct cuda_linear *a, int32_t n);

// Returns 0 even if the library is missing (the log says so); E_NOMEM, E_DEVICE.
int cublas_open(struct cublas *b, const char *gpu_name, struct err *err);
void cublas_close(struct cublas *b); // no effect on a zeroed one
// Measures the algorithms that the file lacks for these weights and up to l->max_rows rows, reports
// progress to l->progress, and writes the file.
int cublas_tune(struct cublas *b, const struct cuda_linear *shapes, int n_shapes,
                const struct step_limits *l, cudaStream_t stream, struct err *err);
// Multiplies; widens 8-bit weights to x's dtype first, in pieces that stay in L2. This rounds each weight
// times its scale to that dtype; the narrow kernel does not. CUDA_UNSUPPORTED: no library, or no algorithm
// for this product.
int cublas_linear(struct cublas *b, const struct cuda_linear *a, cudaStream_t stream);
// The product of e4m3 by e4m3 (a->x_8bit) without bias, times both scales; if y_f32, without scales.
// CUDA_UNSUPPORTED: nothing has been launched.
int cublas_linear_fp8(struct cublas *b, const struct cuda_linear *a, cudaStream_t stream);
