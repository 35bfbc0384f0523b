// See cublas.h. cuBLASLt is column-major: a row-major x (n, cols) is its (cols, n). So it computes
// y^T = W x^T with W transposed; x and y stay as they are.
#include "kernels/cuda/cublas.h"

#include "base/log.h"
#include "kernels/cuda/backend_cuda.h"
#include <cublasLt.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(((struct cublas_plan *)0)->algo),
               "an algorithm fits a plan");

// --- the library ---------------------------------------------------------------------------------

#define CUBLAS_FUNCTIONS(X)                                                                        \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetVersion)                                                                          \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)

struct cublas_api {
#define MEMBER(name) __typeof__(&name) name;
    CUBLAS_FUNCTIONS(MEMBER)
#undef MEMBER
};

static struct cublas_api api; // filled once, when the first GPU is opened; then read-only

static bool load(struct cublas *b) {
    char name[64];
    snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
    b->lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!b->lib) b->lib = dlopen("/usr/local/cuda/lib64/libcublasLt.so", RTLD_NOW | RTLD_LOCAL);
    if (!b->lib) {
        char why[300];
        log_warn("cuda.no_cublas", "slow=\"wide products\" why=%s",
                 log_quote(why, sizeof why, dlerror()));
        return false;
    }
    bool all = true;
#define FIND(name) all = (*(void **)&api.name = dlsym(b->lib, #name)) && all;
    CUBLAS_FUNCTIONS(FIND)
#undef FIND
    b->api = &api;
    if (!all)
        log_warn("cuda.no_cublas", "slow=\"wide products\" why=\"%s lacks a function\"", name);
    return all;
}

// --- the file ------------------------------------------------------------------------------------

static void make_folder(char *path, size_t keep) {
    for (char *p = path + keep; (p = strchr(p, '/')); p++) {
        *p = '\0';
        if (mkdir(path, 0777) < 0 && errno != EEXIST)
            log_debug("cuda.cache", "folder=\"%s\" why=\"%s\"", path, strerror(errno));
        *p = '/';
    }
}

static void name_file(struct cublas *b, const char *gpu_name) {
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    bool own = cache && cache[0] == '/';
    if (!own && !home) return;
    char gpu[128];
    snprintf(gpu, sizeof gpu, "%s", gpu_name);
    for (char *c = gpu; *c; c++)
        if (*c == ' ' || *c == '/') *c = '-';
    int n = snprintf(b->path, sizeof b->path, "%s%s/parley/cublaslt-%zu-%s.txt", own ? cache : home,
                     own ? "" : "/.cache", api.cublasLtGetVersion(), gpu);
    if (n < 0 || (size_t)n >= sizeof b->path) b->path[0] = '\0';
}

static struct cublas_plan *find_plan(const struct cublas *b, const struct cublas_plan *key) {
    uint64_t h = (uint64_t)key->n * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)key->rows) * 0x9e3779b97f4a7c15u;
    h = (h ^ (uint64_t)key->cols ^ (uint64_t)key->dtype << 33 ^ (uint64_t)key->y_f32 << 40) *
        0x9e3779b97f4a7c15u;
    for (uint64_t i = h >> 40;; i++) {
        struct cublas_plan *p = &b->plans[i % CUBLAS_MAX_PLANS];
        if (p->n == 0 || memcmp(p, key, offsetof(struct cublas_plan, algo)) == 0) return p;
    }
}

// False when the table is full; the caller then uses the library's first guess.
static bool keep_plan(struct cublas *b, const struct cublas_plan *p) {
    struct cublas_plan *to = find_plan(b, p);
    if (to->n == 0 && b->n_plans >= CUBLAS_MAX_PLANS / 2) return false;
    b->n_plans += to->n == 0;
    *to = *p;
    return true;
}

static bool read_line(const char *line, struct cublas_plan *p) {
    int at = 0;
    if (sscanf(line, "%d %d %d %d %d %d%n", &p->n, &p->rows, &p->cols, &p->ld, &p->dtype, &p->y_f32,
               &at) != 6)
        return false;
    for (int i = 0; i < 8; i++) {
        unsigned long long word;
        int n = 0;
        if (sscanf(line + at, "%llx%n", &word, &n) != 1) return false;
        p->algo[i] = word;
        at += n;
    }
    return p->n > 0;
}

