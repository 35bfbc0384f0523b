// Linears by e4m3 weights whose activations are rounded to e4m3 too (`fp8_activations`): the tensor
// cores multiply 8 bits at twice the rate of 16. cuBLASLt multiplies; linear_fp8.cu rounds x before
// and ends what the library leaves unscaled.
//
//   up to UNSCALED_ROWS rows   the products alone into F32, then scales, bias and activation: the
//                              library's only kernel with a scale for each row does not divide K, so
//                              64 rows of Llama-8B took 123 microseconds a layer with it, 78 without
//   more rows, and blocks      the library scales; with blocks it takes multiples of four rows, and
//                              gemv.cu multiplies the one to three remaining rows in 16 bits
//
// A step of few rows is bound by reading W, which is as fast with x in 16 bits.
#include "kernels/cuda/backend_cuda.h"

#include "kernels/fp8.h"

// LEAST_ROWS: with 48 sessions of Llama-8B 9,107 tokens/s, and 8,208 by linear_stream.cu; with 32 it is
// 1.5 % more, and 16 the same.
enum { LEAST_ROWS = 33, UNSCALED_ROWS = 256, SUMS_BYTES = 32 << 20 };

bool cuda_fp8_unscaled(const struct cuda_linear *a, int32_t n) {
    return !a->block_k && n <= UNSCALED_ROWS &&
           (size_t)n * (size_t)a->rows * sizeof(float) <= SUMS_BYTES;
}

int cuda_fp8_reserve(struct cuda_backend *cuda, const struct step_limits *l, struct err *err) {
    struct cuda_fp8 *f = &cuda->fp8;
    size_t cols = 0, blocks = 0;
    cuda_fp8_release(cuda);
    for (int i = 0; i < cuda->n_shapes && f->on; i++) {
        const struct cuda_linear *a = &cuda->shapes[i];
        size_t n = (size_t)fp8_blocks(a->cols, a->block_k);
        if (!a->x_8bit) continue;
        if ((size_t)a->cols > cols) cols = (size_t)a->cols;
        if (n > blocks) blocks = n;
    }
    if (cols == 0 || l->max_rows < LEAST_ROWS) return 0;
    f->x_bytes = cols * (size_t)l->max_rows;
    f->scale_bytes = blocks * (size_t)l->max_rows * sizeof(float);
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
    size_t n = (size_t)a->n, blocks = (size_t)fp8_blocks(a->cols, a->block_k);
    return f->x && f->sums && a->w_dtype == DTYPE_F8_E4M3 && a->n >= LEAST_ROWS && !a->y_f32 &&
           !a->norm_weight && a->cols % 16 == 0 && a->rows % 16 == 0 &&
           n * (size_t)a->cols <= f->x_bytes && n * blocks * sizeof(float) <= f->scale_bytes;
}

// The rows from `first` on by 16-bit activations.
static int multiply_rest(struct cuda_backend *cuda, const struct cuda_linear *a, int32_t first) {
    const size_t size = dtype_size(a->dtype);
    struct cuda_linear rest = *a;
    rest.n -= first;
    rest.x = (const char *)a->x + (size_t)first * (size_t)a->cols * size;
    rest.y = (char *)a->y + (size_t)first * (size_t)a->rows * size;
    int rc = cuda_gemv(&rest, cuda->stream);
    return rc == CUDA_UNSUPPORTED ? cuda_linear_simple(&rest, cuda->stream) : rc;
}

// Scales by the library, and a bias in a pass of its own.
static int multiply_scaled(struct cuda_backend *cuda, const struct cuda_linear *a,
                           struct cuda_linear product) {
    int rc = cublas_linear_fp8(&cuda->blas, &product, cuda->stream);
    if (rc == 0 && a->bias)
        rc = cuda_add_bias(a->y, a->dtype, a->bias, product.n, a->rows, true, cuda->stream);
    return rc == 0 && product.n < a->n ? multiply_rest(cuda, a, product.n) : rc;
}

int cuda_linear_fp8(struct cuda_backend *cuda, const struct cuda_linear *a) {
    struct cuda_fp8 *f = &cuda->fp8;
    if (!covers(f, a)) return CUDA_UNSUPPORTED;
    const bool unscaled = cuda_fp8_unscaled(a, a->n);
    if (a->activate && !unscaled) return CUDA_UNSUPPORTED; // by a kernel of its own
    struct cuda_linear product = *a;
    if (a->block_k) product.n -= a->n % 4;
    int rc =
        cuda_quantize(f->x, f->scale, a->x, a->dtype, product.n, a->cols, a->block_k, cuda->stream);
    if (rc != 0) return rc;
    product.x = f->x;
    product.x_8bit = true;
    product.x_scale = f->scale;
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
