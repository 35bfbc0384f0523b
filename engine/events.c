// See events.h.
#include "engine/events.h"

struct engine_event *event_begin(struct emitter *e, enum engine_event_kind kind, uint64_t sequence,
                                 uint64_t turn) {
    struct engine_event *ev = &e->events[e->n_held];
    // The two arrays are only read up to their counts: no need to clear them 1,000 times a second
    // for each sequence.
    ev->kind = kind;
    ev->sequence = sequence;
    ev->turn = turn;
    ev->time_us = clock_mono_us(e->clock);
    ev->id = -1;
    ev->branch = 0;
    ev->has_context_logprob = false;
    ev->context_embedding = NULL;
    ev->scores = NULL;
    ev->branches = NULL;
    ev->logprob = 0;
    ev->n_alternatives = 0;
    ev->text_len = 0;
    ev->n_cached = ev->n_shared = ev->n_done = ev->n_total = 0;
    ev->source = CACHE_NONE;
    ev->finish = FINISH_EOS;
    ev->error_code = 0;
    ev->queue_us = ev->prefill_us = ev->decode_us = ev->paused_us = 0;
    ev->n_prefilled = ev->n_generated = 0;
    ev->why = RELEASE_ASKED;
    ev->resume_us = 0;
    ev->parked = ev->snapshot = false;
    ev->snapshot_name[0] = ev->snapshot_name[1] = 0;
    ev->blocks = 0;
    ev->cache = NULL;
    return ev;
}

// E_CLOSED only comes when the owner no longer listens (engine_close has drained the queue).
static void push_held(struct emitter *e) {
    if (e->sink)
        e->sink(e->sink_ctx, e->events, (size_t)e->n_held);
    else
        (void)queue_push_all(e->queue, e->events, (size_t)e->n_held);
    e->n_held = 0;
}

void event_push(struct emitter *e) {
    e->n_held++;
    if (!e->holds || e->n_held == EMIT_TOGETHER) push_held(e);
}

void emit_hold(struct emitter *e) {
    e->holds = true;
}

void emit_let_go(struct emitter *e) {
    e->holds = false;
    push_held(e);
}

void emit_forked(struct emitter *e, uint64_t sequence, int64_t n_cached, int32_t blocks,
                 bool parked) {
    struct engine_event *ev = event_begin(e, ENGINE_FORKED, sequence, 0);
    ev->n_cached = n_cached;
    ev->blocks = blocks;
    ev->parked = parked;
    event_push(e);
}

void emit_parked(struct emitter *e, uint64_t sequence, enum engine_release why,
                 int32_t host_blocks) {
    struct engine_event *ev = event_begin(e, ENGINE_PARKED, sequence, 0);
    ev->why = why;
    ev->blocks = host_blocks;
    ev->parked = true;
    event_push(e);
}

void emit_exported(struct emitter *e, uint64_t sequence, struct packed_cache *cache,
                   int32_t blocks) {
    struct engine_event *ev = event_begin(e, ENGINE_EXPORTED, sequence, 0);
    ev->cache = cache;
    ev->blocks = blocks;
    event_push(e);
}

void emit_released(struct emitter *e, uint64_t sequence, enum engine_release why, int32_t blocks,
                   bool has_snapshot) {
    struct engine_event *ev = event_begin(e, ENGINE_RELEASED, sequence, 0);
    ev->why = why;
    ev->blocks = blocks;
    ev->snapshot = has_snapshot;
    event_push(e);
}

void emit_snapshot(struct emitter *e, struct hash128 name, bool present) {
    struct engine_event *ev = event_begin(e, ENGINE_SNAPSHOT, 0, 0);
    ev->snapshot_name[0] = name.lo;
    ev->snapshot_name[1] = name.hi;
    ev->snapshot = present;
    event_push(e);
}
