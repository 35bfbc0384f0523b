// Linears by e4m3 weights whose activations are rounded to e4m3 too (`fp8_activations`): the tensor
// cores multiply 8 bits at twice the rate of 16. linear_fp8.cu rounds x; then
//
//   a scale for each row of W, up to       cuBLASLt multiplies into F32, and linear_fp8.cu applies scales, bias and
//   UNSCALED_ROWS rows of x                activation: the library's only kernel with a scale for each row does not
//                                          divide K, so 64 rows of Llama-8B took 123 microseconds a layer with it, 78
//                                          without
//   a scale for each row, more rows of x   cuBLASLt scales
//   scales of blocks                       linear_stream.cu up to two times its rows, else linear_tiles.cu
//
// A step of few rows is bound by reading W, which is as fast with x in 16 bits.
#include "kernels/cuda/backend_cuda.h"

#include "kernels/cuda/linear_wide.h"

// LEAST_ROWS: with 48 sessions of Llama-8B 9,107 tokens/s, and 8,208 by linear_stream.cu; with 32 it is
// 1.5 % more, and 16 the same.
enum { LEAST_ROWS = 33, UNSCALED_ROWS = 256, SUMS_BYTES = 32 << 20 };

bool cuda_fp8_unscaled(const struct cuda_linear *a, int32_t n) {
    return !a->block_k && n <= UNSCALED_ROWS &&
           (size_t)n * (size_t)a->rows * sizeof(float) <= SUMS_BYTES;
}

int cuda_fp8_reserve(struct cuda_backend *cuda, const struct step_limits *l, struct err *err) {
    struct cuda_fp8 *f = &cuda->fp8;
    size_t cols = 0;
    cuda_fp8_release(cuda);
    for (int i = 0; i < cuda->n_shapes && f->on; i++) {
        const struct cuda_linear *a = &cuda->shapes[i];
        if (a->x_8bit && (size_t)a->cols > cols) cols = (size_t)a->cols;
    }
    if (cols == 0 || l->max_rows < LEAST_ROWS) return 0;
    f->x_bytes = cols * (size_t)l->max_rows;
    f->scale_bytes = (size_t)l->max_rows * sizeof(float);
    f->sums_bytes = SUMS_BYTES;
    TRY(cuda_alloc((void **)&f->x, f->x_bytes, err));
    TRY(cuda_alloc((void **)&f->scale, f->scale_bytes, err));
    return cuda_alloc((void **)&f->sums, f->sums_bytes, err);
}

void cuda_fp8_release(struct cuda_backend *cuda) {
    cudaFree(cuda->fp8.x);
    cudaFree(cuda->fp8.scale);
    cudaFree(cuda->fp8.sums);
    cuda->fp8 = (struct cuda_fp8){.on = cuda->fp8.on};
}

static bool covers(const struct cuda_fp8 *f, const struct cuda_linear *a) {
    size_t n = (size_t)a->n;
    return f->x && f->sums && a->w_dtype == DTYPE_F8_E4M3 && a->n >= LEAST_ROWS && !a->y_f32 &&
           !a->norm_weight && a->cols % 16 == 0 && (a->block_k || a->rows % 16 == 0) &&
           n * (size_t)a->cols <= f->x_bytes && n * sizeof(float) <= f->scale_bytes;
}

// *a (x_8bit) where W has scales of blocks.
static int multiply_blocks(const struct cuda_linear *a, cudaStream_t stream) {
    enum { PIECE = CUDA_STREAM_ROWS };
    struct cuda_linear piece = *a;
    if (a->n > 2 * PIECE) return cuda_linear_tiles(a, stream);
    for (int32_t row = 0; row < a->n; row += piece.n) {
        piece.n = a->n - row < PIECE ? a->n - row : PIECE;
        const int rc = cuda_linear_stream(&piece, stream);
        if (rc != 0) return rc; // the first call decides for all
        piece.x = (const char *)piece.x + (size_t)piece.n * (size_t)a->cols;
        piece.x_scale += piece.n;
        piece.y = (char *)piece.y + (size_t)piece.n *
                                        (size_t)(a->rows / (a->activate && a->gated ? 2 : 1)) *
                                        dtype_size(a->dtype);
    }
    return 0;
}

// Scales by the library, and a bias in a pass of its own.
static int multiply_scaled(struct cuda_backend *cuda, const struct cuda_linear *a,
                           struct cuda_linear product) {
    int rc = cublas_linear_fp8(&cuda->blas, &product, cuda->stream);
    if (rc == 0 && a->bias)
        rc = cuda_add_bias(a->y, a->dtype, a->bias, product.n, a->rows, true, cuda->stream);
    return rc;
}

int cuda_linear_fp8(struct cuda_backend *cuda, const struct cuda_linear *a) {
    struct cuda_fp8 *f = &cuda->fp8;
    if (!covers(f, a)) return CUDA_UNSUPPORTED;
    const bool unscaled = cuda_fp8_unscaled(a, a->n);
    const bool narrow = a->block_k ? a->n <= 2 * CUDA_STREAM_ROWS : unscaled;
    if (a->activate && !narrow) return CUDA_UNSUPPORTED; // by a kernel of its own
    struct cuda_linear product = *a;
    int rc = cuda_quantize(f->x, f->scale, a->x, a->dtype, a->n, a->cols, cuda->stream);
    if (rc != 0) return rc;
    product.x = f->x;
    product.x_8bit = true;
    product.x_scale = f->scale;
    if (a->block_k) return multiply_blocks(&product, cuda->stream);
    product.bias = NULL;
    if (!unscaled) return multiply_scaled(cuda, a, product);
    product.y = f->sums;
    product.y_f32 = true;
    product.add = product.activate = false;
    rc = cublas_linear_fp8(&cuda->blas, &product, cuda->stream);
    if (rc != 0) return rc;
    struct cuda_linear end = *a;
    end.x_scale = f->scale;
    return cuda_linear_end(&end, f->sums, cuda->stream);
}