// A damaged file costs speed only: each line is read by itself, and the library refuses an
// algorithm that does not fit.
static void read_file(struct cublas *b) {
    char line[512];
    FILE *f = b->path[0] ? fopen(b->path, "r") : NULL;
    while (f && fgets(line, sizeof line, f)) {
        struct cublas_plan p = {0};
        if (read_line(line, &p)) keep_plan(b, &p);
    }
    if (f) fclose(f);
}

static void write_plans(const struct cublas *b, FILE *f) {
    for (int32_t i = 0; i < CUBLAS_MAX_PLANS; i++) {
        const struct cublas_plan *p = &b->plans[i];
        if (p->n == 0) continue;
        fprintf(f, "%d %d %d %d %d %d", p->n, p->rows, p->cols, p->ld, p->dtype, p->y_f32);
        for (int j = 0; j < 8; j++) fprintf(f, " %llx", (unsigned long long)p->algo[j]);
        fputc('\n', f);
    }
}

static void write_file(struct cublas *b) {
    char temporary[sizeof b->path + 16];
    if (!b->path[0] || b->n_new == 0) return;
    make_folder(b->path, 1);
    snprintf(temporary, sizeof temporary, "%s.%d", b->path, (int)getpid());
    FILE *f = fopen(temporary, "w");
    if (!f) {
        char quoted[sizeof temporary + 16];
        const char *why = strerror(errno);
        log_warn("cuda.cache", "file=%s why=\"%s\"", log_quote(quoted, sizeof quoted, temporary),
                 why);
        return;
    }
    write_plans(b, f);
    if (fclose(f) != 0 || rename(temporary, b->path) != 0) unlink(temporary);
    b->n_new = 0;
}

// --- open, close ---------------------------------------------------------------------------------

int cublas_open(struct cublas *b, const char *gpu_name, struct err *err) {
    *b = (struct cublas){0};
    if (!load(b)) {
        cublas_close(b);
        return 0;
    }
    if (api.cublasLtCreate((cublasLtHandle_t *)&b->handle) != CUBLAS_STATUS_SUCCESS) {
        cublas_close(b);
        return err_set(err, E_DEVICE, "cuBLASLt does not start");
    }
    b->plans = calloc(CUBLAS_MAX_PLANS, sizeof *b->plans);
    int rc = b->plans ? 0 : err_set(err, E_NOMEM, "no memory for cuBLASLt's plans");
    if (rc == 0) rc = cuda_alloc(&b->workspace, CUBLAS_WORKSPACE_BYTES, err);
    if (rc == 0) rc = cuda_alloc(&b->wide, CUBLAS_WIDE_BYTES, err);
    if (rc < 0) {
        cublas_close(b);
        return rc;
    }
    name_file(b, gpu_name);
    read_file(b);
    return 0;
}

void cublas_close(struct cublas *b) {
    if (b->handle) api.cublasLtDestroy(b->handle);
    cudaFree(b->workspace);
    cudaFree(b->wide);
    free(b->plans);
    if (b->lib) dlclose(b->lib);
    *b = (struct cublas){0};
}

// --- one product ---------------------------------------------------------------------------------

struct product { // described to cuBLASLt
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t w, x, y;
};

// Products of 8 bits are scaled by the library, but for those into F32 (cublas_linear_fp8).
static bool describe_fp8(cublasLtMatmulDesc_t desc, const struct cuda_linear *a) {
    int8_t fast = 1;
    int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t size;
    } set[] = {
        {CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast},
        {CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode},
        {CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &a->scale, sizeof a->scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a->x_scale, sizeof a->x_scale},
    };
    bool ok = true;
    for (int i = 0; i < (a->y_f32 ? 1 : 5); i++)
        ok = ok &&
             api.cublasLtMatmulDescSetAttribute(desc, set[i].name, set[i].value, set[i].size) == 0;
    return ok;
}

