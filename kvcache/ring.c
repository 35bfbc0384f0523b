// The ring of one sequence.
//
// Its blocks are a function of its shape and n_tokens: the sink blocks that have been written, and
// every block with a position that the next token, at t = n_tokens, may see:
// p > t - (memory_len - sink_len), p < t. extend() adds the blocks of the next step, commit() moves
// n_tokens and gives back what the window has passed. The ring has as many slots as the widest step
// can touch: from the window of the step's first token up to the step's last token.
#include "kvcache/ring.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int64_t min_i64(int64_t a, int64_t b) {
    return a < b ? a : b;
}
static int64_t max_i64(int64_t a, int64_t b) {
    return a > b ? a : b;
}
static int64_t ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

// The number of slots for the sinks and for the ring.
static void count_slots(const struct kv_ring_shape *s, int64_t *n_sink, int64_t *n_ring) {
    int64_t total = ceil_div(max_i64(s->session_len, 1), s->block_tokens);
    *n_sink = min_i64(ceil_div(s->sink_len, s->block_tokens), total);
    // A run of L positions touches at most (L + block - 2) / block + 1 blocks, however it lies.
    int64_t run = (int64_t)s->memory_len - s->sink_len + s->chunk_tokens - 1;
    *n_ring = min_i64((run + s->block_tokens - 2) / s->block_tokens + 1, total - *n_sink);
}

int32_t kv_ring_max_blocks(const struct kv_ring_shape *s) {
    int64_t n_sink, n_ring;
    count_slots(s, &n_sink, &n_ring);
    return (int32_t)min_i64(n_sink + n_ring, INT32_MAX);
}

int kv_ring_init(struct kv_ring *r, struct kv_pool *pool, const struct kv_ring_shape *s,
                 struct err *err) {
    *r = (struct kv_ring){0};
    if (s->block_tokens < 1 || (s->block_tokens & (s->block_tokens - 1)) != 0) {
        return err_set(err, E_INVAL, "a cache block holds a power of two tokens, not %d",
                       s->block_tokens);
    }
    if (s->sink_len < 0 || s->sink_len >= s->memory_len || s->chunk_tokens < 1 ||
        s->session_len < 1) {
        return err_set(err, E_INVAL, "no cache of memory_len %d, sink_len %d, chunks of %d",
                       s->memory_len, s->sink_len, s->chunk_tokens);
    }
    int64_t n_sink, n_ring;
    count_slots(s, &n_sink, &n_ring);
    n_ring = max_i64(n_ring, 1);
    r->blocks = malloc((size_t)(n_sink + n_ring) * sizeof *r->blocks);
    if (!r->blocks)
        return err_set(err, E_NOMEM, "no memory for a ring of %lld blocks",
                       (long long)(n_sink + n_ring));
    for (int64_t i = 0; i < n_sink + n_ring; i++) r->blocks[i] = -1;
    r->pool = pool;
    r->map = (struct kv_map){.blocks = r->blocks,
                             .n_sink_blocks = (int32_t)n_sink,
                             .n_ring_blocks = (int32_t)n_ring,
                             .block_tokens = s->block_tokens};
    r->memory_len = s->memory_len;
    r->sink_len = s->sink_len;
    r->first_held = n_sink * s->block_tokens;
    return 0;
}

static void slot_drop(struct kv_ring *r, int32_t slot) {
    if (r->blocks[slot] < 0) return;
    kv_pool_unref(r->pool, r->blocks[slot]);
    r->blocks[slot] = -1;
    r->n_held--;
}

static void ring_clear(struct kv_ring *r) {
    for (int32_t i = 0; i < r->map.n_sink_blocks + r->map.n_ring_blocks; i++) slot_drop(r, i);
    r->n_tokens = 0;
    r->first_held = (int64_t)r->map.n_sink_blocks * r->map.block_tokens;
}

void kv_ring_release(struct kv_ring *r) {
    if (r->blocks) ring_clear(r);
    free(r->blocks);
    *r = (struct kv_ring){0};
}

