// Measures the CPU's kernels on this machine against its measured ceilings.
//
//   bench_kernels [--threads N] [--isa NAME] [--compute f32|bf16] [--model demo|1b] [--seconds S]
//                 [--context N]
//                 [--only ceilings|linear|prefill|decode|eight]
//                 [--weights packed|bf16|int8|fp8|all]
//
// Prints the ceilings (reading memory, multiplying), then for a model's shape with random weights:
// each matrix of a layer for several numbers of rows (GB/s of the weights as they were given,
// GFLOP/s), and whole steps put together from the ops as the forward pass does it, in tokens per
// second. With --weights all it measures only steps instead: with bf16 in 16 bits, with 8 bits and, where the
// set packs, with bf16 in 12 bits, in turns of --seconds each, five times.
#include "engine/model/weight_format.h"
#include "kernels/cpu/cpu.h"
#include "kernels/fp8.h"
#include "kernels/int8.h"
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct shape {
    const char *name;
    int32_t layers, width, heads, kv_heads, head_dim, ffn, vocab;
};

static const struct shape shapes[] = {
    {"demo", 8, 384, 6, 2, 64, 1024, 4096},
    {"1b", 16, 2048, 32, 8, 64, 8192, 128256},
};

struct options {
    const struct shape *shape;
    const char *isa, *only, *weights;
    enum dtype compute;
    int threads, context;
    double seconds;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int rc, const struct err *err) {
    if (rc >= 0) return;
    fprintf(stderr, "bench_kernels: %s\n", err->text);
    exit(1);
}

// --- ceilings ------------------------------------------------------------------------------------

// A register of the machine this is compiled on.
#if defined(__AVX512F__)
enum { VEC_FLOATS = 16 };
#elif defined(__AVX__)
enum { VEC_FLOATS = 8 };
#else
enum { VEC_FLOATS = 4 };
#endif
typedef float vec __attribute__((vector_size(VEC_FLOATS * 4)));
typedef float line __attribute__((vector_size(64)));
enum { N_STREAMS = 8, LINE_FLOATS = 16 };

struct ceiling {
    const float *data;
    size_t floats; // of one thread
    double rate;
    int thread;
    pthread_barrier_t *barrier;
    volatile float sink;
};

// Eight streams into L2, as the kernels read: one stream does not fill a core's miss buffers, and
// L1's are half as many.
static void *read_ceiling(void *arg) {
    struct ceiling *c = arg;
    line sums[N_STREAMS] = {{0}};
    size_t stream = c->floats / N_STREAMS;
    const float *from = c->data + (size_t)c->thread * c->floats;
    for (int pass = 0; pass < 3; pass++) {
        pthread_barrier_wait(c->barrier);
        double start = now();
        for (size_t i = 0; i + 2 * LINE_FLOATS <= stream; i += 2 * LINE_FLOATS)
            for (int s = 0; s < N_STREAMS; s++) {
                const float *p = from + (size_t)s * stream + i;
                __builtin_prefetch(p + 1024, 0, 2);
                __builtin_prefetch(p + 1024 + LINE_FLOATS, 0, 2);
                sums[s] += *(const line *)p + *(const line *)(p + LINE_FLOATS);
            }
        pthread_barrier_wait(c->barrier);
        double rate = (double)c->floats * 4 / (now() - start) * 1e-9;
        if (rate > c->rate) c->rate = rate;
    }
    for (int s = 1; s < N_STREAMS; s++) sums[0] += sums[s];
    c->sink = sums[0][0];
    return NULL;
}

static void *multiply_ceiling(void *arg) {
    struct ceiling *c = arg;
    vec s[12];
    for (int i = 0; i < 12; i++) s[i] = (vec){0} + (float)i;
    vec x = (vec){0} + 1.0000001f, y = (vec){0} + 1e-9f;
    const long n = 200000;
    // Short passes: the best is what the core can do, even where other programs take their share of
    // it.
    for (int pass = 0; pass < 200; pass++) {
        double start = now();
        for (long i = 0; i < n; i++)
#pragma GCC unroll 12
            for (int j = 0; j < 12; j++) s[j] = s[j] * x + y; // one operation, by this file's flags
        double rate = (double)n * 12 * 2 * VEC_FLOATS / (now() - start) * 1e-9;
        if (rate > c->rate) c->rate = rate;
    }
    for (int i = 1; i < 12; i++) s[0] += s[i];
    c->sink = s[0][0];
    return NULL;
}

