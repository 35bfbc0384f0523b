// A sequence's cache outside any engine, on its way to another one: its log, and its blocks by their
// place in that log. Plain host memory; one thread at a time.
#pragma once
#include "engine/cache/sequence.h"
#include "kvcache/snapshot.h"

struct packed_cache {
    struct kv_snapshot_maker maker; // what computed it: only an equal engine can use the bytes
    struct sequence_names names;
    uint64_t group;
    struct hash128 prompt;
    int32_t memory_len, sink_len;
    int32_t *ids;           // (n_ids) the log; all of it is in the cache
    int64_t n_ids, used_us; // used_us: when its last turn ended
    int64_t *numbers;       // (n_blocks) of the blocks (kvcache/ring.h), ascending
    char *bytes;            // (n_blocks, maker.block_bytes)
    int32_t n_blocks;
};

// Of the parked sequence's image, without its bytes. NULL: no memory.
struct packed_cache *packed_cache_new(const struct sequence *s,
                                      const struct kv_snapshot_maker *maker);
void packed_cache_free(struct packed_cache *p); // NULL is fine
// The place of a block in `bytes`; NULL: it has no such block.
char *packed_cache_block(const struct packed_cache *p, int64_t number);