int32_t kv_ring_count(const struct kv_ring *r) {
    struct kv_pool *p = r->pool;
    int32_t n = 0;
    if (r->n_held == 0 || p->n_extra == 0) return r->n_held;
    for (int32_t i = 0, left = r->n_held; left > 0; i++) {
        int32_t block = r->blocks[i];
        left -= block >= 0;
        if (block < 0 || p->counted[block] == p->count) continue;
        p->counted[block] = p->count;
        n++;
    }
    return n;
}

// First position past the sink blocks that a token at t, or one after it, may see; a block's start.
static int64_t first_needed(const struct kv_ring *r, int64_t t) {
    int64_t block = r->map.block_tokens;
    int64_t oldest = t - ((int64_t)r->memory_len - r->sink_len) + 1;
    int64_t sinks_end = r->map.n_sink_blocks * block;
    return oldest > sinks_end ? oldest / block * block : sinks_end;
}

static int32_t block_take(struct kv_ring *r) {
    int32_t block = kv_pool_take(r->pool);
    r->pool->tags[block] = r->tag;
    return block;
}

int kv_ring_extend(struct kv_ring *r, int32_t n, int (*copy)(void *ctx, int32_t dst, int32_t src),
                   void *ctx) {
    assert(n >= 1);
    int64_t block = r->map.block_tokens;
    int64_t first = r->n_tokens / block, last = (r->n_tokens + n - 1) / block;
    assert(last - max_i64(first_needed(r, r->n_tokens) / block, r->map.n_sink_blocks) <
           r->map.n_ring_blocks);

    // Only the first block can have written positions already, so only that one can be shared.
    int32_t slot = kv_map_slot(&r->map, r->n_tokens);
    bool shared = r->blocks[slot] >= 0 && r->pool->refs[r->blocks[slot]] > 1;
    int32_t need = shared;
    for (int64_t l = first; l <= last; l++) {
        need += r->blocks[kv_map_slot(&r->map, l * block)] < 0;
    }
    if (need > r->pool->n_free) return E_NOMEM;

    if (shared) {
        int32_t own = block_take(r), theirs = r->blocks[slot];
        int rc = copy ? copy(ctx, own, theirs) : E_INTERNAL;
        if (rc < 0) {
            kv_pool_unref(r->pool, own);
            return rc;
        }
        kv_pool_unref(r->pool, theirs);
        r->blocks[slot] = own;
    }
    // A block that was cut and is written again no longer has its name's contents.
    if (r->blocks[slot] >= 0) kv_names_drop(&r->pool->names, r->blocks[slot]);
    for (int64_t l = first; l <= last; l++) {
        int32_t at = kv_map_slot(&r->map, l * block);
        if (r->blocks[at] >= 0) continue;
        r->blocks[at] = block_take(r);
        r->n_held++;
    }
    return 0;
}

void kv_ring_unextend(struct kv_ring *r, int32_t n) {
    int64_t block = r->map.block_tokens;
    for (int64_t p = ceil_div(r->n_tokens, block) * block; p < r->n_tokens + n; p += block)
        slot_drop(r, kv_map_slot(&r->map, p));
}

void kv_ring_commit(struct kv_ring *r, int32_t n) {
    r->n_tokens += n;
    int64_t needed = first_needed(r, r->n_tokens);
    // Blocks past n_tokens have not been taken.
    for (int64_t p = r->first_held; p < min_i64(needed, r->n_tokens); p += r->map.block_tokens) {
        slot_drop(r, kv_map_slot(&r->map, p));
    }
    r->first_held = needed;
}

int kv_ring_truncate(struct kv_ring *r, int64_t n) {
    assert(n >= 0);
    // Also after an extend() without its commit(): then n_tokens does not cover all blocks.
    if (n > 0 && n >= r->n_tokens) return 0;
    if (n == 0 || first_needed(r, n) < r->first_held) {
        ring_clear(r);
        return n == 0 ? 0 : KV_GONE;
    }
    int64_t block = r->map.block_tokens;
    for (int64_t l = ceil_div(n, block); l <= (r->n_tokens - 1) / block; l++) {
        slot_drop(r, kv_map_slot(&r->map, l * block));
    }
    r->n_tokens = n;
    return 0;
}