static cudaDataType_t data_type(enum dtype t) {
    return t == DTYPE_BF16 ? CUDA_R_16BF : t == DTYPE_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static void product_release(struct product *p) {
    if (p->desc) api.cublasLtMatmulDescDestroy(p->desc);
    if (p->w) api.cublasLtMatrixLayoutDestroy(p->w);
    if (p->x) api.cublasLtMatrixLayoutDestroy(p->x);
    if (p->y) api.cublasLtMatrixLayoutDestroy(p->y);
}

// y_ld: elements from one row of y to the next. More than a->rows where a is a part of a matrix.
static bool product_init(struct product *p, const struct cuda_linear *a, int32_t n, int32_t y_ld) {
    cudaDataType_t in = a->x_8bit ? CUDA_R_8F_E4M3 : data_type(a->dtype);
    cudaDataType_t out = a->y_f32 ? CUDA_R_32F : data_type(a->dtype);
    cublasOperation_t transposed = CUBLAS_OP_T;
    *p = (struct product){0};
    // CUBLAS_COMPUTE_32F: F32 weights are multiplied as F32, not as TF32.
    bool ok =
        api.cublasLtMatmulDescCreate(&p->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) == 0 &&
        api.cublasLtMatmulDescSetAttribute(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                           sizeof transposed) == 0 &&
        api.cublasLtMatrixLayoutCreate(&p->w, in, (uint64_t)a->cols, (uint64_t)a->rows, a->ld) ==
            0 &&
        api.cublasLtMatrixLayoutCreate(&p->x, in, (uint64_t)a->cols, (uint64_t)n, a->cols) == 0 &&
        api.cublasLtMatrixLayoutCreate(&p->y, out, (uint64_t)a->rows, (uint64_t)n, y_ld) == 0 &&
        (!a->x_8bit || describe_fp8(p->desc, a));
    if (!ok) product_release(p);
    return ok;
}

// The library's guesses, best first.
static int guesses(struct cublas *b, const struct product *p, cublasLtMatmulHeuristicResult_t *out,
                   int most) {
    cublasLtMatmulPreference_t pref;
    size_t bytes = CUBLAS_WORKSPACE_BYTES;
    // Partial sums of a split K stay in F32.
    uint32_t aligned = 16, reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    int n = 0;
    if (api.cublasLtMatmulPreferenceCreate(&pref) != 0) return 0;
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    bool ok =
        api.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                 &bytes, sizeof bytes) == 0 &&
        api.cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                 &reduction, sizeof reduction) == 0;
    for (size_t i = 0; i < 4; i++)
        ok = ok && api.cublasLtMatmulPreferenceSetAttribute(pref, alignments[i], &aligned,
                                                            sizeof aligned) == 0;
    if (ok && api.cublasLtMatmulAlgoGetHeuristic(b->handle, p->desc, p->w, p->x, p->y, p->y, pref,
                                                 most, out, &n) != 0)
        n = 0;
    api.cublasLtMatmulPreferenceDestroy(pref);
    return ok ? n : 0;
}

static bool multiply(struct cublas *b, const struct product *p, const struct cuda_linear *a,
                     bool add, const uint64_t algo[8], cudaStream_t stream) {
    float one = 1.0f, beta = add ? 1.0f : 0.0f;
    return api.cublasLtMatmul(b->handle, p->desc, &one, a->w, p->w, a->x, p->x, &beta, a->y, p->y,
                              a->y, p->y, (const cublasLtMatmulAlgo_t *)algo, b->workspace,
                              CUBLAS_WORKSPACE_BYTES, stream) == 0;
}

// The number of rows whose algorithm n rows use. Steps are small where a tile more or less decides:
// 200 rows of Llama-8B took 211 microseconds a layer by the algorithms for 256, and take 156 by
// those for 208.
static int32_t bucket(int32_t n) {
    if (n <= 24) return 24;
    if (n <= 512) return n <= 256 ? (n + 15) / 16 * 16 : (n + 31) / 32 * 32;
    int32_t b = 512;
    while (b < n) b = (b & (b - 1)) == 0 ? b + b / 2 : b / 3 * 4;
    return b;
}

// Added to a plan's dtype for products of 8 bits.
enum { KEY_8BIT = 16, KEY_BLOCKS = 32 };

static struct cublas_plan key_of(const struct cuda_linear *a, int32_t n) {
    return (struct cublas_plan){.n = bucket(n),
                                .rows = a->rows,
                                .cols = a->cols,
                                .ld = a->ld,
                                .dtype = (int32_t)a->dtype + (a->x_8bit ? KEY_8BIT : 0) +
                                         (a->x_8bit && a->block_k ? KEY_BLOCKS : 0),
                                .y_f32 = a->y_f32};
}

static bool aligned16(const void *p) {
    return ((uintptr_t)p & 15) == 0;
}

