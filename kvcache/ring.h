// The blocks of one sequence on the device: for each cache group (groups.h) sink blocks, then a ring of
// blocks for the window (kernels/kv_map.h has the arithmetic). A group's ring has room for its window
// plus one prefill chunk, so that a chunk's first token still finds all it may see when the chunk's last
// token has been written. Engine thread only.
#pragma once
#include "kernels/kv_map.h"
#include "kvcache/groups.h"
#include "kvcache/pool.h"

struct kv_reach { // of one group of a ring
    // A token at t needs the positions p <= t with p < sink_len or p > t - run.
    int32_t sink_len, run;
    int32_t first_slot; // of its slots among those of the ring
    int64_t first_held; // the smallest position behind the sink blocks that is still held
};

struct kv_ring {
    struct kv_pool *pool;
    int32_t n_groups, n_slots;            // n_slots: of all groups
    int32_t *blocks;                      // (n_slots) group after group; -1: no block. Owned.
    struct kv_map maps[KV_GROUPS_MAX];    // (n_groups) each a part of `blocks`
    struct kv_reach reach[KV_GROUPS_MAX]; // (n_groups)
    uint64_t tag; // of its blocks (pool.h); 0 unless set between init and the first extend
    int32_t memory_len, sink_len, block_tokens;
    int64_t n_tokens; // positions [0, n_tokens) were written; the window has passed some of them
    int32_t n_held;   // blocks held now, of all groups
};

struct kv_ring_shape { // all in tokens
    int32_t memory_len, sink_len;
    int32_t chunk_tokens;           // most that one step writes
    int32_t block_tokens;           // a power of two
    int64_t session_len;            // the longest that the log may become
    const struct kv_groups *groups; // borrowed; NULL: one group without a window
};

// The number of a block in its sequence: its group, and its positions [logical, logical + 1) *
// block_tokens. Numbers ascend by group, then by position; of one group alone they are the logical
// numbers.
enum { KV_NUMBER_BITS = 40 };
static inline int64_t kv_number(int32_t group, int64_t logical) {
    return ((int64_t)group << KV_NUMBER_BITS) | logical;
}
static inline int32_t kv_number_group(int64_t number) {
    return (int32_t)(number >> KV_NUMBER_BITS);
}
static inline int64_t kv_number_logical(int64_t number) {
    return number & (((int64_t)1 << KV_NUMBER_BITS) - 1);
}

// The most blocks that a sequence of this shape can hold, of all groups; admission reserves as many.
int32_t kv_ring_max_blocks(const struct kv_ring_shape *s);

// An empty ring over the pool's blocks, which it takes as it is written. E_INVAL, E_NOMEM.
int kv_ring_init(struct kv_ring *r, struct kv_pool *pool, const struct kv_ring_shape *s,
                 struct err *err);
// Makes `to` a ring of the same shape over the first n of from's positions (n <= from->n_tokens),
// which shares its blocks. O(slots). Later, only a block that is not full is copied, when one of the
// two writes to it. KV_GONE: from's window has passed positions that [0, n) needs. Then, and on an
// error, `to` is zeroed.
int kv_ring_fork(struct kv_ring *to, const struct kv_ring *from, int64_t n, struct err *err);
void kv_ring_release(struct kv_ring *r); // gives every block back
// An empty ring of the same shape, pool and tag. E_NOMEM.
int kv_ring_init_like(struct kv_ring *r, const struct kv_ring *like, struct err *err);
// `to`, a ring of the same shape as `from`, gives its blocks back and holds from's. Allocates nothing:
// for the branches of one turn, whose rings are made when the turn begins.
void kv_ring_share(struct kv_ring *to, const struct kv_ring *from);
// How many of its blocks were not counted since kv_pool_count_begin.
int32_t kv_ring_count(const struct kv_ring *r);

// The number of the i-th block, ascending, that a ring of this shape and n positions holds; -1: it holds
// only i blocks. Of `shape` it reads lengths and sizes only.
int64_t kv_ring_holds(const struct kv_ring *shape, int64_t n, int64_t i);
// The slot of a block of this number; -1: no ring of this shape has it.
int32_t kv_ring_slot(const struct kv_ring *shape, int64_t number);
// The number of the block that a ring of n_tokens positions has in a slot, where it has one.
int64_t kv_ring_number(const struct kv_ring *r, int32_t slot);
// An empty ring takes the blocks that a ring of n positions holds; the caller fills them (kv_image)
// before they are read. All or nothing: E_NOMEM leaves it empty.
int kv_ring_restore(struct kv_ring *r, int64_t n);

// Makes room for positions [n_tokens, n_tokens + n): takes fresh blocks and replaces a shared one
// (copy on write, through `copy`; NULL is allowed while nothing is shared). All or nothing: E_NOMEM
// leaves the ring as it was. n <= chunk_tokens.
int kv_ring_extend(struct kv_ring *r, int32_t n, int (*copy)(void *ctx, int32_t dst, int32_t src),
                   void *ctx);
// Takes back an extend(n) whose step does not run: gives back the blocks behind n_tokens. A copy on
// write stays.
void kv_ring_unextend(struct kv_ring *r, int32_t n);
// The n positions have been written. Gives back the blocks that the window has passed.
void kv_ring_commit(struct kv_ring *r, int32_t n);

// Names the full blocks of positions [p, p + block_tokens), one of each group, so that other rings find
// them. name: of the log up to their end; each group's block has a name of its own made of it. If another
// block has the name already, the ring takes that one and gives its own back. Does nothing for groups
// whose window has passed the block.
void kv_ring_name(struct kv_ring *r, int64_t p, struct hash128 name);
// Takes over full blocks of other rings: the longest run that continues what r has and that every group
// still has, by the tokens of its log ids. name: of r's own full blocks. Takes none beyond n_most tokens; replaces r's last block
// if that is not full. Returns how many tokens r has gained; 0 also where memory is out. O(n_most).
int64_t kv_ring_adopt(struct kv_ring *r, struct hash128 name, const int32_t *ids, int64_t n_most);
// Whether every block of r is in use and has r's tag. A step checks this before it reads through r.
bool kv_ring_sound(const struct kv_ring *r);
// Cuts the sequence to n positions. 0: the rest is complete. KV_GONE (positive): the window had
// passed positions that [0, n) needs; the ring is then empty and the log must be recomputed.
enum { KV_GONE = 1 };
int kv_ring_truncate(struct kv_ring *r, int64_t n);
