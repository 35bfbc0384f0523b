// Sequences that generate, record their logits, and are compared bit for bit with a fresh sequence
// of the same log.
#pragma once
#include "tests/golden/random_log.h"

enum { LINE_SINKS = 4 };

struct line { // one sequence as its owner sees it
    uint64_t sequence, group;
    int32_t log[MAX_LOG];
    int64_t n, n_done; // tokens; those that a turn has seen
    struct rows rows;  // of its logits, as they came
};

static struct outcome out; // of the last turn

// A turn over the log that draws n tokens, which are appended.
static inline void go_on(struct engine *e, struct line *l, int32_t draw, int32_t memory_len) {
    struct engine_turn t = turn_for(e, l->sequence, l->log, l->n, memory_len, LINE_SINKS);
    struct engine_event ev;
    t.share_group = l->group;
    t.n_input = l->n - l->n_done;
    t.sampling.max_tokens = draw;
    t.sampling.temperature = 0.8f;
    t.sampling.seed = l->sequence * 1000 + (uint64_t)l->n;
    t.sampling.has_seed = true;
    t.on_logits = rows_keep;
    t.on_logits_ctx = &l->rows;
    memset(&out, 0, sizeof out);
    submit(e, &t);
    for (int rounds = 0; !out.done; rounds++) {
        assert_true(rounds < 10 * MAX_LOG);
        assert_true(engine_round(e));
        while (engine_poll(e, &ev) == 1) {
            if (ev.kind == ENGINE_RELEASED && ev.sequence != l->sequence) continue;
            if (ev.kind == ENGINE_FORKED) continue;
            assert_int_equal(ev.sequence, l->sequence);
            outcome_take(&out, &ev);
        }
    }
    assert_int_equal(out.finish, FINISH_LENGTH);
    memcpy(l->log + l->n, out.ids, (size_t)out.n * sizeof *out.ids);
    l->n_done = l->n += out.n;
}

static inline void hear(const struct engine *e, struct line *l, int64_t n) { // n tokens of input
    random_log(e, l->log + l->n, n);
    l->n += n;
}

// The line's log once more, all of it from an empty cache: positions [from, n - 1) have the same
// bits.
static inline void compare_fresh(struct engine *e, const struct line *l, int64_t from,
                                 int32_t memory_len) {
    struct rows want = rows_new(e->info.n_vocab);
    struct engine_turn t = turn_for(e, 999, l->log, l->n, memory_len, LINE_SINKS);
    t.score_only = true;
    t.on_logits = rows_keep;
    t.on_logits_ctx = &want;
    run_turn(e, &t, &out);
    assert_int_equal(out.n_cached, 0);
    size_t row = (size_t)want.vocab * sizeof(float);
    for (int64_t p = from; p < l->n - 1; p++) {
        if (memcmp(want.data + p * want.vocab, l->rows.data + p * want.vocab, row) != 0)
            fail_msg("sequence %d: position %lld has other bits", (int)l->sequence, (long long)p);
    }
    free(want.data);
    release(e, 999);
}