// One product, with the bias already in y. Uses the plan's algorithm, else the library's first
// guess.
static bool run_product(struct cublas *b, const struct cuda_linear *a, int32_t y_ld, bool add,
                        cudaStream_t stream) {
    struct product p;
    if (!aligned16(a->x) || !aligned16(a->y) || !product_init(&p, a, a->n, y_ld)) return false;
    struct cublas_plan key = key_of(a, a->n), *plan = find_plan(b, &key);
    bool done = plan->n && multiply(b, &p, a, add, plan->algo, stream);
    if (!done) {
        cublasLtMatmulHeuristicResult_t guess;
        done = guesses(b, &p, &guess, 1) == 1 && multiply(b, &p, a, add, guess.algo.data, stream);
        if (done) memcpy(key.algo, guess.algo.data, sizeof key.algo);
        if (done) keep_plan(b, &key); // not measured, so not in the file
    }
    product_release(&p);
    return done;
}

// 8-bit weights, widened in pieces that fit the buffer. 0, E_DEVICE, or CUDA_UNSUPPORTED before
// it has launched anything.
static int run_pieces(struct cublas *b, const struct cuda_linear *a, bool add,
                      cudaStream_t stream) {
    size_t size = dtype_size(a->dtype), out = dtype_size(a->y_f32 ? DTYPE_F32 : a->dtype);
    int32_t step = (int32_t)(CUBLAS_WIDE_BYTES / ((size_t)a->ld * size)) / 64 * 64;
    if (step == 0) return CUDA_UNSUPPORTED;
    for (int32_t row = 0; row < a->rows; row += step) {
        struct cuda_linear piece = *a;
        piece.rows = a->rows - row < step ? a->rows - row : step;
        piece.w = b->wide;
        piece.w_dtype = a->dtype;
        piece.y = (char *)a->y + (size_t)row * out;
        TRY(cuda_widen(b->wide, a, row, piece.rows, stream));
        if (!run_product(b, &piece, a->rows, add, stream)) return row ? E_DEVICE : CUDA_UNSUPPORTED;
    }
    return 0;
}

// Writes the bias to y first and adds the product to it. The library's epilogues take a bias in y's
// type only, and ours is F32; they know ReLU and GELU only, without a gate.
int cublas_linear(struct cublas *b, const struct cuda_linear *a, cudaStream_t stream) {
    bool in_8bit = a->w_dtype == DTYPE_I8 || a->w_dtype == DTYPE_F8_E4M3;
    if (!b->lib || a->norm_weight || a->activate || (a->w_dtype != a->dtype && !in_8bit))
        return CUDA_UNSUPPORTED;
    bool add = a->add || a->bias;
    if (a->bias) {
        TRY(cuda_add_bias(a->y, a->y_f32 ? DTYPE_F32 : a->dtype, a->bias, a->n, a->rows, a->add,
                          stream));
    }
    int rc = in_8bit                                   ? run_pieces(b, a, add, stream)
             : run_product(b, a, a->rows, add, stream) ? 0
                                                       : CUDA_UNSUPPORTED;
    if (rc != CUDA_UNSUPPORTED) return rc;
    struct cuda_linear rest = *a; // the library took no product; y holds the bias
    rest.bias = NULL;
    rest.add = add;
    return cuda_linear_simple(&rest, stream);
}

int cublas_linear_fp8(struct cublas *b, const struct cuda_linear *a, cudaStream_t stream) {
    return b->lib && run_product(b, a, a->rows, a->add, stream) ? 0 : CUDA_UNSUPPORTED;
}

// --- measuring -----------------------------------------------------------------------------------

enum { TRIED = 8, REPEATS = 5 };

static float time_one(struct cublas *b, const struct product *p, const struct cuda_linear *a,
                      const uint64_t algo[8], const cudaEvent_t events[2], cudaStream_t stream) {
    float best = 1e30f;
    for (int i = 0; i <= REPEATS; i++) { // the first warms up
        float ms = 1e30f;
        cudaEventRecord(events[0], stream);
        if (!multiply(b, p, a, false, algo, stream)) return 1e30f;
        cudaEventRecord(events[1], stream);
        if (cudaEventSynchronize(events[1]) != cudaSuccess) return 1e30f;
        cudaEventElapsedTime(&ms, events[0], events[1]);
        if (i > 0 && ms < best) best = ms;
    }
    return best;
}

static void measure(struct cublas *b, const struct cuda_linear *a, int32_t n,
                    const cudaEvent_t events[2], cudaStream_t stream) {
    cublasLtMatmulHeuristicResult_t found[TRIED];
    struct product p;
    struct cublas_plan plan = key_of(a, n);
    if (find_plan(b, &plan)->n || !product_init(&p, a, n, a->rows)) return;
    int count = guesses(b, &p, found, TRIED), best = -1;
    float least = 1e30f;
    for (int i = 0; i < count; i++) {
        float ms = time_one(b, &p, a, found[i].algo.data, events, stream);
        if (ms < least) least = ms, best = i;
    }
    product_release(&p);
    if (best < 0) return;
    memcpy(plan.algo, found[best].algo.data, sizeof plan.algo);
    b->n_new += keep_plan(b, &plan);
}

