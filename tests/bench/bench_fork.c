// Microseconds for a fork of a full session: `make bench-fork`. Medians over many.
//
// engine: configs/demo-model (or ARGS="DIR") with its longest session in the cache, through
// engine_sequence_fork and the engine's round that executes it, with blocks, log and events.
// ring: 8,192 tokens in the shape of Llama-1B (128 blocks of 64 tokens, 4 MiB each in F32). The
// fork alone, and the cost of the first word after it: a copy of the last block, unless that is full.
#include "engine/engine_internal.h"
#include "kernels/backend.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPEAT = 201 };
static double us[REPEAT];

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what) {
    qsort(us, REPEAT, sizeof *us, by_value);
    printf("%-58s %10.1f us   (fastest %.1f, slowest %.1f)\n", what, us[REPEAT / 2], us[0],
           us[REPEAT - 1]);
}

// --- through the engine

static int fill(struct engine *e, int64_t n, struct err *err) {
    struct engine_turn t = {.sequence = 1,
                            .turn = 1,
                            .ids = malloc((size_t)n * sizeof(int32_t)),
                            .n_ids = n,
                            .n_input = n,
                            .memory_len = e->info.max_memory_len,
                            .session_len = e->info.max_session_len,
                            .share_group = 1,
                            .score_only = true};
    if (!t.ids) return err_set(err, E_NOMEM, "no memory for a log of %lld", (long long)n);
    for (int64_t i = 0; i < n; i++) t.ids[i] = (int32_t)(3 + i * 31 % (e->info.n_vocab - 3));
    sampling_params_init(&t.sampling);
    int rc = engine_turn_submit(e, &t, err);
    if (rc < 0) {
        free(t.ids);
        return rc;
    }
    struct engine_event ev;
    for (;;) {
        engine_round(e);
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind == ENGINE_DONE) return 0;
        }
    }
}

static int through_engine(const char *dir, struct err *err) {
    struct engine_options o;
    struct engine *e;
    engine_options_init(&o);
    o.model_dir = dir;
    o.max_sequences = 2;
    TRY(engine_open_manual(&e, &o, &clock_system, err));
    int64_t n = e->info.max_session_len;
    int rc = fill(e, n, err);
    for (int i = 0; rc == 0 && i < REPEAT; i++) {
        struct engine_event ev;
        uint64_t to = 2 + (uint64_t)i;
        double start = now_us();
        rc = engine_sequence_fork(e, 1, to, n);
        engine_round(e);
        us[i] = now_us() - start;
        if (rc == 0 && HASH_COUNT(e->core.caches.sequences) != 2)
            rc = err_set(err, E_INTERNAL, "nothing was forked");
        engine_sequence_release(e, to);
        engine_round(e);
        while (engine_poll(e, &ev) == 1) continue;
    }
    char what[128];
    snprintf(what, sizeof what, "engine: %s, %lld tokens, %d blocks", e->info.model_name,
             (long long)n, e->core.caches.sequences ? e->core.caches.sequences->ring.n_held : 0);
    if (rc == 0) report(what);
    engine_close(e);
    return rc;
}

// --- the ring alone

static struct kv_store store = {.dtype = DTYPE_F32,
                                .n_layers = 16,
                                .n_kv_heads = 8,
                                .head_dim = 64,
                                .block_tokens = 64,
                                .n_blocks = 132};

static int copy(void *ctx, int32_t dst, int32_t src) {
    struct backend *be = ctx;
    return be->ops->kv_block_copy(be, &store, dst, src);
}

static int ring_alone(struct err *err) {
    enum { N = 8192 - 20 }; // the last block has room
    struct backend *be;
    struct kv_pool pool;
    struct kv_ring full, fork;
    TRY(backend_cpu_open(&be, 0, NULL, err));
    TRY(be->ops->kv_store_init(be, &store, err));
    memset(store.data, 1, store.block_bytes * (size_t)store.n_blocks); // resident
    TRY(kv_pool_init(&pool, store.n_blocks, err));
    TRY(kv_ring_init(&full, &pool,
                     &(struct kv_ring_shape){.memory_len = 8192,
                                             .sink_len = 4,
                                             .chunk_tokens = 256,
                                             .block_tokens = store.block_tokens,
                                             .session_len = 131072},
                     err));
    for (int32_t n = N, some; n > 0; n -= some) {
        some = n < 256 ? n : 256;
        TRY(kv_ring_extend(&full, some, NULL, NULL));
        kv_ring_commit(&full, some);
    }
    for (int i = 0; i < REPEAT; i++) {
        double start = now_us();
        TRY(kv_ring_fork(&fork, &full, N, err));
        us[i] = now_us() - start;
        kv_ring_release(&fork);
    }
    report("ring: fork of 8,172 tokens, 128 blocks of 4 MiB");
    for (int i = 0; i < REPEAT; i++) {
        TRY(kv_ring_fork(&fork, &full, N, err));
        double start = now_us();
        TRY(kv_ring_extend(&fork, 1, copy, be));
        us[i] = now_us() - start;
        kv_ring_release(&fork);
    }
    report("ring: first token behind it, a block of 4 MiB copied");
    kv_ring_release(&full);
    kv_pool_release(&pool);
    be->ops->kv_store_release(be, &store);
    be->ops->close(be);
    return 0;
}

int main(int argc, char **argv) {
    struct err err = {0};
    int rc = through_engine(argc > 1 ? argv[1] : "configs/demo-model", &err);
    if (rc == 0) rc = ring_alone(&err);
    if (rc == 0) return 0;
    fprintf(stderr, "%s: %s\n", err_name(rc), err.text);
    return 1;
}
