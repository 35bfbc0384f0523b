// Attention on CUDA and on the CPU side by side: one cache each, the same steps, results compared. Shared by
// the tests of CUDA's attention.
#pragma once
#include "tests/ops/attention_world.h"
#include "tests/ops/twin.h"
#include <stdio.h>

struct world {
    const struct twin *w;
    struct shape s;
    struct kv_store cpu_kv, gpu_kv;
    struct seq seqs[MAX_SEQS];
    float slopes[64], *gpu_slopes;
};

// Fills everything with NaN, so that a read of a value that was never written shows.
static inline void poison(const struct twin *w, struct kv_store *cpu, struct kv_store *gpu) {
    size_t bytes = gpu->block_bytes * (size_t)gpu->n_blocks;
    void *host = malloc(bytes);
    memset(host, 0xff, bytes);
    assert_int_equal(w->gpu->ops->mem_write(w->gpu, gpu->data, host, bytes), 0);
    memset(cpu->data, 0xff, cpu->block_bytes * (size_t)cpu->n_blocks);
    free(host);
}

static inline void world_init(struct world *o, const struct twin *w, const struct shape *s,
                              const int32_t *lens, int n_seqs) {
    struct err err = {0};
    *o = (struct world){.w = w, .s = *s};
    int32_t n_blocks = seqs_init(o->seqs, n_seqs, s, lens);
    op_seed(11);
    for (int i = 0; i < n_seqs; i++) o->seqs[i].qkv = twin_floats(w, lens[i] * row_width(s));
    o->cpu_kv = o->gpu_kv = store_of(s, n_blocks);
    assert_int_equal(w->cpu->ops->kv_store_init(w->cpu, &o->cpu_kv, &err), 0);
    if (w->gpu->ops->kv_store_init(w->gpu, &o->gpu_kv, &err) < 0) fail_msg("%s", err.text);
    poison(w, &o->cpu_kv, &o->gpu_kv);
    slopes_init(o->slopes);
    o->gpu_slopes = twin_up_bytes(w, o->slopes, sizeof o->slopes);
    const struct step_limits l = {.max_rows = 512,
                                  .max_seqs = MAX_SEQS,
                                  .max_map = n_blocks + 8,
                                  .n_heads = s->n_heads,
                                  .n_kv_heads = s->n_kv_heads,
                                  .head_dim = s->head_dim,
                                  .vocab = 100};
    if (w->gpu->ops->step_reserve(w->gpu, &l, &err) < 0) fail_msg("%s", err.text);
}

static inline void world_release(struct world *o) {
    seqs_release(o->seqs);
    o->w->cpu->ops->kv_store_release(o->w->cpu, &o->cpu_kv);
    o->w->gpu->ops->kv_store_release(o->w->gpu, &o->gpu_kv);
    twin_free(o->w, o->gpu_slopes);
}

// One step: sequence i advances by rows[i]; both backends, compared.
static inline void world_step(struct world *o, const int32_t *rows) {
    const struct shape *s = &o->s;
    const struct twin *w = o->w;
    struct step t;
    if (rows[0] + rows[1] + rows[2] + rows[3] == 0) return;
    step_init(&t, s, o->seqs, rows);
    int32_t n_rows = t.batch.n_rows;
    const struct batch *run;
    void *gqkv = twin_up(w, t.qkv, n_rows * row_width(s));
    void *gout = twin_up(w, NULL, n_rows * out_width(s));
    struct attention_args a = args_of(s, o->slopes), ga = args_of(s, o->gpu_slopes);
    const struct qkv_args as_it_is = {0};
    if (s->sink_logits) a.sinks = o->slopes, ga.sinks = o->gpu_slopes; // numbers of each head
    void *at_once = twin_up(w, NULL, n_rows * out_width(s));
    assert_int_equal(w->gpu->ops->step_begin(w->gpu, &t.batch, &run), 0);
    int rc = w->gpu->ops->qkv_attention(w->gpu, at_once, gqkv, &o->gpu_kv, run, &ga, &as_it_is);
    assert_int_equal(w->gpu->ops->kv_write(w->gpu, &o->gpu_kv, s->layer, gqkv, run, s->n_heads), 0);
    assert_int_equal(w->gpu->ops->attention(w->gpu, gout, gqkv, &o->gpu_kv, run, &ga), 0);
    assert_int_equal(w->gpu->ops->step_launch(w->gpu), 0);
    w->cpu->ops->kv_write(w->cpu, &o->cpu_kv, s->layer, t.qkv, &t.batch, s->n_heads);
    w->cpu->ops->attention(w->cpu, t.out, t.qkv, &o->cpu_kv, &t.batch, &a);
    char what[160];
    snprintf(what, sizeof what, "attention %d/%d x %d, blocks of %d, %d rows, %s/%s", s->n_heads,
             s->n_kv_heads, s->head_dim, s->block_tokens, n_rows, dtype_name(w->t),
             dtype_name(s->kv_dtype));
    // Tensor cores get probabilities rounded to T, and 8-bit values rounded to T. Both errors are large
    // where a row sees few keys.
    double units = dtype_size(s->kv_dtype) == 1 ? 4 : 2;
    twin_compare(w, gout, w->t, t.out, n_rows * out_width(s), 1.1, units * twin_unit(w->t) + 4e-6,
                 what);
    float *got = twin_down(w, gout, n_rows * out_width(s), w->t);
    if (rc != OP_DECLINED) { // not bit for bit: long rows are split in another way
        assert_int_equal(rc, 0);
        twin_compare(w, at_once, w->t, t.out, n_rows * out_width(s), 1.1,
                     2 * twin_unit(w->t) + 4e-6, "qkv_attention");
    }
    step_take(&t, s, o->seqs, rows, got);
    assert_int_equal(w->gpu->ops->step_end(w->gpu), 0);
    twin_free(w, gqkv), twin_free(w, gout), twin_free(w, at_once);
    free(got);
}

// In uneven chunks together with other sequences, then one by one.
static inline void check_shape(const struct twin *w, struct shape s) {
    // 250 and 177 rows; fewer under compute-sanitizer, which checks every access.
    const int32_t head = test_scaled(160), more = test_scaled(88), mid = test_scaled(100),
                  rest = test_scaled(73);
    const int32_t lens[] = {head + 1 + more + 1, 1, 3 + mid + 1 + rest};
    const int32_t from = test_scaled(60) < lens[0] - lens[2] ? test_scaled(60) : lens[0] - lens[2];
    struct world chunks, steps;
    s.slack = 160;
    world_init(&chunks, w, &s, lens, 3);
    world_step(&chunks, (int32_t[]){head, 1, 3, 0});
    world_step(&chunks, (int32_t[]){1, 0, mid, 0});
    world_step(&chunks, (int32_t[]){more, 0, 1, 0});
    world_step(&chunks, (int32_t[]){1, 0, rest, 0});
    s.slack = 1;
    world_init(&steps, w, &s, lens, 3);
    for (int i = 0; i < lens[0]; i++)
        world_step(&steps, (int32_t[]){1, i == 3, i >= from && i < from + lens[2], 0});
    if (strstr(w->gpu->description, "deterministic"))
        for (int i = 0; i < 3; i++)
            op_same_bits(chunks.seqs[i].out, steps.seqs[i].out, lens[i] * out_width(&s), "chunks");
    world_release(&chunks);
    world_release(&steps);
}
