// Draws for several turns at once, from one step's logits, on all compute threads. Each result is that
// of a sampler_draw alone.
//
// Few turns draw together, and their events are pushed together: on one core, at 28 us each, the draws
// would take a fifth of a small model's step. Many turns draw one by one, because the owner's core
// delivers each event meanwhile. That takes longer than a draw, so drawing ahead would only delay the
// events.
//
// Engine thread only. Nothing allocates after _init.
#pragma once
#include "base/clock.h"
#include "engine/run/sampler.h"
#include "kernels/backend.h"

enum { DRAWN_TOGETHER = 8 }; // delivered at 40 us each, the last token comes within 0.4 ms

struct drawing {
    int32_t seq, branch; // the caller's numbers for the turn and its branch
    struct sampler *sampler;
    struct beam_search *search; // not NULL: ranks a beam instead of drawing a token
    const float *logits;        // (n_vocab) in host memory
    int64_t position;
    // result
    int rc;
    struct sampled drawn;
    int64_t time_us; // of the draw
    struct err err;  // with rc < 0
};

struct drawings {
    struct drawing of[DRAWN_TOGETHER];
    struct sampler_work works[DRAWN_TOGETHER]; // works[i] is scratch of of[i]
    const struct clock *clock;
    int n;
};

int drawings_init(struct drawings *d, int32_t n_vocab, struct err *err); // E_NOMEM
void drawings_release(struct drawings *d); // a zeroed or released one is allowed

// Whether the gathered draws are to run before another is added, in a step of n_seqs sequences. Ranked beams emit
// nothing here, so they fill the array; a draw beside them ends the gathering.
bool drawings_are_full(const struct drawings *d, int32_t n_seqs);
// These add one; the draws are not full.
void drawings_add(struct drawings *d, int32_t seq, struct sampler *s, const float *logits,
                  int64_t position);
// Ranks the continuations of a running beam.
void drawings_add_beam(struct drawings *d, int32_t seq, int32_t beam, struct sampler *s,
                       struct beam_search *search, const float *logits);
void drawings_run(struct drawings *d, struct backend *be, const struct clock *clock);
