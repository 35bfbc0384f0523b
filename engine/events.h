// Events on their way to the owner. If the queue is full, the engine's thread waits for room: no event
// is dropped. Events between emit_hold and emit_let_go are pushed together, because each wake-up of
// the owner can take a core from the step. Engine thread only.
#pragma once
#include "base/clock.h"
#include "base/queue.h"
#include "base/siphash.h"
#include "engine/engine.h"

enum { EMIT_TOGETHER = 16 }; // events; more go in several parts

struct emitter {
    struct queue *queue; // of struct engine_event
    const struct clock *clock;
    // Takes the events instead of the queue, and what they own. NULL: none.
    void (*sink)(void *ctx, struct engine_event *events, size_t n);
    void *sink_ctx;
    bool holds;
    int n_held;
    // The held events, then the one being made: too large to be zeroed on the stack in each step.
    struct engine_event events[EMIT_TOGETHER];
};

// Holds events until emit_let_go, or until there are EMIT_TOGETHER. Hold them only while making them.
void emit_hold(struct emitter *e);
void emit_let_go(struct emitter *e);

// The next event, emptied, for the caller to fill; then pushes it.
struct engine_event *event_begin(struct emitter *e, enum engine_event_kind kind, uint64_t sequence,
                                 uint64_t turn);
void event_push(struct emitter *e);

// --- of caches; those of turns are in engine/run/emit.h

// The arguments are fields of struct engine_event, where they are described. The receiver of the event
// frees `cache`.
void emit_parked(struct emitter *e, uint64_t sequence, enum engine_release why,
                 int32_t host_blocks);
void emit_forked(struct emitter *e, uint64_t sequence, int64_t n_cached, int32_t blocks,
                 bool parked);
void emit_exported(struct emitter *e, uint64_t sequence, struct packed_cache *cache,
                   int32_t blocks);
void emit_released(struct emitter *e, uint64_t sequence, enum engine_release why, int32_t blocks,
                   bool has_snapshot);
void emit_snapshot(struct emitter *e, struct hash128 name, bool present);
