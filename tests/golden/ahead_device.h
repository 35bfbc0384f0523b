// A device whose steps may follow each other, for tests without a GPU: the CPU with draws of its own. A step is
// computed when it is launched, so a step that follows overwrites logits as early as it can.
#pragma once
#include "engine/engine_internal.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AHEAD_ROWS = 64 };
static struct backend_ops ahead_ops[2];
static struct ahead_state {
    struct backend *be;
    const struct backend_ops *cpu;
    struct batch_drawn drawn[2][AHEAD_ROWS]; // of two steps in turns
    int slot;                                // the last step's
    struct batch batch;                      // with all ids known
    int32_t ids[AHEAD_ROWS];
    int64_t n_rows, n_followed; // all steps' rows; steps that followed
    int32_t n_refused;          // draws left to the host
    int32_t refuse_one_of;      // 0: none
    int64_t fail_at; // so many steps are left until one cannot be launched; < 0: none fails
} ahead, ahead_calm; // ahead_calm: of a second engine, none of whose steps follows

static struct ahead_state *ahead_of(const struct backend *be) {
    return be == ahead_calm.be ? &ahead_calm : &ahead;
}

static int ahead_step_begin(struct backend *be, const struct batch *b, const struct batch **run) {
    struct ahead_state *a = ahead_of(be);
    const struct batch_drawn *before = a->drawn[a->slot];
    a->slot = !a->slot;
    a->n_rows += b->n_rows;
    a->n_followed += b->follows;
    if (a->fail_at >= 0 && a->fail_at-- == 0) return E_DEVICE;
    if (!b->follows) return a->cpu->step_begin(be, b, run);
    assert_true(b->n_rows <= AHEAD_ROWS);
    a->batch = *b;
    a->batch.ids = a->ids;
    for (int32_t i = 0; i < b->n_rows; i++) {
        int32_t id = b->ids[i] < 0 ? before[BATCH_DRAWN(b->ids[i])].id : b->ids[i];
        a->ids[i] = id < 0 ? 0 : id; // such a row does not count
    }
    return a->cpu->step_begin(be, &a->batch, run);
}

static int32_t ahead_greatest(const float *row, int32_t vocab) {
    int32_t best = 0;
    for (int32_t v = 1; v < vocab; v++)
        if (row[v] > row[best]) best = v;
    return best;
}

static struct batch_drawn ahead_draw_one(struct ahead_state *a, const float *row, int32_t vocab,
                                         const struct batch_draw *d) {
    int32_t id = ahead_greatest(row, vocab);
    double sum = 0, model = 0, at = 0, max = (double)row[id];
    if (d->kind == DRAW_NONE) return (struct batch_drawn){-1, 0};
    if (a->refuse_one_of > 0 && id % a->refuse_one_of == 0) {
        a->n_refused++;
        return (struct batch_drawn){-1, 0};
    }
    for (int32_t v = 0; v < vocab; v++) model += exp((double)row[v] - max);
    if (d->kind == DRAW_SAMPLE) {
        for (int32_t v = 0; v < vocab; v++)
            sum += exp(((double)row[v] - max) / (double)d->temperature);
        for (id = 0; id < vocab - 1; id++) {
            at += exp(((double)row[id] - max) / (double)d->temperature);
            if (at > (double)d->u * sum) break;
        }
    }
    return (struct batch_drawn){id, (float)((double)row[id] - max - log(model))};
}

static int ahead_draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                      int32_t vocab) {
    struct ahead_state *a = ahead_of(be);
    const struct batch_draw none = {.kind = DRAW_NONE};
    for (int32_t i = 0; i < n && i < AHEAD_ROWS; i++)
        a->drawn[a->slot][i] =
            ahead_draw_one(a, logits + (int64_t)i * vocab, vocab, b->draws ? &b->draws[i] : &none);
    return 0;
}

static int ahead_draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    struct ahead_state *a = ahead_of(be);
    memcpy(out, a->drawn[a->slot], (size_t)n * sizeof *out);
    return 0;
}

static int ahead_draws_read_before(struct backend *be, struct batch_drawn *out, int32_t n) {
    struct ahead_state *a = ahead_of(be);
    memcpy(out, a->drawn[!a->slot], (size_t)n * sizeof *out);
    return 0;
}

// A GPU stays as it is, but for draws_read_before.
static inline void ahead_install(struct ahead_state *a, struct engine *e, bool follows) {
    struct backend_ops *ops = &ahead_ops[a == &ahead_calm];
    *a = (struct ahead_state){
        .be = e->backend, .cpu = e->backend->ops, .fail_at = -1, .refuse_one_of = a->refuse_one_of};
    *ops = *e->backend->ops;
    if (!ops->draw) {
        ops->step_begin = ahead_step_begin;
        ops->draw = ahead_draw;
        ops->draws_read = ahead_draws_read;
        ops->draws_read_before = ahead_draws_read_before;
    }
    if (!follows) ops->draws_read_before = NULL;
    e->backend->ops = ops;
}
// follows: false for the same device without steps that follow.
static inline void ahead_use(struct engine *e, bool follows) {
    ahead_install(&ahead, e, follows);
}
static inline void ahead_use_calm(struct engine *e) {
    ahead_install(&ahead_calm, e, false);
}