static double measure_ceiling(void *(*fn)(void *), int threads, const float *data, size_t floats) {
    pthread_barrier_t barrier;
    pthread_barrier_init(&barrier, NULL, (unsigned)threads);
    struct ceiling c[64];
    pthread_t t[64];
    double sum = 0;
    for (int i = 0; i < threads; i++) {
        c[i] = (struct ceiling){data, (floats / (size_t)threads) & ~(size_t)255, 0, i, &barrier, 0};
        if (i) pthread_create(&t[i], NULL, fn, &c[i]);
    }
    fn(&c[0]);
    for (int i = 0; i < threads; i++) {
        if (i) pthread_join(t[i], NULL);
        sum += c[i].rate;
    }
    pthread_barrier_destroy(&barrier);
    return sum;
}

static void print_ceilings(struct backend *be, const struct options *o) {
    const size_t big = (size_t)1 << 28, small = (size_t)6 << 20;
    void *data;
    struct err err = {0};
    check(be->ops->mem_alloc(be, big * 4, &data, &err), &err);
    memset(data, 0, big * 4);
    double memory = measure_ceiling(read_ceiling, be->n_threads, data, big);
    double cache = measure_ceiling(read_ceiling, be->n_threads, data, small);
    double multiply = measure_ceiling(multiply_ceiling, be->n_threads, NULL, 0);
    be->ops->mem_free(be, data);
    printf(
        "%s\nceilings: memory read %.1f GB/s, 24 MiB read %.1f GB/s, multiply-add %.0f GFLOP/s\n\n",
        be->description, memory, cache, multiply);
}

// --- a model of random weights -------------------------------------------------------------------
struct layer {
    struct weight qkv, out, gate_up, down;
};

struct model {
    const struct shape *s;
    struct layer layers[64];
    struct weight head;
    struct kv_store kv;
    float *ones, *inv_freq;
    enum weight_format weights;
    size_t given_bytes, bytes;
};

// Normal, by adding up; bf16. A weight is put together from pieces of some that are made once: a
// billion of them would take half a minute, and no kernel can tell.
enum { POOL = 1 << 20, PIECE = 1 << 12 };

static uint64_t next_random(void) {
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state ^ state >> 29;
}

static void random_weights(uint16_t *out, size_t n) {
    static uint16_t pool[POOL];
    static bool made;
    for (size_t i = 0; i < POOL && !made; i++) {
        uint64_t r = next_random();
        int sum = (int)(r & 0x3fff) + (int)(r >> 14 & 0x3fff) + (int)(r >> 28 & 0x3fff) +
                  (int)(r >> 42 & 0x3fff);
        pool[i] = bf16_from_f32((float)(sum - 32766) * (0.02f / 9459.0f));
    }
    made = true;
    for (size_t i = 0; i < n; i += PIECE)
        memcpy(out + i, pool + next_random() % (POOL - PIECE),
               (n - i < PIECE ? n - i : PIECE) * sizeof *out);
}

static void make_weight(struct backend *be, struct model *m, struct weight *w, int32_t rows,
                        int32_t cols) {
    size_t n = (size_t)rows * (size_t)cols;
    uint16_t *data = malloc(n * 2);
    struct err err = {0};
    if (!data) check(err_set(&err, E_NOMEM, "out of memory"), &err);
    random_weights(data, n);
    struct tensor_view v = {data, DTYPE_BF16, rows, cols, cols, 1, NULL, 0};
    if (m->weights != WEIGHTS_OWN) {
        bool fp8 = m->weights == WEIGHTS_FP8;
        uint8_t *q = malloc(n);
        float *scales = malloc((size_t)rows * sizeof *scales), *work = malloc((size_t)cols * 4);
        for (int32_t r = 0; r < rows; r++)
            if (fp8)
                fp8_quantize_row(&v, r, q + (int64_t)r * cols, 1, work, &scales[r]);
            else
                int8_quantize_row(&v, r, (int8_t *)q + (int64_t)r * cols, 1, work, &scales[r]);
        v = (struct tensor_view){q, fp8 ? DTYPE_F8_E4M3 : DTYPE_I8, rows, cols, cols, 1, scales, 0};
        check(be->ops->weight_init(be, w, &v, 1, &err), &err);
        free(q), free(scales), free(work);
    } else {
        check(be->ops->weight_init(be, w, &v, 1, &err), &err);
    }
    free(data);
    m->given_bytes += n * 2;
    m->bytes += w->bytes;
}

