// Copies views to the device. They lie in the loader's staging area and pass through two pinned buffers, one of which is
// filled while the other is copied. Only views in another dtype or order also pass through a kernel.
#include "base/parallel.h"
#include "kernels/cuda/backend_cuda.h"
#include <string.h>

int cuda_staging_init(struct cuda_backend *cuda, struct err *err) {
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
