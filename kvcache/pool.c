// The block pool: a stack of free block ids and a count of holders for each. See kvcache/README.md,
// rules 1 to 3.
#include "kvcache/pool.h"

#include <assert.h>
#include <stdlib.h>

int kv_pool_init(struct kv_pool *p, int32_t n_blocks, struct err *err) {
    *p = (struct kv_pool){0};
    if (n_blocks < 1) {
        return err_set(err, E_INVAL, "a cache pool needs at least one block, not %d", n_blocks);
    }
    p->free_list = malloc((size_t)n_blocks * sizeof *p->free_list);
    p->refs = calloc((size_t)n_blocks, sizeof *p->refs);
    p->counted = calloc((size_t)n_blocks, sizeof *p->counted);
    p->tags = calloc((size_t)n_blocks, sizeof *p->tags);
    if (!p->free_list || !p->refs || !p->counted || !p->tags) {
        kv_pool_release(p);
        return err_set(err, E_NOMEM, "no memory to count %d cache blocks", n_blocks);
    }
    int rc = kv_names_init(&p->names, n_blocks, err);
    if (rc < 0) {
        kv_pool_release(p);
        return rc;
    }
    p->n_blocks = p->n_free = p->n_fresh = p->n_new = n_blocks;
    return 0;
}

// Block 0 on top: a small load stays in the first pages of the arena.
int32_t kv_pool_free_block(const struct kv_pool *p, int32_t i) {
    return i < p->n_new ? p->n_blocks - 1 - i : p->free_list[i];
}

void kv_pool_release(struct kv_pool *p) {
    free(p->free_list);
    free(p->refs);
    free(p->counted);
    free(p->tags);
    kv_names_release(&p->names);
    *p = (struct kv_pool){0};
}

int32_t kv_pool_take(struct kv_pool *p) {
    if (p->n_free == 0) return -1;
    int32_t block = kv_pool_free_block(p, --p->n_free);
    if (p->n_free < p->n_new) p->n_new = p->n_free;
    if (p->n_free < p->n_fresh) p->n_fresh = p->n_free;
    if (p->n_free < p->n_rested) p->n_rested = p->n_free;
    assert(p->refs[block] == 0);
    p->refs[block] = 1;
    p->tags[block] = 0;
    if (p->guard) p->guard(p->guard_ctx, block, false);
    return block;
}

void kv_pool_ref(struct kv_pool *p, int32_t block) {
    assert(block >= 0 && block < p->n_blocks && p->refs[block] > 0);
    p->refs[block]++;
    p->n_extra++;
}

void kv_pool_unref(struct kv_pool *p, int32_t block) {
    assert(block >= 0 && block < p->n_blocks && p->refs[block] > 0);
    if (--p->refs[block] > 0) {
        p->n_extra--;
        return;
    }
    kv_names_drop(&p->names, block);
    if (p->guard) p->guard(p->guard_ctx, block, true);
    p->free_list[p->n_free++] = block;
}

void kv_pool_watch(struct kv_pool *p) {
    p->n_rested = p->n_free;
}

int32_t kv_pool_give_back(struct kv_pool *p, int32_t keep, int32_t most, const int32_t **blocks) {
    int32_t end = p->n_rested < p->n_free - keep ? p->n_rested : p->n_free - keep;
    int32_t n = end - p->n_fresh;
    if (n > most) n = most;
    if (n <= 0) return 0;
    *blocks = p->free_list + p->n_fresh;
    p->n_fresh += n;
    return n;
}

uint64_t kv_pool_private_tag(struct kv_pool *p) {
    p->last_tag++;
    return p->last_tag * 2 + 1; // odd: no group's
}

void kv_pool_count_begin(struct kv_pool *p) {
    p->count++;
}