static void make_model(struct backend *be, struct model *m, const struct shape *s, int32_t n_blocks,
                       enum weight_format weights) {
    *m = (struct model){.s = s, .weights = weights};
    struct err err = {0};
    for (int i = 0; i < s->layers; i++) {
        struct layer *l = &m->layers[i];
        make_weight(be, m, &l->qkv, (s->heads + 2 * s->kv_heads) * s->head_dim, s->width);
        make_weight(be, m, &l->out, s->width, s->heads * s->head_dim);
        make_weight(be, m, &l->gate_up, 2 * s->ffn, s->width);
        make_weight(be, m, &l->down, s->width, s->ffn);
    }
    make_weight(be, m, &m->head, s->vocab, s->width);
    m->kv = (struct kv_store){.dtype = DTYPE_F32,
                              .n_layers = s->layers,
                              .n_kv_heads = s->kv_heads,
                              .head_dim = s->head_dim,
                              .block_tokens = 64,
                              .n_blocks = n_blocks};
    check(be->ops->kv_store_init(be, &m->kv, &err), &err);
    m->ones = malloc((size_t)s->width * sizeof(float));
    m->inv_freq = malloc((size_t)s->head_dim * sizeof(float));
    for (int i = 0; i < s->width; i++) m->ones[i] = 1;
    for (int i = 0; i < s->head_dim / 2; i++)
        m->inv_freq[i] = powf(10000, -2.0f * (float)i / (float)s->head_dim);
}

struct buffers {
    float *x, *h, *qkv, *attn, *up, *act, *logits, *angles;
};

static void *alloc_floats(struct backend *be, size_t n) {
    void *p;
    struct err err = {0};
    check(be->ops->mem_alloc(be, n * sizeof(float), &p, &err), &err);
    return p;
}

static struct buffers make_buffers(struct backend *be, const struct shape *s, size_t rows) {
    size_t heads = (size_t)(s->heads + 2 * s->kv_heads);
    return (struct buffers){alloc_floats(be, rows * (size_t)s->width),
                            alloc_floats(be, rows * (size_t)s->width),
                            alloc_floats(be, rows * heads * (size_t)s->head_dim),
                            alloc_floats(be, rows * (size_t)(s->heads * s->head_dim)),
                            alloc_floats(be, rows * 2 * (size_t)s->ffn),
                            alloc_floats(be, rows * (size_t)s->ffn),
                            alloc_floats(be, 16 * (size_t)s->vocab),
                            alloc_floats(be, rows * (size_t)s->head_dim)};
}

static void forward(struct backend *be, const struct model *m, const struct batch *b,
                    const struct buffers *f) {
    const struct shape *s = m->s;
    const struct backend_ops *ops = be->ops;
    int32_t n = b->n_rows;
    const struct norm_args norm = {NORM_RMS, m->ones, NULL, 1e-5f, 0};
    ops->step_begin(be, b, &b);
    ops->embed(be, f->x, b, &m->head, 1);
    ops->rope_angles(be, f->angles, b, m->inv_freq, NULL, s->head_dim, 1);
    for (int32_t i = 0; i < s->layers; i++) {
        const struct layer *l = &m->layers[i];
        struct attention_args a = {.layer = i,
                                   .n_heads = s->heads,
                                   .n_kv_heads = s->kv_heads,
                                   .head_dim = s->head_dim,
                                   .scale = 1 / sqrtf((float)s->head_dim)};
        if (ops->norm_linear(be, &norm, LINEAR_STORE, f->qkv, f->x, n, &l->qkv, NULL, NULL) ==
            OP_DECLINED) {
            ops->norm(be, f->h, f->x, n, s->width, &norm);
            ops->linear(be, LINEAR_STORE, f->qkv, f->h, n, &l->qkv, NULL);
        }
        const struct qkv_args qa = {
            .style = ROPE_HALF, .rot_dim = s->head_dim, .cos_sin = f->angles};
        ops->qkv_finish(be, f->qkv, &m->kv, b, i, s->heads, &qa);
        ops->attention(be, f->attn, f->qkv, &m->kv, b, &a);
        ops->linear(be, LINEAR_ADD, f->x, f->attn, n, &l->out, NULL);
        const struct feed_forward_args ff = {
            .norm = &norm, .up = &l->gate_up, .down = &l->down, .activate = {ACT_SILU, true}};
        if (ops->feed_forward(be, LINEAR_ADD, f->x, f->x, n, &ff) != OP_DECLINED) continue;
        ops->norm(be, f->h, f->x, n, s->width, &norm);
        ops->linear(be, LINEAR_STORE, f->up, f->h, n, &l->gate_up, NULL);
        ops->activate(be, ACT_SILU, true, f->act, f->up, n, s->ffn);
        ops->linear(be, LINEAR_ADD, f->x, f->act, n, &l->down, NULL);
    }
    ops->gather_logit_rows(be, f->h, f->x, b, s->width);
    ops->norm(be, f->h, f->h, b->n_logits, s->width, &norm);
    ops->linear(be, LINEAR_STORE, f->logits, f->h, b->n_logits, &m->head, NULL);
    ops->step_end(be);
}

