// Events on their way to the owner: filled in, text cut into pieces on character borders, pushed.
// Where the owner lags and the queue is full, the engine's thread waits for room: nothing is ever
// dropped. What happens at one time is told at one time, between emit_hold and emit_let_go: a
// listener that is woken for each token of a step takes a core from the step as often. Engine
// thread only.
#pragma once
#include "base/clock.h"
#include "base/queue.h"
#include "base/siphash.h"
#include "engine/run/sampler.h"
#include "engine/run/turn.h"

enum { EMIT_TOGETHER = 16 }; // events; more go in several parts

struct emitter {
    struct queue *queue; // of struct engine_event
    const struct clock *clock;
    bool holds;
    int n_held;
    // Those held, and behind them the one being made: too large for a step's stack to be zeroed
    // each time.
    struct engine_event events[EMIT_TOGETHER];
};

// Events stay here from now on, until emit_let_go or there are EMIT_TOGETHER of them. Not for
// longer than it takes to make them: nobody else lets them go.
void emit_hold(struct emitter *e);
void emit_let_go(struct emitter *e);

void emit_started(struct emitter *e, const struct turn *t, enum engine_cache_source source,
                  int64_t n_total, int32_t blocks);
void emit_progress(struct emitter *e, const struct turn *t, int64_t n_done, int64_t n_total);
// text may be longer than an event holds: continuations follow.
void emit_token(struct emitter *e, const struct turn *t, const struct sampled *s, const char *text,
                size_t len);
// why: with FINISH_ERROR, its code and sentence; otherwise ignored.
void emit_done(struct emitter *e, const struct turn *t, enum engine_finish finish,
               const struct err *why, const char *text, size_t len, int32_t blocks, bool parked);
void emit_parked(struct emitter *e, uint64_t sequence, enum engine_release why,
                 int32_t host_blocks);
void emit_forked(struct emitter *e, uint64_t sequence, int64_t n_cached, int32_t blocks,
                 bool parked);
void emit_released(struct emitter *e, uint64_t sequence, enum engine_release why, int32_t blocks,
                   bool filed);
void emit_snapshot(struct emitter *e, struct hash128 name, bool present);
