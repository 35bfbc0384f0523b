// Chooses the kernel of a linear. Narrow batches are bound by reading the weights and have kernels
// of their own, wide batches go to cuBLASLt, and the simple kernel takes the rest. With
// `deterministic`, the order of a matrix's sums is the same for any number of rows: the order of
// linear_stream.cu and linear_tiles.cu, or, for shapes and devices that these do not cover, the
// order of the narrow or the simple kernel.
#include "kernels/cuda/backend_cuda.h"
#include "kernels/cuda/gemv_8bit_stay.h"
#include "kernels/cuda/groups.h"
#include "kernels/cuda/linear_wide.h"

// GEMV_ROWS: the narrow kernel's limit. NARROW_ROWS*: up to how many rows it is the fastest, for
// 16-bit weights, for 16-bit weights of at most SMALL_BYTES, and for 8-bit weights. WIDE_ROWS*: up
// to how many linear_stream.cu is the fastest, with GATED for a gated activation, which it computes
// itself; then cuBLASLt. (With 4 to 8 rows, SMALL_BYTES gives Llama-1B, 3B, GPT-J and GPT-2 XL 3 to
// 21 % more tokens/s. With 64 rows, GATED gives Llama-8B's layers 2 to 4 % more on an H100.)
enum {
    GEMV_ROWS = 32,
    NARROW_ROWS = 3,
    NARROW_ROWS_SMALL = 8,
    NARROW_ROWS_8BIT = 8,
    WIDE_ROWS = 48,
    WIDE_ROWS_GATED = 64,
    WIDE_ROWS_8BIT = 64,
    SMALL_BYTES = 160 << 20,
    GROUPS_ROWS = 128 // of few bits; with more the matrix is widened first
};

static int32_t narrow_rows(const struct cuda_linear *a) {
    if (a->w_dtype != a->dtype) return NARROW_ROWS_8BIT;
    size_t bytes = (size_t)a->rows * (size_t)a->cols * dtype_size(a->dtype);
    return bytes <= SMALL_BYTES ? NARROW_ROWS_SMALL : NARROW_ROWS;
}

// Any number of rows by the narrow kernel, whose sums do not depend on n.
static int linear_by_rows(struct cuda_linear a, cudaStream_t stream) {
    size_t x_row = (size_t)a.cols * dtype_size(a.dtype);
    size_t y_row = (size_t)a.rows / (a.activate && a.gated ? 2 : 1) *
                   dtype_size(a.y_f32 ? DTYPE_F32 : a.dtype);
    int32_t n = a.n;
    for (int32_t row = 0; row < n; row += a.n) {
        a.n = n - row < GEMV_ROWS ? n - row : GEMV_ROWS;
        int rc = cuda_gemv(&a, stream);
        if (rc != 0) return rc; // the first call decides for all
        a.x = (const char *)a.x + (size_t)a.n * x_row;
        a.y = (char *)a.y + (size_t)a.n * y_row;
    }
    return 0;
}

static int32_t wide_rows(const struct cuda_linear *a) {
    if (a->w_dtype != a->dtype) return WIDE_ROWS_8BIT;
    return a->activate && a->gated ? WIDE_ROWS_GATED : WIDE_ROWS;
}

// By our own kernels. CUDA_UNSUPPORTED where none covers the shape or the library is faster.
static int multiply(const struct cuda_backend *cuda, const struct cuda_linear *a) {
    int rc = CUDA_UNSUPPORTED;
    if (cuda->deterministic) {
        // A kernel of its own activates many rows, with the same bits: inside tiles it took a prompt of Llama-8B's
        // layers 5 % more time.
        if (a->n > CUDA_STREAM_ROWS && a->activate) return CUDA_UNSUPPORTED;
        rc = a->n <= CUDA_STREAM_ROWS ? cuda_linear_stream(a, cuda->stream)
                                      : cuda_linear_tiles(a, cuda->stream);
        return rc == CUDA_UNSUPPORTED ? linear_by_rows(*a, cuda->stream) : rc;
    }
    if (a->n == 1) rc = cuda_gemv_8bit(a, cuda->stream);
    if (rc == CUDA_UNSUPPORTED && a->n <= narrow_rows(a)) rc = cuda_gemv(a, cuda->stream);
    if (rc == CUDA_UNSUPPORTED && a->n <= wide_rows(a)) rc = cuda_linear_stream(a, cuda->stream);
    if (rc == CUDA_UNSUPPORTED && a->n <= GEMV_ROWS) rc = cuda_gemv(a, cuda->stream);
    return rc;
}

static struct cuda_linear describe(const struct cuda_backend *cuda, void *y, const void *x,
                                   int32_t n, const struct weight *w, const float *bias) {
    struct cuda_linear a = cuda_linear_of(cuda, w);
    a.y = y;
    a.x = x;
    a.n = n;
    a.bias = bias;
    return a;
}

