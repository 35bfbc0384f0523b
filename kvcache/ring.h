// One sequence's keys and values: sink blocks, then a ring of blocks for the window
// (kernels/kv_map.h has the arithmetic). The ring is long enough for the window plus one prefill
// chunk of slack, so that a chunk's first token still finds all it may see when the chunk's last
// token has been written. Engine thread only.
#pragma once
#include "kernels/kv_map.h"
#include "kvcache/pool.h"

struct kv_ring {
    struct kv_pool *pool;
    struct kv_map map; // map.blocks is owned here
    int32_t *blocks;   // = map.blocks
    uint64_t tag;      // its blocks' (pool.h); 0 unless set between init and the first extend
    int32_t memory_len, sink_len;
    // positions [0, n_tokens) have been written (those the window passed are gone)
    int64_t n_tokens;
    int32_t n_held;     // blocks held now
    int64_t first_lost; // smallest position at or past the sinks that is still held; where the
                        // window has never moved: sink blocks' end
};

// Blocks that a sequence with this shape holds at most: the bound that sessions are promised, and
// what admission reserves. n_tokens: how long its log may become. chunk_tokens: most tokens written
// in one step.
int32_t kv_ring_max_blocks(int32_t memory_len, int32_t sink_len, int32_t chunk_tokens,
                           int32_t block_tokens, int64_t n_tokens);

int kv_ring_init(struct kv_ring *r, struct kv_pool *pool, int32_t memory_len, int32_t sink_len,
                 int32_t chunk_tokens, int32_t block_tokens, int64_t session_len, struct err *err);
// A ring (not initialised yet) over the first n of another's positions, n at most its n_tokens:
// the same shape, its blocks shared. O(slots); nothing is copied, now or later, but a block that is
// still being filled when either of the two writes to it. KV_GONE: the other's window has passed
// what [0, n) needs. That, and an error, leave the new ring zeroed.
int kv_ring_fork(struct kv_ring *to, const struct kv_ring *from, int64_t n, struct err *err);
void kv_ring_release(struct kv_ring *r); // gives every block back
// Its blocks that have not been met since kv_pool_count_begin.
int32_t kv_ring_count(const struct kv_ring *r);

// The i-th block that a ring of this shape and n positions holds, ascending: its logical number;
// -1: it holds i of them. Of `shape` nothing is looked at but the shape.
int64_t kv_ring_holds(const struct kv_ring *shape, int64_t n, int64_t i);
// An empty ring takes the blocks that a ring of n positions holds, unwritten: the caller fills them
// (kv_image) before anything reads them. All or nothing: E_NOMEM leaves it empty.
int kv_ring_restore(struct kv_ring *r, int64_t n);

// Makes room for positions [n_tokens, n_tokens + n): gives back what the window has passed, takes
// fresh blocks, replaces shared ones (copy on write, through `copy`, which may be NULL while
// nothing is shared). All or nothing: E_NOMEM leaves the ring as it was. n <= chunk_tokens.
int kv_ring_extend(struct kv_ring *r, int32_t n, int (*copy)(void *ctx, int32_t dst, int32_t src),
                   void *ctx);
void kv_ring_commit(struct kv_ring *r, int32_t n); // the n positions have been written

// The full block of positions [p, p + block_tokens) has this name from now on, and can be found by
// it. If another block has the name already, the ring takes that one and gives its own back: equal
// blocks are stored once. Nothing where the window has passed the block.
void kv_ring_name(struct kv_ring *r, int64_t p, struct hash128 name);
// Goes on with full blocks that other rings hold: the longest run of them that follows what r has,
// by the tokens of its log, ids. name: of r's own full blocks. None past n_most tokens; what r has
// of a block that is not full is given up for the full one. Returns how many tokens r has gained; 0
// also where memory for the search is out. O(n_most).
int64_t kv_ring_adopt(struct kv_ring *r, struct hash128 name, const int32_t *ids, int64_t n_most);
// Whether all blocks that r holds are held by right: they are in use, and have r's tag. What a step
// asks before it reads through r.
bool kv_ring_sound(const struct kv_ring *r);
// Cuts the sequence to n positions. 0 when what is left is complete; KV_GONE (positive) when the
// window had moved on and positions that [0, n) still needs are gone: the ring is then empty
// (n_tokens 0) and the log must be recomputed.
enum { KV_GONE = 1 };
int kv_ring_truncate(struct kv_ring *r, int64_t n);