static size_t scratch_bytes(const struct cuda_linear *shapes, int n_shapes, int32_t rows) {
    size_t most = 0;
    for (int i = 0; i < n_shapes; i++) {
        size_t x = (size_t)shapes[i].cols * dtype_size(shapes[i].dtype);
        size_t y = (size_t)shapes[i].rows * sizeof(float), both = (x + y) * (size_t)rows + 256;
        if (both > most) most = both;
    }
    return most;
}

// Iterates over the products that a step within the limits may need: sets *a, which points into
// scratch, and *n, its rows. False after the last one. The head multiplies only the rows whose
// logits are wanted, so scratch need not hold its result for the largest number of rows.
struct products {
    const struct cuda_linear *shapes;
    int n_shapes, at, y_f32;
    int32_t next, last, last_logits; // rows
    char *scratch;
    size_t bytes;
};

static bool next_product(struct products *p, struct cuda_linear *a, int32_t *n) {
    for (; p->at < p->n_shapes; p->y_f32 = !p->y_f32, p->at += !p->y_f32, p->next = 24) {
        *a = p->shapes[p->at];
        *n = p->next;
        a->y_f32 = p->y_f32;
        size_t x = ((size_t)*n * (size_t)a->cols * dtype_size(a->dtype) + 255) & ~(size_t)255;
        size_t y = (size_t)*n * (size_t)a->rows * (a->y_f32 ? 4 : dtype_size(a->dtype));
        bool head = a->rows > 4 * a->cols, wanted = !a->y_f32 || (head && *n <= p->last_logits);
        if (a->x_8bit) wanted = !a->block_k && a->y_f32 == cuda_fp8_unscaled(a, *n);
        if (*n > p->last || x + y > p->bytes || !wanted) continue;
        a->x = p->scratch;
        a->x_scale = (const float *)p->scratch; // of 8 bits: any numbers do
        a->y = p->scratch + x;
        p->next = bucket(*n + 1);
        return true;
    }
    return false;
}

static int64_t count_unknown(const struct cublas *b, struct products p) {
    struct cuda_linear a;
    int64_t count = 0;
    int32_t n;
    while (next_product(&p, &a, &n)) {
        struct cublas_plan key = key_of(&a, n);
        count += find_plan(b, &key)->n == 0;
    }
    return count;
}

static void measure_all(struct cublas *b, struct products p, const struct step_limits *l,
                        const cudaEvent_t events[2], cudaStream_t stream) {
    const int64_t total = count_unknown(b, p);
    struct cuda_linear a;
    int64_t done = 0;
    int32_t n;
    while (next_product(&p, &a, &n)) {
        struct cublas_plan key = key_of(&a, n);
        if (find_plan(b, &key)->n) continue;
        measure(b, &a, n, events, stream);
        if (l->progress) l->progress(l->progress_ctx, ++done, total);
    }
}

int cublas_tune(struct cublas *b, const struct cuda_linear *shapes, int n_shapes,
                const struct step_limits *l, cudaStream_t stream, struct err *err) {
    if (!b->lib || n_shapes == 0 || l->max_rows <= 16) return 0;
    cudaEvent_t events[2];
    struct products p = {.shapes = shapes, .n_shapes = n_shapes, .next = 24};
    p.last = bucket(l->max_rows);
    p.last_logits = bucket(l->max_seqs);
    p.bytes = scratch_bytes(shapes, n_shapes, 1024 < p.last ? 1024 : p.last);
    TRY(cuda_alloc((void **)&p.scratch, p.bytes, err));
    int rc = cuda_check(cudaMemsetAsync(p.scratch, 0x3c, p.bytes, stream), "cudaMemsetAsync");
    cudaEventCreate(&events[0]);
    cudaEventCreate(&events[1]);
    if (rc == 0) measure_all(b, p, l, events, stream);
    cudaEventDestroy(events[0]);
    cudaEventDestroy(events[1]);
    cudaStreamSynchronize(stream);
    cudaFree(p.scratch);
    char file[sizeof b->path + 16];
    if (b->n_new)
        log_info("cuda.tuned", "products=%d file=%s", b->n_new,
                 log_quote(file, sizeof file, b->path));
    write_file(b);
    return rc;
}