// Few bits, in as many calls as the kernel for several rows needs.
static int groups_by_rows(struct cuda_linear a, bool same, cudaStream_t stream) {
    const int32_t n = a.n, width = a.activate && a.gated ? a.rows / 2 : a.rows;
    const size_t x_row = (size_t)a.cols * dtype_size(a.dtype);
    const size_t y_row = (size_t)width * dtype_size(a.y_f32 ? DTYPE_F32 : a.dtype);
    for (int32_t row = 0; row < n; row += a.n) {
        a.n = n - row < GROUPS_STREAM_ROWS ? n - row : GROUPS_STREAM_ROWS;
        const int rc = cuda_groups_stream(&a, same, stream);
        if (rc != 0) return rc; // the first call decides for all
        a.x = (const char *)a.x + (size_t)a.n * x_row;
        a.y = (char *)a.y + (size_t)a.n * y_row;
    }
    return 0;
}

static uint32_t *next_ticket(struct cuda_backend *cuda) {
    return &cuda->tickets[cuda->next_ticket++ % CUDA_TICKETS];
}

// By a launch of its own. A chain of one is for norms that the other kernel is too narrow for.
static int launch_alone(struct cuda_backend *cuda, const struct cuda_linear *a) {
    const int rc = cuda_groups_stay(a, next_ticket(cuda), cuda->stream);
    return rc == CUDA_UNSUPPORTED ? cuda_groups_chain(a, 1, cuda->chain.work, cuda->stream) : rc;
}

void cuda_chain_launch(struct cuda_backend *cuda) {
    struct cuda_chain *c = &cuda->chain;
    const int n = c->n;
    int rc = CUDA_UNSUPPORTED;
    c->n = 0;
    if (n > 1) rc = cuda_groups_chain(c->link, n, c->work, cuda->stream);
    // One alone, or a row and stages that have no room beside each other.
    if (rc == CUDA_UNSUPPORTED) {
        rc = 0;
        for (int i = 0; i < n && rc == 0; i++) rc = launch_alone(cuda, &c->link[i]);
    }
    if (rc != 0) c->rc = E_DEVICE;
}

// A row in memory.
struct row {
    const char *at;
    size_t bytes;
};
static struct row x_of(const struct cuda_linear *a) {
    return (struct row){a->x, (size_t)a->cols * dtype_size(a->dtype)};
}
static struct row y_of(const struct cuda_linear *a) {
    const int32_t width = a->activate && a->gated ? a->rows / 2 : a->rows;
    return (struct row){a->y, (size_t)width * dtype_size(a->dtype)};
}
static bool is_same(struct row a, struct row b) {
    return a.at == b.at && a.bytes == b.bytes;
}
static bool overlaps(struct row a, struct row b) {
    return a.at < b.at + b.bytes && b.at < a.at + a.bytes;
}

// The last of the first n that wait whose y is the row; -1: none.
static int writer_of(const struct cuda_chain *c, int n, struct row x) {
    while (--n >= 0 && !is_same(x, y_of(&c->link[n])))
        ;
    return n;
}

// Blocks of a chain run ahead of each other. So rows of it overlap only if they are the same, and what one linear reads is
// written by a later one only if that needs the first one's results.
static bool may_follow(const struct cuda_chain *c, const struct cuda_linear *a) {
    const int source = writer_of(c, c->n, x_of(a));
    for (int i = 0; i < c->n; i++) {
        const struct row x = x_of(&c->link[i]), y = y_of(&c->link[i]);
        int needed = source;
        if (overlaps(x_of(a), y) && !is_same(x_of(a), y)) return false;
        if (overlaps(y_of(a), y) && !is_same(y_of(a), y)) return false;
        while (needed >= 0 && needed != i) needed = writer_of(c, needed, x_of(&c->link[needed]));
        if (overlaps(y_of(a), x) && needed != i) return false;
    }
    return true;
}

// Whether the linear waits now for those behind it. Else all that wait are launched.
static bool chained(struct cuda_backend *cuda, const struct cuda_linear *a) {
    struct cuda_chain *c = &cuda->chain;
    const bool waits = cuda->claimed && !cuda->deterministic && cuda_groups_chains(a);
    if (c->n == GROUPS_CHAIN || (c->n > 0 && (!waits || !may_follow(c, a))))
        cuda_chain_launch(cuda);
    if (waits) c->link[c->n++] = *a;
    return waits;
}

