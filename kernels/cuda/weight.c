// Copies weights to the device: row-major, rows padded with zeros to 16 bytes, in the dtype that the
// model computes in. The source views lie in the loader's staging area. They pass through two
// pinned buffers, one of which is filled while the other is copied. Only views in another dtype or
// order also pass through a kernel.
#include "base/parallel.h"
#include "kernels/cuda/backend_cuda.h"
#include "kernels/fp8.h"
#include "kernels/weight_parts.h"
#include <stdlib.h>
#include <string.h>

// --- staging -------------------------------------------------------------------------------------

static int staging_init(struct cuda_backend *cuda, struct err *err) {
    struct cuda_staging *g = &cuda->staging;
    for (int i = 0; i < 2 && !g->copied[1]; i++) {
        if (cudaHostAlloc((void **)&g->pinned[i], CUDA_STAGING_BYTES, cudaHostAllocDefault))
            return err_set(err, E_NOMEM, "no pinned memory for %d bytes", CUDA_STAGING_BYTES);
        TRY(cuda_alloc(&g->device[i], CUDA_STAGING_BYTES, err));
        CUDA_TRY(cudaEventCreateWithFlags(&g->copied[i], cudaEventDisableTiming));
    }
    return 0;
}

void cuda_staging_release(struct cuda_backend *cuda) {
    struct cuda_staging *g = &cuda->staging;
    for (int i = 0; i < 2; i++) {
        if (g->copied[i]) {
            cudaEventSynchronize(g->copied[i]);
            cudaEventDestroy(g->copied[i]);
        }
        if (g->pinned[i]) cudaFreeHost(g->pinned[i]);
        cudaFree(g->device[i]);
    }
    *g = (struct cuda_staging){0};
}

// --- one view ------------------------------------------------------------------------------------

struct lines { // a view as lines of elements: its rows, or its columns if transposed
    const char *data;
    int64_t n, length, stride; // lines; elements of each; elements from one to the next
    bool down;                 // lines are columns of the matrix
    int64_t apart;             // of a line's elements; 1: they are contiguous
};

static struct lines lines_of(const struct tensor_view *v) {
    if (dtype_size(v->dtype) == 1 && v->col_stride != 1)
        return (struct lines){v->data, v->rows, v->cols, v->row_stride, false, v->col_stride};
    bool down = v->col_stride != 1;
    return (struct lines){v->data,
                          down ? v->cols : v->rows,
                          down ? v->rows : v->cols,
                          down ? v->col_stride : v->row_stride,
                          down,
                          down ? v->row_stride : 1};
}

// Lines [first, first + n), elements [from, from + length) of each, packed into the pinned half.
struct packing {
    char *to;
    const struct lines *l;
    int64_t first, from, length;
    size_t size;
};

// n elements that lie `apart` elements from each other.
static void gather(char *to, const char *from, int64_t apart, int64_t n, size_t size) {
    for (int64_t j = 0; j < n; j++) {
        const char *src = from + (size_t)(j * apart) * size;
        if (size == 1)
            to[j] = *src;
        else if (size == 2)
            memcpy(to + 2 * j, src, 2);
        else
            memcpy(to + 4 * j, src, 4);
    }
}

