// A chained hash table whose entries are the blocks themselves.
#include "kvcache/name.h"

#include "base/random_id.h"
#include <assert.h>
#include <stdlib.h>

int kv_names_init(struct kv_names *k, int32_t n_blocks, struct err *err) {
    *k = (struct kv_names){.n_blocks = n_blocks, .key = {random_u64(), random_u64()}};
    while (k->mask < (uint32_t)n_blocks) k->mask = k->mask * 2 + 1;
    k->heads = calloc((size_t)k->mask + 1, sizeof *k->heads);
    k->next = calloc((size_t)n_blocks, sizeof *k->next);
    k->names = malloc((size_t)n_blocks * sizeof *k->names);
    if (!k->heads || !k->next || !k->names) {
        kv_names_release(k);
        return err_set(err, E_NOMEM, "no memory for the names of %d cache blocks", n_blocks);
    }
    return 0;
}

void kv_names_release(struct kv_names *k) {
    free(k->heads);
    free(k->next);
    free(k->names);
    *k = (struct kv_names){0};
}

struct hash128 kv_name_begin(const struct kv_names *k, uint64_t tag, int32_t memory_len,
                             int32_t sink_len) {
    uint64_t shape[2] = {tag, (uint64_t)(uint32_t)memory_len << 32 | (uint32_t)sink_len};
    return siphash128(k->key, shape, sizeof shape);
}

struct hash128 kv_name_next(const struct kv_names *k, struct hash128 before, const int32_t *ids,
                            int32_t n) {
    // The name before is part of the key: each link of the chain is a hash under a key of its own.
    uint64_t key[2] = {k->key[0] ^ before.lo, k->key[1] ^ before.hi};
    return siphash128(key, ids, (size_t)n * sizeof *ids);
}

static bool same(struct hash128 a, struct hash128 b) {
    return a.lo == b.lo && a.hi == b.hi;
}

int32_t kv_names_find(const struct kv_names *k, struct hash128 name) {
    int32_t block = kv_names_first(k, name.lo & k->mask);
    while (block >= 0 && !same(k->names[block], name)) block = kv_names_after(k, block);
    return block;
}

bool kv_names_has(const struct kv_names *k, int32_t block) {
    return k->next[block] != 0;
}

void kv_names_put(struct kv_names *k, int32_t block, struct hash128 name) {
    assert(!kv_names_has(k, block));
    int32_t *head = &k->heads[name.lo & k->mask];
    k->names[block] = name;
    k->next[block] = *head + 1;
    *head = block + 1;
}

void kv_names_drop(struct kv_names *k, int32_t block) {
    if (!kv_names_has(k, block)) return;
    const uint64_t bucket = k->names[block].lo & k->mask;
    int32_t before = kv_names_first(k, bucket);
    if (before == block) {
        k->heads[bucket] = k->next[block] - 1;
    } else {
        while (kv_names_after(k, before) != block) before = kv_names_after(k, before);
        k->next[before] = k->next[block];
    }
    k->next[block] = 0;
}