// Takes the other's block of position p too.
static void slot_share(struct kv_ring *to, const struct kv_ring *from, int64_t p) {
    int32_t slot = kv_map_slot(&to->map, p), block = from->blocks[slot];
    assert(block >= 0 && to->blocks[slot] < 0);
    kv_pool_ref(to->pool, block);
    to->blocks[slot] = block;
    to->n_held++;
}

int kv_ring_fork(struct kv_ring *to, const struct kv_ring *from, int64_t n, struct err *err) {
    assert(n >= 0 && n <= from->n_tokens);
    *to = (struct kv_ring){0};
    int64_t block = from->map.block_tokens, window = first_needed(from, n);
    if (window < from->first_held) return KV_GONE;
    size_t n_slots = (size_t)from->map.n_sink_blocks + (size_t)from->map.n_ring_blocks;
    int32_t *blocks = malloc(n_slots * sizeof *blocks);
    if (!blocks) return err_set(err, E_NOMEM, "no memory for a ring of %zu blocks", n_slots);
    for (size_t i = 0; i < n_slots; i++) blocks[i] = -1;
    *to = *from;
    to->blocks = blocks;
    to->map.blocks = blocks;
    to->n_held = 0;
    to->n_tokens = n;
    to->first_held = window;
    for (int64_t l = 0; l < from->map.n_sink_blocks && l * block < n; l++)
        slot_share(to, from, l * block);
    for (int64_t p = window; p < n; p += block) slot_share(to, from, p);
    return 0;
}

static int32_t n_slots(const struct kv_ring *r) {
    return r->map.n_sink_blocks + r->map.n_ring_blocks;
}

int kv_ring_init_like(struct kv_ring *r, const struct kv_ring *like, struct err *err) {
    size_t n = (size_t)n_slots(like);
    int32_t *blocks = malloc(n * sizeof *blocks);
    *r = (struct kv_ring){0};
    if (!blocks) return err_set(err, E_NOMEM, "no memory for a ring of %zu blocks", n);
    for (size_t i = 0; i < n; i++) blocks[i] = -1;
    *r = *like;
    r->map.blocks = r->blocks = blocks;
    r->n_held = 0;
    ring_clear(r);
    return 0;
}

void kv_ring_share(struct kv_ring *to, const struct kv_ring *from) {
    assert(to != from && n_slots(to) == n_slots(from));
    // Holders first: `to` may hold the same blocks.
    for (int32_t i = 0; i < n_slots(from); i++)
        if (from->blocks[i] >= 0) kv_pool_ref(to->pool, from->blocks[i]);
    ring_clear(to);
    memcpy(to->blocks, from->blocks, (size_t)n_slots(from) * sizeof *to->blocks);
    to->tag = from->tag;
    to->n_held = from->n_held;
    to->n_tokens = from->n_tokens;
    to->first_held = from->first_held;
}

int64_t kv_ring_holds(const struct kv_ring *shape, int64_t n, int64_t i) {
    int64_t block = shape->map.block_tokens, window = first_needed(shape, n);
    int64_t n_sink = min_i64(ceil_div(n, block), shape->map.n_sink_blocks);
    int64_t n_window = n > window ? ceil_div(n - window, block) : 0;
    if (i < n_sink) return i;
    return i < n_sink + n_window ? window / block + i - n_sink : -1;
}

int kv_ring_restore(struct kv_ring *r, int64_t n) {
    assert(n >= 1 && r->n_tokens == 0 && r->n_held == 0);
    int64_t held = 0, block = r->map.block_tokens;
    while (kv_ring_holds(r, n, held) >= 0) held++;
    if (held > r->pool->n_free) return E_NOMEM;
    for (int64_t i = 0; i < held; i++)
        r->blocks[kv_map_slot(&r->map, kv_ring_holds(r, n, i) * block)] = block_take(r);
    r->n_held = (int32_t)held;
    r->n_tokens = n;
    r->first_held = first_needed(r, n);
    return 0;
}

