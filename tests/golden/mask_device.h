// A device that draws as the host does, bit for bit, for tests without a GPU: the CPU with draws of its own, also of
// logits that a mask changes. Every row that it refuses is left to the host.
#pragma once
#include "engine/engine_internal.h"
#include "engine/run/log_softmax.h"
#include "engine/run/nucleus.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MASK_ROWS = 16, MASK_WORDS = 1024 };
static struct mask_device {
    struct backend_ops ops;
    bool refuses;   // all draws
    int64_t n_rows; // with logits, of all steps
    struct sampler_work work;
    struct batch_drawn drawn[MASK_ROWS]; // the last step's
    struct {                             // its rows whose logits are changed
        struct batch_adjusted how;
        uint64_t allowed[MASK_WORDS];
    } changed[MASK_ROWS];
    int32_t n_changed;
} mask_device;

static bool mask_allows(const uint64_t *allowed, int32_t id) {
    return !allowed || allowed[id / 64] >> id % 64 & 1;
}

// allowed: NULL for all tokens.
static struct batch_drawn mask_draw_one(const float *logits, const uint64_t *allowed, int32_t vocab,
                                        const struct batch_draw *d) {
    struct mask_device *m = &mask_device;
    struct log_softmax own;
    struct err err;
    if (d->kind == DRAW_NONE || m->refuses) return (struct batch_drawn){-1, 0};
    if (!m->work.adjusted) assert_int_equal(sampler_work_init(&m->work, vocab, &err), 0);
    assert_int_equal(log_softmax_init(&own, logits, vocab, &err), 0);
    float *x = malloc((size_t)vocab * sizeof *x);
    assert_non_null(x);
    for (int32_t v = 0; v < vocab; v++) x[v] = mask_allows(allowed, v) ? logits[v] : -INFINITY;
    int32_t id = 0;
    for (int32_t v = 1; v < vocab; v++)
        if (x[v] > x[id]) id = v;
    assert_true(x[id] > -INFINITY);
    if (d->kind == DRAW_SAMPLE) {
        struct nucleus nu;
        nucleus_init(&nu, &m->work, x, vocab, x[id], d->temperature);
        if (d->top_k > 0) nucleus_keep_count(&nu, d->top_k);
        nucleus_keep_mass(&nu, d->top_p);
        nucleus_keep_ratio(&nu, d->min_p);
        id = nucleus_draw(&nu, d->u);
    }
    free(x);
    return (struct batch_drawn){id, log_softmax_value(&own, logits[id])};
}

static int mask_draw(struct backend *be, const float *logits, const struct batch *b, int32_t n,
                     int32_t vocab) {
    const struct batch_draw none = {.kind = DRAW_NONE};
    mask_device.n_rows += n;
    for (int32_t i = 0; i < n && i < MASK_ROWS; i++)
        mask_device.drawn[i] = mask_draw_one(logits + (int64_t)i * vocab, NULL, vocab,
                                             b->draws ? &b->draws[i] : &none);
    return 0;
}

static int mask_draw_adjust(struct backend *be, const struct batch_adjusted *a, int32_t vocab) {
    struct mask_device *m = &mask_device;
    assert_true(m->n_changed < MASK_ROWS && vocab <= 64 * MASK_WORDS);
    assert_true(a->n_penalties == 0 && a->n_biases == 0 && a->allowed);
    uint64_t *allowed = m->changed[m->n_changed].allowed;
    memcpy(allowed, a->allowed, (size_t)(vocab + 63) / 64 * sizeof *allowed);
    for (int32_t i = 0; i < a->n_ends; i++)
        allowed[a->ends[i] / 64] |= (uint64_t)1 << a->ends[i] % 64;
    m->changed[m->n_changed++].how = *a;
    return 0;
}

static int mask_draw_adjusted(struct backend *be, const float *logits, int32_t vocab) {
    struct mask_device *m = &mask_device;
    for (int32_t i = 0; i < m->n_changed; i++) {
        const struct batch_adjusted *how = &m->changed[i].how;
        m->drawn[how->row] = mask_draw_one(logits + (int64_t)how->row * vocab,
                                           m->changed[i].allowed, vocab, &how->draw);
    }
    m->n_changed = 0;
    return 0;
}

static int mask_draws_read(struct backend *be, struct batch_drawn *out, int32_t n) {
    memcpy(out, mask_device.drawn, (size_t)n * sizeof *out);
    return 0;
}

static inline void mask_device_use(struct backend *be) {
    struct mask_device *m = &mask_device;
    m->ops = *be->ops;
    m->ops.draw = mask_draw;
    m->ops.draw_adjust = mask_draw_adjust;
    m->ops.draw_adjusted = mask_draw_adjusted;
    m->ops.draws_read = mask_draws_read;
    m->n_rows = 0;
    m->n_changed = 0;
    be->ops = &m->ops;
}
static inline void mask_device_release(void) {
    sampler_work_release(&mask_device.work);
}