// Tokens per second of n_seqs sequences, each n_rows tokens after `context`.
static double bench_step(struct backend *be, const struct model *m, const struct options *o,
                         const char *what, int32_t n_seqs, int32_t n_rows, int32_t context,
                         const struct buffers *f) {
    struct batch_seq seqs[16];
    struct kv_map maps[16];
    int32_t *ids = malloc(sizeof(int32_t) * (size_t)(n_seqs * n_rows)), logit_rows[16];
    int32_t *positions = malloc(sizeof(int32_t) * (size_t)(n_seqs * n_rows));
    int32_t per_seq = m->kv.n_blocks / n_seqs,
            *blocks = malloc(sizeof(int32_t) * (size_t)m->kv.n_blocks);
    for (int32_t i = 0; i < m->kv.n_blocks; i++) blocks[i] = i;
    for (int32_t i = 0; i < n_seqs; i++) {
        maps[i] = (struct kv_map){blocks + i * per_seq, 0, per_seq, 64};
        seqs[i] = (struct batch_seq){
            .first_row = i * n_rows, .n_rows = n_rows, .memory_len = 1 << 20, .maps = &maps[i]};
        for (int32_t r = 0; r < n_rows; r++) {
            ids[i * n_rows + r] = (i * 37 + r * 101) % m->s->vocab;
            positions[i * n_rows + r] = context + r;
        }
        logit_rows[i] = i * n_rows + n_rows - 1;
    }
    struct batch b = {.n_rows = n_seqs * n_rows,
                      .n_seqs = n_seqs,
                      .n_logits = n_seqs,
                      .ids = ids,
                      .positions = positions,
                      .logit_rows = logit_rows,
                      .seqs = seqs};
    double best = 1e9, start = now();
    int n = 0;
    for (; n < 3 || now() - start < o->seconds; n++) {
        double t = now();
        forward(be, m, &b, f);
        t = now() - t;
        if (t < best) best = t;
    }
    double mean = (now() - start) / n, tokens = b.n_rows;
    printf("%-34s %9.1f tokens/s (best step %9.1f), %8.3f ms, weights as given %6.1f GB/s\n", what,
           tokens / mean, tokens / best, mean * 1e3, (double)m->given_bytes / mean * 1e-9);
    free(ids), free(positions), free(blocks);
    return tokens / mean;
}

static void bench_linear(struct backend *be, const struct model *m, const char *name,
                         const struct weight *w0, size_t stride, const struct options *o,
                         const struct buffers *f) {
    static const int32_t rows[] = {1, 2, 4, 8, 16, 64, 512};
    double bytes = 2.0 * w0->rows * w0->cols;
    printf("%-8s %6d x %-6d", name, w0->rows, w0->cols);
    for (int i = 0; i < 7; i++) {
        double start = now(), t = 1e9;
        for (int n = 0; n < m->s->layers || now() - start < o->seconds / 8; n++) {
            const struct weight *w =
                (const struct weight *)((const char *)w0 + stride * (size_t)(n % m->s->layers));
            double begin = now();
            be->ops->linear(be, LINEAR_STORE, f->up, f->act, rows[i], w, NULL);
            if (now() - begin < t) t = now() - begin;
        }
        if (rows[i] <= 8)
            printf("  n=%d %5.1f GB/s", rows[i], bytes / t * 1e-9);
        else
            printf("  n=%d %4.0f GF/s", rows[i], bytes * rows[i] / t * 1e-9);
    }
    printf("\n");
}

static int parse(struct options *o, int argc, char **argv) {
    *o = (struct options){.shape = &shapes[0],
                          .weights = "packed",
                          .compute = DTYPE_F32,
                          .seconds = 1,
                          .context = 128};
    for (int i = 1; i + 1 < argc; i += 2) {
        const char *v = argv[i + 1];
        if (strcmp(argv[i], "--threads") == 0)
            o->threads = atoi(v);
        else if (strcmp(argv[i], "--isa") == 0)
            o->isa = v;
        else if (strcmp(argv[i], "--weights") == 0)
            o->weights = v;
        else if (strcmp(argv[i], "--compute") == 0 && dtype_parse(v, &o->compute) == 0)
            continue;
        else if (strcmp(argv[i], "--only") == 0)
            o->only = v;
        else if (strcmp(argv[i], "--seconds") == 0)
            o->seconds = atof(v);
        else if (strcmp(argv[i], "--context") == 0)
            o->context = atoi(v);
        else if (strcmp(argv[i], "--model") == 0)
            o->shape = strcmp(v, "1b") == 0 ? &shapes[1] : &shapes[0];
        else
            return -1;
    }
    return argc % 2 ? 0 : -1;
}

