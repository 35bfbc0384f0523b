// See image.h.
#include "kvcache/image.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void copy_drop(struct kv_image *m, struct kv_copy *c) {
    if (c->host < 0) return;
    kv_pool_unref(m->host, c->host);
    c->host = -1;
    m->n_held--;
}

int kv_image_init(struct kv_image *m, struct kv_pool *host, const struct kv_ring *shape) {
    *m = (struct kv_image){0};
    int32_t n = shape->n_slots;
    m->copies = malloc((size_t)n * sizeof *m->copies);
    if (!m->copies) return E_NOMEM;
    for (int32_t i = 0; i < n; i++) m->copies[i] = (struct kv_copy){.host = -1};
    m->host = host;
    m->n_slots = n;
    m->memory_len = shape->memory_len;
    m->sink_len = shape->sink_len;
    return 0;
}

int kv_image_fork(struct kv_image *to, const struct kv_image *from, int64_t n,
                  int32_t block_tokens) {
    *to = (struct kv_image){0};
    struct kv_copy *copies = malloc((size_t)from->n_slots * sizeof *copies);
    if (!copies) return E_NOMEM;
    *to = *from;
    to->copies = copies;
    memcpy(copies, from->copies, (size_t)from->n_slots * sizeof *copies);
    for (int32_t i = 0; i < to->n_slots; i++)
        if (copies[i].host >= 0) kv_pool_ref(to->host, copies[i].host);
    kv_image_cut(to, n, block_tokens);
    return 0;
}

void kv_image_release(struct kv_image *m) {
    for (int32_t i = 0; i < m->n_slots; i++) copy_drop(m, &m->copies[i]);
    free(m->copies);
    *m = (struct kv_image){0};
}

void kv_image_cut(struct kv_image *m, int64_t n, int32_t block_tokens) {
    for (int32_t i = 0; i < m->n_slots; i++) {
        struct kv_copy *c = &m->copies[i];
        if (c->host < 0 || c->upto <= n) continue;
        c->upto = n;
        if (n <= kv_number_logical(c->number) * block_tokens) copy_drop(m, c);
    }
}

// Up to which position the block of this number is written in a log of n_tokens.
static int64_t end_of(int64_t number, int64_t n_tokens, int64_t block_tokens) {
    int64_t end = (kv_number_logical(number) + 1) * block_tokens;
    return end < n_tokens ? end : n_tokens;
}

static bool is_right(const struct kv_image *m, const struct kv_ring *r, int32_t slot) {
    const struct kv_copy *c = &m->copies[slot];
    int64_t number = kv_ring_number(r, slot);
    return c->host >= 0 && c->number == number &&
           c->upto >= end_of(number, r->n_tokens, r->block_tokens);
}

bool kv_image_serves(const struct kv_image *m, const struct kv_ring *shape, int64_t n) {
    int64_t number;
    if (!m->copies || m->memory_len != shape->memory_len || m->sink_len != shape->sink_len)
        return false;
    for (int64_t i = 0; (number = kv_ring_holds(shape, n, i)) >= 0; i++) {
        const struct kv_copy *c = &m->copies[kv_ring_slot(shape, number)];
        if (c->host < 0 || c->number != number || c->upto < end_of(number, n, shape->block_tokens))
            return false;
    }
    return true;
}

int32_t kv_image_missing(const struct kv_image *m, const struct kv_ring *r) {
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_slots; i++) n += r->blocks[i] >= 0 && !is_right(m, r, i);
    return n;
}

// A host block with another holder is left to that holder. A block that is written again no longer has
// its name's contents.
static int copy_take(struct kv_image *m, struct kv_copy *c) {
    if (c->host >= 0 && m->host->refs[c->host] == 1) {
        kv_names_drop(&m->host->names, c->host);
        return 0;
    }
    copy_drop(m, c);
    c->host = kv_pool_take(m->host);
    if (c->host < 0) return E_NOMEM;
    m->n_held++;
    return 0;
}

static void drop_passed(struct kv_image *m, const struct kv_ring *r) {
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (r->blocks[i] < 0) copy_drop(m, &m->copies[i]);
    }
}

// A copied full block gets the name that it has in the ring's pool; an equal block of another ring is
// then not copied again.
static bool take_equal(struct kv_image *m, const struct kv_ring *r, int32_t slot) {
    const struct kv_names *names = &r->pool->names;
    struct kv_copy *c = &m->copies[slot];
    if (!kv_names_has(names, r->blocks[slot])) return false;
    int32_t equal = kv_names_find(&m->host->names, names->names[r->blocks[slot]]);
    if (equal < 0) return false;
    if (equal != c->host) {
        kv_pool_ref(m->host, equal);
        copy_drop(m, c);
        c->host = equal;
        m->n_held++;
    }
    kv_image_copied(m, r, slot);
    return true;
}

int kv_image_next(struct kv_image *m, const struct kv_ring *r, int32_t *slot) {
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (r->blocks[i] < 0 || is_right(m, r, i) || take_equal(m, r, i)) continue;
        TRY(copy_take(m, &m->copies[i]));
        *slot = i;
        return 1;
    }
    drop_passed(m, r);
    return 0;
}

void kv_image_copied(struct kv_image *m, const struct kv_ring *r, int32_t slot) {
    struct kv_copy *c = &m->copies[slot];
    assert(c->host >= 0);
    c->number = kv_ring_number(r, slot);
    c->upto = end_of(c->number, r->n_tokens, r->block_tokens);
    const struct kv_names *names = &r->pool->names;
    bool named = r->blocks[slot] >= 0 && kv_names_has(names, r->blocks[slot]);
    if (!named || kv_names_has(&m->host->names, c->host)) return;
    struct hash128 name = names->names[r->blocks[slot]];
    if (kv_names_find(&m->host->names, name) < 0) kv_names_put(&m->host->names, c->host, name);
}

int kv_image_fill(struct kv_image *m, const struct kv_ring *r) {
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (r->blocks[i] < 0) continue;
        if (copy_take(m, &m->copies[i]) < 0) {
            kv_image_cut(m, 0, r->block_tokens);
            return E_NOMEM;
        }
        kv_image_copied(m, r, i);
    }
    return 0;
}

int kv_image_take(struct kv_image *m, const struct kv_ring *shape, int64_t n) {
    int64_t number;
    for (int64_t i = 0; (number = kv_ring_holds(shape, n, i)) >= 0; i++) {
        struct kv_copy *c = &m->copies[kv_ring_slot(shape, number)];
        if (copy_take(m, c) < 0) {
            kv_image_cut(m, 0, shape->block_tokens);
            return E_NOMEM;
        }
        c->number = number;
        c->upto = end_of(number, n, shape->block_tokens);
    }
    return 0;
}
