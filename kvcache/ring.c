// The ring of one sequence.
//
// Its blocks are a function of its shape and n_tokens: of each group the sink blocks that have been
// written, and every block with a position that the next token, at t = n_tokens, may see:
// p > t - run, p < t, where run is memory_len - sink_len or the group's window. extend() adds the blocks of the next step, commit() moves
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

// What group g of a ring of this shape needs.
static struct kv_reach reach_of(const struct kv_ring_shape *s, int32_t g) {
    int32_t window = s->groups ? s->groups->group[g].window : 0;
    struct kv_reach r = {.sink_len = s->sink_len, .run = s->memory_len - s->sink_len};
    // A window that is the stricter hides the sinks that it has passed.
    if (window > 0 && window <= r.run) r = (struct kv_reach){.run = window};
    return r;
}

static int32_t n_groups(const struct kv_ring_shape *s) {
    return s->groups ? s->groups->n : 1;
}

// The number of a group's slots for the sinks and for the ring.
static void count_slots(const struct kv_ring_shape *s, const struct kv_reach *reach,
                        int64_t *n_sink, int64_t *n_ring) {
    int64_t total = ceil_div(max_i64(s->session_len, 1), s->block_tokens);
    *n_sink = min_i64(ceil_div(reach->sink_len, s->block_tokens), total);
    // A run of L positions touches at most (L + block - 2) / block + 1 blocks, however it lies.
    int64_t run = (int64_t)reach->run + s->chunk_tokens - 1;
    *n_ring = min_i64((run + s->block_tokens - 2) / s->block_tokens + 1, total - *n_sink);
}

int32_t kv_ring_max_blocks(const struct kv_ring_shape *s) {
    int64_t n = 0;
    for (int32_t g = 0; g < n_groups(s); g++) {
        struct kv_reach reach = reach_of(s, g);
        int64_t n_sink, n_ring;
        count_slots(s, &reach, &n_sink, &n_ring);
        n += n_sink + n_ring;
    }
    return (int32_t)min_i64(n, INT32_MAX);
}

// Sets the ring's blocks to an empty array, and its maps to their parts of it.
static int blocks_new(struct kv_ring *r, struct err *err) {
    r->blocks = malloc((size_t)r->n_slots * sizeof *r->blocks);
    if (!r->blocks) {
        int32_t n = r->n_slots;
        *r = (struct kv_ring){0};
        return err_set(err, E_NOMEM, "no memory for a ring of %d blocks", n);
    }
    for (int32_t i = 0; i < r->n_slots; i++) r->blocks[i] = -1;
    for (int32_t g = 0; g < r->n_groups; g++) {
        r->maps[g].blocks = r->blocks + r->reach[g].first_slot;
        r->reach[g].first_held = (int64_t)r->maps[g].n_sink_blocks * r->block_tokens;
    }
    r->n_tokens = 0;
    r->n_held = 0;
    return 0;
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
    int64_t n_slots = 0;
    for (int32_t g = 0; g < n_groups(s); g++) {
        int64_t n_sink, n_ring;
        r->reach[g] = reach_of(s, g);
        r->reach[g].first_slot = (int32_t)n_slots;
        count_slots(s, &r->reach[g], &n_sink, &n_ring);
        n_ring = max_i64(n_ring, 1);
        n_slots += n_sink + n_ring;
        if (n_slots > INT32_MAX) return err_set(err, E_INVAL, "too long a ring");
        r->maps[g] = (struct kv_map){.n_sink_blocks = (int32_t)n_sink,
                                     .n_ring_blocks = (int32_t)n_ring,
                                     .block_tokens = s->block_tokens};
    }
    r->n_groups = n_groups(s);
    r->n_slots = (int32_t)n_slots;
    r->pool = pool;
    r->block_tokens = s->block_tokens;
    r->memory_len = s->memory_len;
    r->sink_len = s->sink_len;
    return blocks_new(r, err);
}

// The slot of position p in group g, among those of the ring.
static int32_t slot_at(const struct kv_ring *r, int32_t g, int64_t p) {
    return r->reach[g].first_slot + kv_map_slot(&r->maps[g], p);
}

static void slot_drop(struct kv_ring *r, int32_t slot) {
    if (r->blocks[slot] < 0) return;
    kv_pool_unref(r->pool, r->blocks[slot]);
    r->blocks[slot] = -1;
    r->n_held--;
}

