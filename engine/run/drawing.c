// See drawing.h.
#include "engine/run/drawing.h"

#include <assert.h>

int drawings_init(struct drawings *d, int32_t n_vocab, struct err *err) {
    *d = (struct drawings){0};
    // One for each draw, not for each thread: every thread draws at some time, and the scratch of each,
    // megabytes for a large vocabulary, would then stay resident.
    for (int i = 0; i < DRAWN_TOGETHER; i++) {
        int rc = sampler_work_init(&d->works[i], n_vocab, err);
        if (rc == 0) continue;
        drawings_release(d);
        return rc;
    }
    return 0;
}

void drawings_release(struct drawings *d) {
    for (int i = 0; i < DRAWN_TOGETHER; i++) sampler_work_release(&d->works[i]);
    *d = (struct drawings){0};
}

bool drawings_are_full(const struct drawings *d, int32_t n_seqs) {
    if (d->n == 0) return false;
    bool emits = !d->of[d->n - 1].search;
    return d->n >= (emits && n_seqs > DRAWN_TOGETHER ? 1 : DRAWN_TOGETHER);
}

void drawings_add(struct drawings *d, int32_t seq, struct sampler *s, const float *logits,
                  int64_t position) {
    assert(d->n < DRAWN_TOGETHER);
    struct drawing *one = &d->of[d->n++];
    one->seq = seq;
    one->branch = 0;
    one->sampler = s;
    one->search = NULL;
    one->logits = logits;
    one->position = position;
    one->err.code = 0;
}

void drawings_add_beam(struct drawings *d, int32_t seq, int32_t beam, struct sampler *s,
                       struct beam_search *search, const float *logits) {
    drawings_add(d, seq, s, logits, 0);
    d->of[d->n - 1].branch = beam;
    d->of[d->n - 1].search = search;
}

static void rank_one(struct drawing *one, struct sampler_work *work) {
    one->rc = sampler_rank(one->sampler, work, one->logits, one->search->n_keep,
                           beam_search_row(one->search, one->branch), &one->err);
    if (one->rc < 0) return;
    beam_search_ranked(one->search, one->branch, one->rc);
    one->rc = 0;
}

static void draw_one(void *ctx, int item) {
    struct drawings *d = ctx;
    struct drawing *one = &d->of[item];
    if (one->search) {
        rank_one(one, &d->works[item]);
        return;
    }
    one->rc = sampler_draw(one->sampler, &d->works[item], one->logits, one->position, &one->drawn,
                           &one->err);
    one->time_us = clock_mono_us(d->clock);
}

void drawings_run(struct drawings *d, struct backend *be, const struct clock *clock) {
    d->clock = clock;
    if (be->ops->host_for && d->n > 1) {
        be->ops->host_for(be, d->n, draw_one, d);
        return;
    }
    for (int i = 0; i < d->n; i++) draw_one(d, i);
}
