// A sampler over logits that a test sets, shared by the tests of draws and of edges.
#pragma once
#include "base/philox.h"
#include "engine/run/sampler.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_VOCAB = 6000 };

struct bench {
    struct sampler s;
    struct sampler_work w;
    struct sampling_params p;
    struct err err;
    int32_t n_vocab;
    float logits[MAX_VOCAB], probs[MAX_VOCAB];
};
static struct bench b;

static inline void set_up(int32_t n_vocab) {
    sampler_release(&b.s);
    sampler_work_release(&b.w);
    memset(&b.err, 0, sizeof b.err);
    b.n_vocab = n_vocab;
    sampling_params_init(&b.p);
    b.p.seed = 7;
    assert_int_equal(sampler_init(&b.s, n_vocab, &b.err), 0);
    assert_int_equal(sampler_work_init(&b.w, n_vocab, &b.err), 0);
}

static inline int tear_down(void **state) {
    sampler_release(&b.s);
    sampler_work_release(&b.w);
    return 0;
}

// Sums of three uniforms: roughly normal, between -3 and 3 times the spread.
static inline void fill(float spread, uint64_t seed) {
    for (int32_t i = 0; i < b.n_vocab; i++) {
        float u = 0;
        for (uint32_t k = 0; k < 3; k++) u += 2 * philox_uniform(seed, (uint64_t)i, k) - 1;
        b.logits[i] = u * spread;
    }
}

static inline void begin(const int32_t *eos, int32_t n_eos, const int32_t *log, int64_t n_log) {
    assert_int_equal(sampling_params_check(&b.p, b.n_vocab, &b.err), 0);
    assert_int_equal(sampler_begin(&b.s, &b.p, 0, eos, n_eos, log, n_log, &b.err), 0);
}

static inline struct sampled draw_at(int64_t position) {
    struct sampled out;
    if (sampler_draw(&b.s, &b.w, b.logits, position, &out, &b.err) != 0) fail_msg("%s", b.err.text);
    return out;
}

static inline void probabilities(void) {
    if (sampler_probabilities(&b.s, &b.w, b.logits, b.probs, &b.err) != 0)
        fail_msg("%s", b.err.text);
}

static inline int32_t survivors(void) {
    int32_t n = 0;
    for (int32_t i = 0; i < b.n_vocab; i++) n += b.probs[i] > 0;
    return n;
}
