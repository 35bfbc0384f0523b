// kv_check(): recomputes the counts of pool and rings from each other. It uses the window rule, not
// ring.c's arithmetic, so that it can find errors in ring.c.
#include "kvcache/check.h"

#include <stdbool.h>
#include <stdlib.h>

struct check {
    int32_t *holders; // (n_blocks) rings that hold the block
    size_t *seen;     // (n_blocks) 1 + the ring that held it last: finds a block twice in one ring
    bool *is_free;    // (n_blocks)
};

// What the window rule says of the group, found without ring.c: the ring's shape and the window of the
// model's layers decide.
struct rule {
    int64_t memory_len, sink_len, window; // window 0: none
};

// Whether the next token, at t = n_tokens, which also sees itself, sees p. Later tokens need no position
// that it does not need.
static bool position_needed(const struct rule *w, int64_t t, int64_t p) {
    if (w->window > 0 && p <= t - w->window) return false;
    return p <= t && (p < w->sink_len || p > t - (w->memory_len - w->sink_len));
}

static bool block_needed(const struct rule *w, int64_t n_sink_blocks, int64_t b, int64_t t,
                         int64_t logical) {
    // Sink blocks stay whole: each holds a sink position for good.
    if (logical < n_sink_blocks) return true;
    for (int64_t p = logical * b; p < (logical + 1) * b; p++)
        if (position_needed(w, t, p)) return true;
    return false;
}

static int group_check(const struct kv_ring *r, size_t i, int32_t g, int32_t *wanted,
                       struct err *err) {
    int64_t b = r->block_tokens, n_logical = (r->n_tokens + b - 1) / b;
    const struct kv_map *m = &r->maps[g];
    bool own_window =
        r->reach[g].run < r->memory_len - r->sink_len || r->reach[g].sink_len < r->sink_len;
    const struct rule rule = {r->memory_len, r->sink_len, own_window ? r->reach[g].run : 0};
    for (int64_t l = 0; l < n_logical; l++) {
        if (!block_needed(&rule, own_window ? 0 : m->n_sink_blocks, b, r->n_tokens, l)) continue;
        (*wanted)++;
        if (m->blocks[kv_map_slot(m, l * b)] < 0)
            return err_set(err, E_INTERNAL, "ring %zu of %lld tokens lacks block %lld of group %d",
                           i, (long long)r->n_tokens, (long long)l, g);
    }
    return 0;
}

static int ring_check(const struct kv_pool *pool, const struct kv_ring *r, size_t i,
                      struct check *c, struct err *err) {
    int32_t held = 0, wanted = 0;
    if (r->pool != pool) return err_set(err, E_INTERNAL, "ring %zu belongs to another pool", i);
    for (int32_t g = 0; g < r->n_groups; g++)
        if (r->maps[g].blocks != r->blocks + r->reach[g].first_slot)
            return err_set(err, E_INTERNAL, "ring %zu maps another ring in group %d", i, g);
    for (int32_t s = 0; s < r->n_slots; s++) {
        int32_t id = r->blocks[s];
        if (id < 0) continue;
        if (id >= pool->n_blocks)
            return err_set(err, E_INTERNAL, "ring %zu holds block %d of %d", i, id, pool->n_blocks);
        if (pool->tags[id] != r->tag)
            return err_set(err, E_INTERNAL, "ring %zu holds block %d, which is not its group's", i,
                           id);
        if (c->seen[id] == i + 1)
            return err_set(err, E_INTERNAL, "ring %zu holds block %d twice", i, id);
        c->seen[id] = i + 1;
        c->holders[id]++;
        held++;
    }
    if (held != r->n_held)
        return err_set(err, E_INTERNAL, "ring %zu holds %d blocks and says %d", i, held, r->n_held);
    for (int32_t g = 0; g < r->n_groups; g++) TRY(group_check(r, i, g, &wanted, err));
    if (wanted == held) return 0;
    return err_set(err, E_INTERNAL, "ring %zu of %lld tokens holds %d blocks where %d are needed",
                   i, (long long)r->n_tokens, held, wanted);
}

static int pool_check(const struct kv_pool *pool, struct check *c, struct err *err) {
    if (pool->n_free < 0 || pool->n_free > pool->n_blocks) {
        return err_set(err, E_INTERNAL, "the pool says %d of %d blocks are free", pool->n_free,
                       pool->n_blocks);
    }
    for (int32_t i = 0; i < pool->n_free; i++) {
        int32_t id = kv_pool_free_block(pool, i);
        if (id < 0 || id >= pool->n_blocks || c->is_free[id]) {
            return err_set(err, E_INTERNAL, "block %d is in the free list twice or does not exist",
                           id);
        }
        c->is_free[id] = true;
    }
    int64_t extra = 0;
    for (int32_t id = 0; id < pool->n_blocks; id++) {
        extra += c->holders[id] > 1 ? c->holders[id] - 1 : 0;
        if (pool->refs[id] != c->holders[id]) {
            return err_set(err, E_INTERNAL, "block %d counts %d holders and has %d", id,
                           pool->refs[id], c->holders[id]);
        }
        if (c->is_free[id] != (c->holders[id] == 0)) {
            return err_set(err, E_INTERNAL, "block %d has %d holders and is %s the free list", id,
                           c->holders[id], c->is_free[id] ? "in" : "not in");
        }
    }
    if (extra == pool->n_extra) return 0;
    return err_set(err, E_INTERNAL, "%lld holders share blocks and the pool says %lld",
                   (long long)extra, (long long)pool->n_extra);
}

// Every name leads to its block, no two blocks have one, and no free block has any.
static int names_check(const struct kv_pool *pool, const struct check *c, struct err *err) {
    const struct kv_names *k = &pool->names;
    int64_t named = 0, listed = 0;
    for (int32_t id = 0; id < pool->n_blocks; id++) {
        if (!kv_names_has(k, id)) continue;
        named++;
        if (c->is_free[id]) return err_set(err, E_INTERNAL, "block %d is free and has a name", id);
        if (kv_names_find(k, k->names[id]) != id)
            return err_set(err, E_INTERNAL, "block %d is not found by its name", id);
    }
    for (uint32_t i = 0; i <= k->mask; i++) {
        for (int32_t id = kv_names_first(k, i); id >= 0 && listed <= named;
             id = kv_names_after(k, id))
            listed++;
    }
    if (named == listed) return 0;
    return err_set(err, E_INTERNAL, "%lld blocks have a name and %lld are in the table",
                   (long long)named, (long long)listed);
}

int kv_check(const struct kv_pool *pool, const struct kv_ring *const *rings, size_t n_rings,
             struct err *err) {
    int rc = 0;
    size_t n = (size_t)pool->n_blocks;
    struct check c = {.holders = calloc(n, sizeof *c.holders),
                      .seen = calloc(n, sizeof *c.seen),
                      .is_free = calloc(n, sizeof *c.is_free)};
    if (!c.holders || !c.seen || !c.is_free) {
        rc = err_set(err, E_NOMEM, "no memory to check %d blocks", pool->n_blocks);
    }
    for (size_t i = 0; rc == 0 && i < n_rings; i++) rc = ring_check(pool, rings[i], i, &c, err);
    if (rc == 0) rc = pool_check(pool, &c, err);
    if (rc == 0) rc = names_check(pool, &c, err);
    free(c.is_free);
    free(c.seen);
    free(c.holders);
    return rc;
}
