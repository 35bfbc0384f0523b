// What is kept from one turn to the next.
#include "engine/run/sequence.h"

#include <stdlib.h>

struct sequence *sequence_new(uint64_t id) {
    struct sequence *s = calloc(1, sizeof *s);
    if (s) s->id = id;
    return s;
}

void sequence_drop(struct sequence *s) {
    kv_ring_release(&s->ring);
    free(s->ids);
    s->ids = NULL;
    s->n_ids = 0;
}

void sequence_free(struct sequence *s) {
    sequence_drop(s);
    free(s);
}

static int64_t common_prefix(const int32_t *a, int64_t n_a, const int32_t *b, int64_t n_b) {
    int64_t n = n_a < n_b ? n_a : n_b, i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

int sequence_match(struct sequence *s, struct kv_pool *pool, const struct sequence_shape *shape,
                   const int32_t *ids, int64_t n_ids, int64_t *kept, struct err *err) {
    struct kv_ring *r = &s->ring;
    *kept = 0;
    // Keys seen through another window are other keys, from the second layer on.
    if (r->blocks && (r->memory_len != shape->memory_len || r->sink_len != shape->sink_len))
        sequence_drop(s);
    if (!r->blocks) {
        return kv_ring_init(r, pool, shape->memory_len, shape->sink_len, shape->chunk_tokens,
                            shape->block_tokens, shape->session_len, err);
    }
    int64_t same = common_prefix(s->ids, r->n_tokens, ids, n_ids - 1);
    if (kv_ring_truncate(r, same) == KV_GONE) same = 0;
    *kept = same;
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
    // Only what is cached is of use here. Where shrinking fails, the larger array is as good.
    int32_t *fit = realloc(ids, (size_t)s->n_ids * sizeof *ids);
    s->ids = fit ? fit : ids;
}