static bool wants(const struct options *o, const char *part) {
    return !o->only || strcmp(o->only, part) == 0;
}

static struct model *make_weights(struct backend *be, const struct options *o,
                                  const char *weights) {
    struct model *m = malloc(sizeof *m);
    double start = now();
    size_t left = cpu_of(be)->raw_left, max = cpu_of(be)->raw_max;
    if (strcmp(weights, "bf16") == 0) cpu_raw_budget_set(cpu_of(be), SIZE_MAX); // packs nothing
    enum weight_format format = strcmp(weights, "int8") == 0  ? WEIGHTS_INT8
                                : strcmp(weights, "fp8") == 0 ? WEIGHTS_FP8
                                                              : WEIGHTS_OWN;
    make_model(be, m, o->shape, (o->context + 512) / 64 * 8 + 16, format);
    cpu_of(be)->raw_left = left, cpu_of(be)->raw_max = max;
    printf("%s: %.1f MB of bf16 weights, held as %s in %.1f MB, made in %.1f s\n", o->shape->name,
           (double)m->given_bytes * 1e-6, weights, (double)m->bytes * 1e-6, now() - start);
    return m;
}

// The same steps with all forms of weights, in turns.
static void bench_weights(struct backend *be, const struct options *o) {
    // Where the set has no packing, "packed" would be bf16 once more.
    const bool packs = cpu_of(be)->kernels->bf16_layout == PANEL_BF12;
    const char *const kinds[] = {"bf16", "int8", "fp8", "packed"};
    const int n_kinds = packs ? 4 : 3;
    struct model *m[4];
    char what[64];
    for (int i = 0; i < n_kinds; i++) m[i] = make_weights(be, o, kinds[i]);
    struct buffers f = make_buffers(be, o->shape, 512);
    for (int round = 0; round < 5; round++)
        for (int i = 0; i < n_kinds; i++) {
            snprintf(what, sizeof what, "%s: decode after %d", kinds[i], o->context);
            if (wants(o, "decode")) bench_step(be, m[i], o, what, 1, 1, o->context, &f);
            snprintf(what, sizeof what, "%s: eight decodes after %d", kinds[i], o->context);
            if (wants(o, "eight")) bench_step(be, m[i], o, what, 8, 1, o->context, &f);
            snprintf(what, sizeof what, "%s: prefill 512", kinds[i]);
            if (wants(o, "prefill")) bench_step(be, m[i], o, what, 1, 512, 0, &f);
        }
}

int main(int argc, char **argv) {
    struct options o;
    if (parse(&o, argc, argv) < 0) {
        fprintf(stderr, "usage: bench_kernels [--threads N] [--isa NAME] [--compute f32|bf16] "
                        "[--model demo|1b] [--seconds S] [--context N] [--only PART] [--weights "
                        "packed|bf16|int8|fp8|all]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0); // a large model takes a while: each line when it is known
    struct backend *be;
    struct err err = {0};
    check(backend_cpu_open_for(&be, o.compute, o.threads, o.isa, &err), &err);
    if (wants(&o, "ceilings")) print_ceilings(be, &o);
    if (strcmp(o.weights, "all") == 0) {
        bench_weights(be, &o);
        be->ops->close(be);
        return 0;
    }
    struct model *m = make_weights(be, &o, o.weights);
    struct buffers f = make_buffers(be, o.shape, 512);
    const struct layer *l = &m->layers[0];
    if (wants(&o, "linear")) {
        bench_linear(be, m, "qkv", &l->qkv, sizeof *l, &o, &f);
        bench_linear(be, m, "out", &l->out, sizeof *l, &o, &f);
        bench_linear(be, m, "gate_up", &l->gate_up, sizeof *l, &o, &f);
        bench_linear(be, m, "down", &l->down, sizeof *l, &o, &f);
    }
    char what[64];
    if (wants(&o, "prefill")) bench_step(be, m, &o, "prefill 512", 1, 512, 0, &f);
    snprintf(what, sizeof what, "decode after %d", o.context);
    if (wants(&o, "decode")) bench_step(be, m, &o, what, 1, 1, o.context, &f);
    snprintf(what, sizeof what, "eight decodes after %d", o.context);
    if (wants(&o, "eight")) bench_step(be, m, &o, what, 8, 1, o.context, &f);
    be->ops->close(be); // the process ends: the model goes with it
    return 0;
}