static void pack_range(void *ctx, int64_t at, int64_t n) {
    const struct packing *p = ctx;
    const struct lines *l = p->l;
    const int64_t first = p->first + at, from = p->from, length = p->length;
    const size_t size = p->size;
    char *to = p->to + (size_t)(at * length) * size;
    const char *src = l->data + (size_t)(first * l->stride + from * l->apart) * size;
    if (l->apart !=
        1) { // rows of 8 bits, which the kernel does not transpose; or each other row of a matrix
        for (int64_t i = 0; i < n; i++, to += (size_t)length * size)
            gather(to, src + (size_t)(i * l->stride) * size, l->apart, length, size);
        return;
    }
    if (l->stride == length) {
        memcpy(to, src, (size_t)(n * length) * size);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        memcpy(to + (size_t)(i * length) * size, src + (size_t)(i * l->stride) * size,
               (size_t)length * size);
}

// Several threads: one core copies much slower than the bus transfers.
static void pack(char *to, const struct lines *l, int64_t first, int64_t n, int64_t from,
                 int64_t length, size_t size) {
    enum { LEAST_BYTES = 1 << 20 };
    struct packing p = {to, l, first, from, length, size};
    parallel_ranges(n, LEAST_BYTES / (int64_t)((size_t)length * size) + 1, pack_range, &p);
}

// One piece: to row `row`, column `col` of w and onwards.
static int send(struct cuda_backend *cuda, const struct weight *w, const struct lines *l,
                enum dtype dtype, int64_t row, int64_t first, int64_t n, int64_t from,
                int64_t length) {
    struct cuda_staging *g = &cuda->staging;
    int i = g->next;
    g->next = 1 - i;
    size_t size = dtype_size(dtype), out = dtype_size(w->dtype), ld = (size_t)w->layout;
    size_t row0 = (size_t)(row + (l->down ? from : first)), col0 = (size_t)(l->down ? first : from);
    char *dst = (char *)w->data + (row0 * ld + col0) * out;
    CUDA_TRY(cudaEventSynchronize(g->copied[i]));
    pack(g->pinned[i], l, first, n, from, length, size);
    if (dtype == w->dtype && !l->down) {
        CUDA_TRY(cudaMemcpy2DAsync(dst, ld * out, g->pinned[i], (size_t)length * size,
                                   (size_t)length * size, (size_t)n, cudaMemcpyHostToDevice,
                                   cuda->stream));
    } else {
        CUDA_TRY(cudaMemcpyAsync(g->device[i], g->pinned[i], (size_t)(n * length) * size,
                                 cudaMemcpyHostToDevice, cuda->stream));
        TRY(cuda_convert(dst, w->dtype, (int64_t)ld, g->device[i], dtype, l->down ? length : n,
                         l->down ? n : length, l->down ? 1 : length, l->down ? length : 1,
                         cuda->stream));
    }
    return cuda_check(cudaEventRecord(g->copied[i], cuda->stream), "cudaEventRecord");
}

int cuda_send_view(struct cuda_backend *cuda, const struct weight *w, const struct tensor_view *v,
                   int64_t row) {
    struct lines l = lines_of(v);
    int64_t room = (int64_t)(CUDA_STAGING_BYTES / dtype_size(v->dtype));
    int64_t length = l.length < room ? l.length : room, step = room / length;
    for (int64_t first = 0; first < l.n; first += step)
        for (int64_t from = 0; from < l.length; from += length) {
            int64_t n = l.n - first < step ? l.n - first : step;
            int64_t part = l.length - from < length ? l.length - from : length;
            TRY(send(cuda, w, &l, v->dtype, row, first, n, from, part));
        }
    return 0;
}

// --- a weight ------------------------------------------------------------------------------------

struct cuda_linear cuda_linear_of(const struct cuda_backend *cuda, const struct weight *w) {
    return (struct cuda_linear){.w = w->data,
                                .scale = w->scales,
                                .rows = w->rows,
                                .cols = w->cols,
                                .ld = w->layout,
                                .dtype = cuda->base.act_dtype,
                                .w_dtype = w->dtype,
                                .block_k = w->block_k};
}

static void note_shape(struct cuda_backend *cuda, const struct weight *w) {
    for (int i = 0; i < cuda->n_shapes; i++)
        if (cuda->shapes[i].rows == w->rows && cuda->shapes[i].cols == w->cols &&
            cuda->shapes[i].w_dtype == w->dtype)
            return;
    bool fp8 = cuda->fp8.on && w->dtype == DTYPE_F8_E4M3;
    if (w->dtype != cuda->base.act_dtype && !fp8) return; // cuBLASLt does not multiply by it
    if (cuda->n_shapes == CUDA_MAX_SHAPES) return;
    cuda->shapes[cuda->n_shapes] = cuda_linear_of(cuda, w);
    cuda->shapes[cuda->n_shapes++].x_8bit = fp8;
}

static void forget_shape(struct cuda_backend *cuda, const struct weight *w) {
    for (int i = 0; i < cuda->n_shapes; i++)
        if (cuda->shapes[i].w == w->data) cuda->shapes[i] = cuda->shapes[--cuda->n_shapes];
}

// Copies scales to the device: (rows), or, with blocks, transposed to (blocks, rows), because a
// kernel needs neighbouring rows' scales at the same time.
static int send_scales(struct cuda_backend *cuda, struct weight *w, const struct tensor_view *parts,
                       int n_parts, struct err *err) {
    const int32_t n_blocks = fp8_blocks(w->cols, w->block_k);
    const size_t n = (size_t)n_blocks * (size_t)w->rows;
    float *turned = malloc(n * sizeof *turned);
    if (!turned) return err_set(err, E_NOMEM, "no memory for %zu scales", n);
    for (int64_t i = 0, row = 0; i < n_parts; i++)
        for (int64_t r = 0; r < parts[i].rows; r++, row++)
            for (int32_t b = 0; b < n_blocks; b++)
                turned[b * w->rows + row] = parts[i].scales[r * n_blocks + b];
    int rc = cuda_alloc((void **)&w->scales, n * sizeof *turned, err);
    if (rc == 0)
        rc = cuda_check(cudaMemcpyAsync(w->scales, turned, n * sizeof *turned,
                                        cudaMemcpyHostToDevice, cuda->stream),
                        "cudaMemcpyAsync");
    if (rc == 0) rc = cuda_check(cudaStreamSynchronize(cuda->stream), "cudaStreamSynchronize");
    free(turned);
    return rc;
}

// Data, and of 8-bit weights the scales.
static int fill(struct cuda_backend *cuda, struct weight *w, const struct tensor_view *parts,
                int n_parts, struct err *err) {
    TRY(cuda_alloc(&w->data, w->bytes, err));
    if (parts[0].scales) TRY(send_scales(cuda, w, parts, n_parts, err));
    if (w->layout != w->cols) CUDA_TRY(cudaMemsetAsync(w->data, 0, w->bytes, cuda->stream));
    for (int64_t i = 0, row = 0; i < n_parts; row += parts[i++].rows)
        TRY(cuda_send_view(cuda, w, &parts[i], row));
    return 0;
}

int cuda_weight_init(struct backend *be, struct weight *w, const struct tensor_view *parts,
                     int n_parts, struct err *err) {
    struct cuda_backend *cuda = cuda_of(be);
    struct err why = {0};
    int64_t rows = 0;
    *w = (struct weight){0};
    TRY(weight_parts_check(parts, n_parts, INT32_MAX / 64, "the GPU", &rows, err));
    TRY(staging_init(cuda, err));
    const bool groups = parts[0].dtype == DTYPE_U8;
    w->dtype = dtype_size(parts[0].dtype) == 1 ? parts[0].dtype : be->act_dtype;
    w->block_k = parts[0].block_k;
    w->rows = (int32_t)rows;
    w->cols = (int32_t)parts[0].cols;
    int32_t unit = (int32_t)(16 / dtype_size(w->dtype));
    w->layout = (w->cols + unit - 1) / unit * unit; // from row to row
    w->bytes = (size_t)rows * (size_t)w->layout * dtype_size(w->dtype);
    int rc = groups ? cuda_groups_fill(cuda, w, parts, n_parts, &why)
                    : fill(cuda, w, parts, n_parts, &why);
    if (rc < 0) {
        cudaStreamSynchronize(cuda->stream);
        cudaFree(w->data);
        cudaFree(w->scales);
        *w = (struct weight){0};
        return err_set(err, rc, "%s", why.code ? why.text : "the GPU took no weight");
    }
    cuda->weights_8bit = cuda->weights_8bit || (dtype_size(w->dtype) == 1 && !groups);
    note_shape(cuda, w);
    return 0;
}

void cuda_weight_release(struct backend *be, struct weight *w) {
    if (w->data) forget_shape(cuda_of(be), w);
    cudaFree(w->data);
    cudaFree(w->scales);
    *w = (struct weight){0};
}