static void ring_clear(struct kv_ring *r) {
    for (int32_t i = 0; i < r->n_slots; i++) slot_drop(r, i);
    r->n_tokens = 0;
    for (int32_t g = 0; g < r->n_groups; g++)
        r->reach[g].first_held = (int64_t)r->maps[g].n_sink_blocks * r->block_tokens;
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

// First position of group g past its sink blocks that a token at t, or one after it, may see; a block's
// start.
static int64_t first_needed(const struct kv_ring *r, int32_t g, int64_t t) {
    int64_t block = r->block_tokens, oldest = t - r->reach[g].run + 1;
    int64_t sinks_end = r->maps[g].n_sink_blocks * block;
    return oldest > sinks_end ? oldest / block * block : sinks_end;
}

static int32_t block_take(struct kv_ring *r) {
    int32_t block = kv_pool_take(r->pool);
    r->pool->tags[block] = r->tag;
    return block;
}

static bool is_shared(const struct kv_ring *r, int32_t slot) {
    return r->blocks[slot] >= 0 && r->pool->refs[r->blocks[slot]] > 1;
}

// Blocks that the ring must take for positions [n_tokens, n_tokens + n).
static int64_t blocks_wanted(const struct kv_ring *r, int32_t n) {
    int64_t block = r->block_tokens, need = 0;
    for (int32_t g = 0; g < r->n_groups; g++) {
        assert((r->n_tokens + n - 1) / block -
                   max_i64(first_needed(r, g, r->n_tokens) / block, r->maps[g].n_sink_blocks) <
               r->maps[g].n_ring_blocks);
        need += is_shared(r, slot_at(r, g, r->n_tokens));
        for (int64_t p = r->n_tokens / block * block; p < r->n_tokens + n; p += block)
            need += r->blocks[slot_at(r, g, p)] < 0;
    }
    return need;
}

// Replaces a shared block by a copy of its own.
static int own_block(struct kv_ring *r, int32_t slot,
                     int (*copy)(void *ctx, int32_t dst, int32_t src), void *ctx) {
    int32_t own = block_take(r), theirs = r->blocks[slot];
    int rc = copy ? copy(ctx, own, theirs) : E_INTERNAL;
    kv_pool_unref(r->pool, rc < 0 ? own : theirs);
    if (rc >= 0) r->blocks[slot] = own;
    return rc < 0 ? rc : 0;
}

int kv_ring_extend(struct kv_ring *r, int32_t n, int (*copy)(void *ctx, int32_t dst, int32_t src),
                   void *ctx) {
    assert(n >= 1);
    int64_t block = r->block_tokens;
    if (blocks_wanted(r, n) > r->pool->n_free) return E_NOMEM;
    // Only a group's first block can have written positions already, so only that one can be shared.
    for (int32_t g = 0; g < r->n_groups; g++) {
        int32_t slot = slot_at(r, g, r->n_tokens);
        if (is_shared(r, slot)) TRY(own_block(r, slot, copy, ctx));
        // A block that was cut and is written again no longer has its name's contents.
        if (r->blocks[slot] >= 0) kv_names_drop(&r->pool->names, r->blocks[slot]);
    }
    for (int32_t g = 0; g < r->n_groups; g++) {
        for (int64_t p = r->n_tokens / block * block; p < r->n_tokens + n; p += block) {
            int32_t at = slot_at(r, g, p);
            if (r->blocks[at] >= 0) continue;
            r->blocks[at] = block_take(r);
            r->n_held++;
        }
    }
    return 0;
}

void kv_ring_unextend(struct kv_ring *r, int32_t n) {
    int64_t block = r->block_tokens;
    for (int32_t g = 0; g < r->n_groups; g++)
        for (int64_t p = ceil_div(r->n_tokens, block) * block; p < r->n_tokens + n; p += block)
            slot_drop(r, slot_at(r, g, p));
}

void kv_ring_commit(struct kv_ring *r, int32_t n) {
    r->n_tokens += n;
    for (int32_t g = 0; g < r->n_groups; g++) {
        int64_t needed = first_needed(r, g, r->n_tokens);
        // Blocks past n_tokens have not been taken.
        for (int64_t p = r->reach[g].first_held; p < min_i64(needed, r->n_tokens);
             p += r->block_tokens)
            slot_drop(r, slot_at(r, g, p));
        r->reach[g].first_held = needed;
    }
}

// Whether every group has what a ring of n positions needs.
static bool reaches(const struct kv_ring *r, int64_t n) {
    for (int32_t g = 0; g < r->n_groups; g++)
        if (first_needed(r, g, n) < r->reach[g].first_held) return false;
    return true;
}

int kv_ring_truncate(struct kv_ring *r, int64_t n) {
    assert(n >= 0);
    // Also after an extend() without its commit(): then n_tokens does not cover all blocks.
    if (n > 0 && n >= r->n_tokens) return 0;
    if (n == 0 || !reaches(r, n)) {
        ring_clear(r);
        return n == 0 ? 0 : KV_GONE;
    }
    int64_t block = r->block_tokens;
    for (int32_t g = 0; g < r->n_groups; g++)
        for (int64_t l = ceil_div(n, block); l <= (r->n_tokens - 1) / block; l++)
            slot_drop(r, slot_at(r, g, l * block));
    r->n_tokens = n;
    return 0;
}

int kv_ring_fork(struct kv_ring *to, const struct kv_ring *from, int64_t n, struct err *err) {
    assert(n >= 0 && n <= from->n_tokens);
    *to = (struct kv_ring){0};
    if (!reaches(from, n)) return KV_GONE;
    TRY(kv_ring_init_like(to, from, err));
    int64_t number;
    for (int64_t i = 0; (number = kv_ring_holds(to, n, i)) >= 0; i++) {
        int32_t slot = kv_ring_slot(to, number), block = from->blocks[slot];
        assert(block >= 0 && to->blocks[slot] < 0);
        kv_pool_ref(to->pool, block);
        to->blocks[slot] = block;
        to->n_held++;
    }
    to->n_tokens = n;
    for (int32_t g = 0; g < to->n_groups; g++) to->reach[g].first_held = first_needed(to, g, n);
    return 0;
}

int kv_ring_init_like(struct kv_ring *r, const struct kv_ring *like, struct err *err) {
    *r = *like;
    return blocks_new(r, err);
}

void kv_ring_share(struct kv_ring *to, const struct kv_ring *from) {
    assert(to != from && to->n_slots == from->n_slots);
    // Holders first: `to` may hold the same blocks.
    for (int32_t i = 0; i < from->n_slots; i++)
        if (from->blocks[i] >= 0) kv_pool_ref(to->pool, from->blocks[i]);
    ring_clear(to);
    memcpy(to->blocks, from->blocks, (size_t)from->n_slots * sizeof *to->blocks);
    memcpy(to->reach, from->reach, sizeof to->reach);
    to->tag = from->tag;
    to->n_held = from->n_held;
    to->n_tokens = from->n_tokens;
}

int64_t kv_ring_holds(const struct kv_ring *shape, int64_t n, int64_t i) {
    int64_t block = shape->block_tokens;
    for (int32_t g = 0; g < shape->n_groups; g++) {
        int64_t window = first_needed(shape, g, n);
        int64_t n_sink = min_i64(ceil_div(n, block), shape->maps[g].n_sink_blocks);
        int64_t n_window = n > window ? ceil_div(n - window, block) : 0;
        if (i < n_sink) return kv_number(g, i);
        if (i < n_sink + n_window) return kv_number(g, window / block + i - n_sink);
        i -= n_sink + n_window;
    }
    return -1;
}

int32_t kv_ring_slot(const struct kv_ring *shape, int64_t number) {
    int32_t g = kv_number_group(number);
    if (g < 0 || g >= shape->n_groups) return -1;
    return slot_at(shape, g, kv_number_logical(number) * shape->block_tokens);
}

int64_t kv_ring_number(const struct kv_ring *r, int32_t slot) {
    int32_t g = 0;
    while (g + 1 < r->n_groups && r->reach[g + 1].first_slot <= slot) g++;
    const struct kv_map *m = &r->maps[g];
    slot -= r->reach[g].first_slot;
    if (slot < m->n_sink_blocks) return kv_number(g, slot);
    // The window has fewer blocks than the ring has slots: the slot holds its youngest block.
    int64_t last = (r->n_tokens - 1) / r->block_tokens - m->n_sink_blocks;
    int64_t at = slot - m->n_sink_blocks;
    return kv_number(g, m->n_sink_blocks + last - (last - at) % m->n_ring_blocks);
}

int kv_ring_restore(struct kv_ring *r, int64_t n) {
    assert(n >= 1 && r->n_tokens == 0 && r->n_held == 0);
    int64_t held = 0;
    while (kv_ring_holds(r, n, held) >= 0) held++;
    if (held > r->pool->n_free) return E_NOMEM;
    for (int64_t i = 0; i < held; i++)
        r->blocks[kv_ring_slot(r, kv_ring_holds(r, n, i))] = block_take(r);
    r->n_held = (int32_t)held;
    r->n_tokens = n;
    for (int32_t g = 0; g < r->n_groups; g++) r->reach[g].first_held = first_needed(r, g, n);
    return 0;
}

bool kv_ring_sound(const struct kv_ring *r) {
    int32_t left = r->n_held;
    // Called in every step, so a short log in a long ring must cost only its own blocks.
    for (int32_t i = 0; i < r->n_slots && left > 0; i++) {
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

static void name_block(struct kv_ring *r, int32_t slot, struct hash128 name) {
    int32_t own = r->blocks[slot];
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

void kv_ring_name(struct kv_ring *r, int64_t p, struct hash128 name) {
    assert(p % r->block_tokens == 0 && p + r->block_tokens <= r->n_tokens);
    for (int32_t g = 0; g < r->n_groups; g++) {
        int64_t sinks_end = (int64_t)r->maps[g].n_sink_blocks * r->block_tokens;
        if (p < sinks_end || p >= r->reach[g].first_held)
            name_block(r, slot_at(r, g, p), kv_name_of_group(name, g));
    }
}

// Looks up the blocks of logical numbers [from, from + n) into found (n, n_groups), -1 for none. Returns
// the block count of the longest log whose needed blocks (sinks and window) exist in every group.
static int64_t find_run(const struct kv_ring *r, struct hash128 name, const int32_t *ids,
                        int64_t from, int64_t n, int32_t *found) {
    int64_t b = r->block_tokens, best = from;
    // Of each group the first block of the run without a gap that ends here. r's own blocks count as
    // present: a longer log needs no more of them than r holds.
    int64_t run[KV_GROUPS_MAX] = {0};
    for (int64_t l = from; l < from + n; l++, found += r->n_groups) {
        bool serves = true;
        name = kv_name_next(&r->pool->names, name, ids + l * b, (int32_t)b);
        for (int32_t g = 0; g < r->n_groups; g++) {
            found[g] = find_equal(r, kv_name_of_group(name, g));
            if (found[g] < 0) {
                int64_t last_window = first_needed(r, g, (from + n) * b) / b;
                // Every longer log needs this block.
                if (l < r->maps[g].n_sink_blocks || l >= last_window) return best;
                run[g] = l + 1;
            }
            serves = serves && found[g] >= 0 && run[g] <= first_needed(r, g, (l + 1) * b) / b;
        }
        if (serves) best = l + 1;
    }
    return best;
}

// Replaces the blocks of group g behind `had` tokens: found (best - from, n_groups) from logical number
// `from` on.
static void adopt_group(struct kv_ring *r, int32_t g, int64_t had, int64_t best,
                        const int32_t *found) {
    int64_t b = r->block_tokens, from = had / b;
    int64_t window = first_needed(r, g, best * b), sinks = r->maps[g].n_sink_blocks;
    // Holders first: r may give up the block that it takes.
    for (int64_t l = from; l < best; l++)
        if (l < sinks || l * b >= window) kv_pool_ref(r->pool, found[(l - from) * r->n_groups + g]);
    if (had % b != 0) slot_drop(r, slot_at(r, g, had));
    for (int64_t p = r->reach[g].first_held; p < min_i64(window, from * b); p += b)
        slot_drop(r, slot_at(r, g, p));
    for (int64_t l = from; l < best; l++) {
        if (l >= sinks && l * b < window) continue;
        int32_t slot = slot_at(r, g, l * b);
        assert(r->blocks[slot] < 0);
        r->blocks[slot] = found[(l - from) * r->n_groups + g];
        r->n_held++;
    }
    r->reach[g].first_held = window;
}

int64_t kv_ring_adopt(struct kv_ring *r, struct hash128 name, const int32_t *ids, int64_t n_most) {
    int64_t b = r->block_tokens, had = r->n_tokens, from = had / b, n = n_most / b - from;
    if (n <= 0) return 0;
    int32_t *found = malloc((size_t)n * (size_t)r->n_groups * sizeof *found);
    if (!found) return 0;
    int64_t best = find_run(r, name, ids, from, n, found);
    if (best > from) {
        for (int32_t g = 0; g < r->n_groups; g++) adopt_group(r, g, had, best, found);
        r->n_tokens = best * b;
    }
    free(found);
    return r->n_tokens - had;
}