bool kv_ring_sound(const struct kv_ring *r) {
    int32_t n = r->map.n_sink_blocks + r->map.n_ring_blocks, left = r->n_held;
    // Called in every step, so a short log in a long ring must cost only its own blocks.
    for (int32_t i = 0; i < n && left > 0; i++) {
        int32_t block = r->blocks[i];
        if (block < 0) continue;
        left--;
        if (r->pool->refs[block] < 1 || r->pool->tags[block] != r->tag) return false;
    }
    return left == 0;
}

// --- equal blocks --------------------------------------------------------------------------------

static int32_t find_equal(const struct kv_ring *r, struct hash128 name) {
    int32_t block = kv_names_find(&r->pool->names, name);
    // The name contains the tag; it is compared nonetheless.
    return block >= 0 && r->pool->tags[block] == r->tag ? block : -1;
}

void kv_ring_name(struct kv_ring *r, int64_t p, struct hash128 name) {
    int64_t sinks_end = (int64_t)r->map.n_sink_blocks * r->map.block_tokens;
    assert(p % r->map.block_tokens == 0 && p + r->map.block_tokens <= r->n_tokens);
    if (p >= sinks_end && p < r->first_held) return;
    int32_t slot = kv_map_slot(&r->map, p), own = r->blocks[slot];
    if (kv_names_has(&r->pool->names, own)) return; // adopted, or named in an earlier turn
    int32_t equal = find_equal(r, name);
    if (equal < 0) {
        kv_names_put(&r->pool->names, own, name);
        return;
    }
    kv_pool_ref(r->pool, equal);
    kv_pool_unref(r->pool, own);
    r->blocks[slot] = equal;
}

// Looks up the blocks of logical numbers [from, from + n) into found, -1 for none. Returns the block
// count of the longest log whose needed blocks (sinks and window) all exist.
static int64_t find_run(const struct kv_ring *r, struct hash128 name, const int32_t *ids,
                        int64_t from, int64_t n, int32_t *found) {
    int64_t b = r->map.block_tokens, best = from;
    // First block of the run without a gap that ends here. r's own blocks count as present: a longer
    // log needs no more of them than r holds.
    int64_t run = 0;
    int64_t last_window = first_needed(r, (from + n) * b) / b;
    for (int64_t l = from; l < from + n; l++) {
        name = kv_name_next(&r->pool->names, name, ids + l * b, (int32_t)b);
        found[l - from] = find_equal(r, name);
        if (found[l - from] >= 0) {
            if (run <= first_needed(r, (l + 1) * b) / b) best = l + 1;
            continue;
        }
        if (l < r->map.n_sink_blocks || l >= last_window) break; // every longer log needs this one
        run = l + 1;
    }
    return best;
}

int64_t kv_ring_adopt(struct kv_ring *r, struct hash128 name, const int32_t *ids, int64_t n_most) {
    int64_t b = r->map.block_tokens, had = r->n_tokens, from = had / b, n = n_most / b - from;
    if (n <= 0) return 0;
    int32_t *found = malloc((size_t)n * sizeof *found);
    if (!found) return 0;
    int64_t best = find_run(r, name, ids, from, n, found);
    if (best > from) {
        int64_t window = first_needed(r, best * b), sinks = r->map.n_sink_blocks;
        // Holders first: r may give up the block that it takes.
        for (int64_t l = from; l < best; l++) {
            if (l < sinks || l * b >= window) kv_pool_ref(r->pool, found[l - from]);
        }
        if (had % b != 0) slot_drop(r, kv_map_slot(&r->map, had));
        for (int64_t p = r->first_held; p < min_i64(window, from * b); p += b)
            slot_drop(r, kv_map_slot(&r->map, p));
        for (int64_t l = from; l < best; l++) {
            if (l >= sinks && l * b < window) continue;
            int32_t slot = kv_map_slot(&r->map, l * b);
            assert(r->blocks[slot] < 0);
            r->blocks[slot] = found[l - from];
            r->n_held++;
        }
        r->n_tokens = best * b;
        r->first_held = window;
    }
    free(found);
    return r->n_tokens - had;
}