// Few bits. Many rows: the matrix is widened, then multiplied as any other of 16 bits.
static int multiply_groups(struct cuda_backend *cuda, struct cuda_linear *a) {
    int rc = CUDA_UNSUPPORTED;
    if (chained(cuda, a)) return 0;
    if (a->w_dtype != DTYPE_U8) return rc;
    if (a->n == 1 && !cuda->deterministic)
        rc = cuda_groups_stay(a, next_ticket(cuda), cuda->stream);
    if (rc != CUDA_UNSUPPORTED || a->norm_weight) return rc;
    if (cuda->deterministic || a->n <= GROUPS_ROWS || cuda_groups_tall(a->rows, a->cols)) {
        rc = groups_by_rows(*a, cuda->deterministic, cuda->stream);
        return rc == CUDA_UNSUPPORTED && !a->activate ? cuda_groups_linear(a, cuda->stream) : rc;
    }
    if (a->activate) return rc;
    TRY(cuda_groups_widen(cuda->widened, a, cuda->stream));
    cuda_groups_widened(cuda, a);
    return CUDA_UNSUPPORTED;
}

void cuda_groups_widened(const struct cuda_backend *cuda, struct cuda_linear *a) {
    a->w = cuda->widened;
    a->scale = NULL;
    a->ld = a->cols;
    a->w_dtype = a->dtype;
}

int cuda_op_linear(struct backend *be, enum linear_mode mode, void *y, const void *x, int32_t n,
                   const struct weight *w, const float *bias) {
    struct cuda_backend *cuda = cuda_as_it_waits(be);
    struct cuda_linear a = describe(cuda, y, x, n, w, bias);
    a.add = mode == LINEAR_ADD;
    a.y_f32 = mode == LINEAR_STORE_F32;
    if (n == 0) return 0;
    int rc = multiply_groups(cuda, &a);
    if (rc == CUDA_UNSUPPORTED) rc = cuda_linear_fp8(cuda, &a);
    if (rc == CUDA_UNSUPPORTED) rc = multiply(cuda, &a);
    if (rc == CUDA_UNSUPPORTED && !cuda->deterministic)
        rc = cublas_linear(&cuda->blas, &a, cuda->stream);
    return rc == CUDA_UNSUPPORTED ? cuda_linear_simple(&a, cuda->stream) : rc;
}

static int declined(int rc) {
    return rc == CUDA_UNSUPPORTED ? OP_DECLINED : rc;
}

static void put_norm(struct cuda_linear *a, const struct norm_args *norm) {
    a->norm = norm->kind;
    a->norm_weight = norm->weight;
    a->norm_bias = norm->bias;
    a->norm_eps = norm->eps;
}

int cuda_op_norm_route(struct backend *be, int32_t *ids, float *weights, void *normed,
                       const void *x, int32_t n, const struct norm_args *norm,
                       const struct weight *router, const float *bias,
                       const struct route_args *args) {
    struct cuda_backend *cuda = cuda_of(be);
    struct cuda_linear a = describe(cuda, NULL, x, n, router, bias);
    put_norm(&a, norm);
    if (cuda->deterministic || n == 0) return OP_DECLINED;
    return declined(cuda_norm_route(ids, weights, normed, &a, args, cuda->stream));
}

// For one row only: every block of the narrow kernel norms the rows again, and with two rows of
// Llama-1B that takes longer than a norm kernel does.
int cuda_op_norm_linear(struct backend *be, const struct norm_args *norm, enum linear_mode mode,
                        void *y, const void *x, int32_t n, const struct weight *w,
                        const float *bias, const struct activate_args *act) {
    struct cuda_backend *cuda = cuda_as_it_waits(be);
    struct cuda_linear a = describe(cuda, y, x, n, w, bias);
    a.add = mode == LINEAR_ADD;
    a.y_f32 = mode == LINEAR_STORE_F32;
    put_norm(&a, norm);
    if (act) {
        a.activate = true;
        a.act = act->act;
        a.gated = act->gated;
    }
    if (cuda->deterministic || n != 1) return OP_DECLINED;
    if (w->dtype == DTYPE_U8) return declined(multiply_groups(cuda, &a));
    cuda = cuda_of(be);
    uint32_t *ticket = next_ticket(cuda);
    int rc = cuda_gemv_stay(&a, ticket, cuda->stream);
    if (rc == CUDA_UNSUPPORTED) rc = cuda_gemv_8bit_stay(&a, ticket, cuda->stream);
    if (rc == CUDA_UNSUPPORTED) rc = cuda_gemv(&a, cuda->stream);
    return declined(rc);
}

int cuda_op_linear_activate(struct backend *be, void *y, const void *x, int32_t n,
                            const struct weight *w, const float *bias, enum activation act,
                            bool gated) {
    struct cuda_backend *cuda = cuda_as_it_waits(be);
    struct cuda_linear a = describe(cuda, y, x, n, w, bias);
    a.activate = true;
    a.act = act;
    a.gated = gated;
    if (n == 0) return 0;
    if (w->dtype == DTYPE_U8) return declined(multiply_groups(cuda, &a));
    cuda = cuda_of(be);
    int rc = cuda_linear_fp8(cuda, &a);
    if (rc == CUDA_UNSUPPORTED) rc = multiply(cuda, &a);
    return declined(rc);
}
