// Tokens that are drawn at once: a few turns' draws from one step's logits, on all threads that
// compute. Each is sampler_draw's own, whoever draws it and whatever is drawn beside it.
//
// Few turns draw together and are told together: drawn one after another they keep one core busy
// and the others waiting, a fifth of a small model's step where each takes 28 us. Many turns draw
// one by one: there the others' core is busy telling them, which takes longer than drawing, and a
// token drawn ahead of that would only be told late.
//
// Engine thread only. Nothing allocates after _init.
#pragma once
#include "base/clock.h"
#include "engine/run/sampler.h"
#include "kernels/backend.h"

enum { DRAWN_TOGETHER = 8 }; // tokens; told at 40 us each, the last is within 0.4 ms

struct drawing {
    int32_t seq; // whose, by the caller's count
    struct sampler *sampler;
    const float *logits; // (n_vocab) in host memory
    int64_t position;
    // what came of it
    int rc;
    struct sampled drawn;
    int64_t time_us; // when
    struct err err;  // where rc < 0
};

struct drawings {
    struct drawing of[DRAWN_TOGETHER];
    struct sampler_work works[DRAWN_TOGETHER]; // [i]: of[i]'s
    const struct clock *clock;
    int n;
};

int drawings_init(struct drawings *d, int32_t n_vocab, struct err *err); // E_NOMEM
void drawings_release(struct drawings *d); // of a zeroed or released one: nothing

// How many of a step's turns are to be gathered for one run.
int drawings_together(int32_t n_turns);
void drawings_add(struct drawings *d, int32_t seq, struct sampler *s, const float *logits,
                  int64_t position);
void drawings_run(struct drawings *d, struct backend *be, const struct clock *clock);
