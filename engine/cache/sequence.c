// See sequence.h.
#include "engine/cache/sequence.h"

#include "engine/cache/snapshot_file.h"
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void sequence_names_init(struct sequence_names *n, const char *id, const char *origin,
                         const char *owner) {
    *n = (struct sequence_names){.owner = snapshot_owner(owner ? owner : "")};
    if (id) snprintf(n->id, sizeof n->id, "%s", id);
    if (origin) snprintf(n->origin, sizeof n->origin, "%s", origin);
}

struct sequence *sequence_new(uint64_t id) {
    struct sequence *s = calloc(1, sizeof *s);
    if (s) s->id = id;
    return s;
}

static void drop_branches(struct sequence *s) {
    for (int32_t i = 0; i < s->n_branches; i++) kv_ring_release(&s->branches[i]);
    free(s->branches);
    s->branches = NULL;
    s->n_branches = 0;
}

int sequence_branch(struct sequence *s, int32_t n, struct err *err) {
    drop_branches(s);
    if (n == 0) return 0;
    s->branches = calloc((size_t)n, sizeof *s->branches);
    if (!s->branches) return err_set(err, E_NOMEM, "no memory for %d branches", n);
    for (; s->n_branches < n; s->n_branches++) {
        int rc = kv_ring_init_like(&s->branches[s->n_branches], &s->ring, err);
        if (rc == 0) continue;
        drop_branches(s);
        return rc;
    }
    return 0;
}

int32_t sequence_n_blocks(const struct sequence *s) {
    if (s->n_branches == 0) return s->ring.n_held;
    kv_pool_count_begin(s->ring.pool);
    int32_t n = kv_ring_count(&s->ring);
    for (int32_t i = 0; i < s->n_branches; i++) n += kv_ring_count(&s->branches[i]);
    return n;
}

void sequence_drop(struct sequence *s) {
    drop_branches(s);
    kv_ring_release(&s->ring);
    free(s->ids);
    s->ids = NULL;
    s->n_ids = 0;
}

void sequence_free(struct sequence *s) {
    assert(!s->resume);
    sequence_drop(s);
    kv_image_release(&s->image);
    free(s->image_ids);
    free(s);
}

int64_t sequence_common_prefix(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

struct sequence_shape sequence_image_shape(const struct sequence *s,
                                           const struct sequence_shape *all) {
    struct sequence_shape shape = *all;
    shape.group = s->image_group;
    shape.prompt = s->image_prompt;
    shape.ring.memory_len = s->image.memory_len;
    shape.ring.sink_len = s->image.sink_len;
    return shape;
}

bool sequence_same_prompt(struct hash128 a, struct hash128 b) {
    return a.lo == b.lo && a.hi == b.hi;
}

bool sequence_has_shape(const struct sequence *s, const struct sequence_shape *shape) {
    return s->ring.memory_len == shape->ring.memory_len &&
           s->ring.sink_len == shape->ring.sink_len && s->group == shape->group &&
           sequence_same_prompt(s->prompt, shape->prompt);
}

int sequence_ready(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   struct err *err) {
    struct kv_ring *r = &s->ring;
    // Keys seen through another window are other keys, from the second layer on. What one group
    // computed belongs to that group.
    if (r->blocks && !sequence_has_shape(s, shape)) sequence_drop(s);
    if (r->blocks) return 0;
    TRY(kv_ring_init(r, pool, &shape->ring, err));
    s->group = shape->group;
    s->prompt = shape->prompt;
    r->tag = s->group ? kv_group_tag(s->group) : kv_pool_private_tag(pool);
    return 0;
}

int sequence_match(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   const int32_t *ids, int64_t n_ids, int64_t *kept, int64_t *shared,
                   struct err *err) {
    struct kv_ring *r = &s->ring;
    *kept = *shared = 0;
    TRY(sequence_ready(s, pool, shape, err));
    int64_t same = sequence_common_prefix(s->ids, r->n_tokens, ids, n_ids - 1);
    if (kv_ring_truncate(r, same) == KV_GONE) same = 0;
    *kept = same;
    if (!s->group) return 0;
    sequence_name_all(s, ids);
    *shared = kv_ring_adopt(r, s->name, ids, n_ids - 1);
    sequence_name(s, ids);
    *kept += *shared;
    return 0;
}

void sequence_name_all(struct sequence *s, const int32_t *ids) {
    struct kv_ring *r = &s->ring;
    if (!s->group) return;
    s->name = kv_name_begin(&r->pool->names, r->tag, r->memory_len, r->sink_len);
    // One more link of the chain: the same ids of two tables never have one name.
    if (s->prompt.lo) {
        int32_t link[4];
        memcpy(link, &s->prompt, sizeof link);
        s->name = kv_name_next(&r->pool->names, s->name, link, 4);
    }
    s->n_named = 0;
    sequence_name(s, ids);
}

void sequence_name(struct sequence *s, const int32_t *ids) {
    struct kv_ring *r = &s->ring;
    int32_t block = r->block_tokens;
    if (!s->group) return;
    for (; s->n_named + block <= r->n_tokens; s->n_named += block) {
        s->name = kv_name_next(&r->pool->names, s->name, ids + s->n_named, block);
        kv_ring_name(r, s->n_named, s->name);
    }
}

int sequence_fork(struct sequence *to, const struct sequence *from, int64_t n_tokens) {
    int64_t n = n_tokens < from->ring.n_tokens ? n_tokens : from->ring.n_tokens;
    if (from->turn_ids && from->branches && n > from->n_agreed) n = from->n_agreed;
    if (n <= 0 || cache_is_resuming(from->state)) return 0;
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) return E_NOMEM;
    int rc = kv_ring_fork(&to->ring, &from->ring, n, NULL);
    if (rc != 0) {
        free(ids);
        return rc;
    }
    memcpy(ids, from->turn_ids ? from->turn_ids : from->ids, (size_t)n * sizeof *ids);
    to->ids = ids;
    to->n_ids = n;
    to->group = from->group;
    to->prompt = from->prompt;
    return 0;
}

void sequence_take_log(struct sequence *s, int32_t *ids) {
    free(s->ids);
    s->ids = NULL;
    s->n_ids = s->ring.n_tokens;
    if (s->n_ids == 0) {
        free(ids);
        return;
    }
    // Only the cached tokens are kept. If shrinking fails, the larger array serves as well.
    int32_t *fit = realloc(ids, (size_t)s->n_ids * sizeof *ids);
    s->ids = fit ? fit : ids;
}

int sequence_copy_log(struct sequence *s, const int32_t *ids) {
    size_t n = (size_t)s->ring.n_tokens;
    int32_t *copy = malloc((n + 1) * sizeof *copy);
    if (!copy) return E_NOMEM;
    memcpy(copy, ids, n * sizeof *copy);
    sequence_take_log(s, copy);
    return 0;
}
