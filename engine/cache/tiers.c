// See tiers.h.
#include "engine/cache/tiers.h"
#include "base/memory.h"

#include "engine/cache/sequence.h"
#include "engine/dist/lead.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

// Pinned memory if the backend allocates host memory, else pages that exist once they are touched.
static int memory_init(struct tiers *t, size_t bytes, struct err *err) {
    const struct backend_ops *ops = t->backend->ops;
    if (ops->host_alloc) return ops->host_alloc(t->backend, bytes, (void **)&t->memory, err);
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) return E_NOMEM;
    madvise(p, bytes, MADV_HUGEPAGE);
    t->memory = p;
    return 0;
}

int tiers_init(struct tiers *t, struct backend *backend, struct lead *lead, struct kv_store *store,
               int64_t bytes, bool transit, struct err *err) {
    *t = (struct tiers){.backend = backend, .store = store, .lead = lead, .transit = transit};
    int64_t n = bytes / (int64_t)store->block_bytes;
    if (n == 0 || !backend->ops->kv_blocks_save) return 0;
    if (n > INT32_MAX / 2) n = INT32_MAX / 2;
    TRY(kv_pool_init(&t->host, (int32_t)n, err));
    if (memory_init(t, (size_t)n * store->block_bytes, err) == 0) {
        if (lead) lead_host(lead, t->memory, store->block_bytes);
        return 0;
    }
    kv_pool_release(&t->host);
    return err_set(err, E_NOMEM, "no host memory for %lld %s cache blocks of %zu bytes: %s%s",
                   (long long)n, transit ? "snapshots'" : "parked", store->block_bytes,
                   transit ? "lower memory_len, or leave out snapshot_dir"
                           : "lower host_cache_bytes",
                   memory_advice().text);
}

void tiers_release(struct tiers *t) {
    if (t->memory && t->backend->ops->host_alloc)
        t->backend->ops->host_free(t->backend, t->memory);
    else if (t->memory)
        munmap(t->memory, (size_t)t->host.n_blocks * t->store->block_bytes);
    kv_pool_release(&t->host);
    *t = (struct tiers){0};
}

void *tiers_host(const struct tiers *t, int32_t host_block) {
    return t->memory + (size_t)host_block * t->store->block_bytes;
}

// --- images --------------------------------------------------------------------------------------

static void listed(struct tiers *t, struct sequence *s) {
    DL_APPEND2(t->images, s, image_prev, image_next);
    t->n_images++;
}

int tiers_image(struct tiers *t, struct sequence *s) {
    if (s->image.copies) return 0;
    if (t->n_images == TIERS_MAX_IMAGES) return E_NOMEM;
    TRY(kv_image_init(&s->image, &t->host, &s->ring));
    listed(t, s);
    return 0;
}

int tiers_fork(struct tiers *t, struct sequence *to, const struct sequence *from, int64_t n) {
    assert(!to->image.copies && n >= 1 && n <= from->n_image);
    int32_t *ids = t->n_images < TIERS_MAX_IMAGES ? malloc((size_t)n * sizeof *ids) : NULL;
    if (!ids || kv_image_fork(&to->image, &from->image, n, t->store->block_tokens) < 0) {
        free(ids);
        return E_NOMEM;
    }
    memcpy(ids, from->image_ids, (size_t)n * sizeof *ids);
    to->image_ids = ids;
    to->n_image = n;
    to->image_group = from->image_group;
    to->image_prompt = from->image_prompt;
    listed(t, to);
    return 0;
}

void tiers_used(struct tiers *t, struct sequence *s) {
    if (!s->image.copies) return;
    DL_DELETE2(t->images, s, image_prev, image_next);
    DL_APPEND2(t->images, s, image_prev, image_next);
}

void tiers_drop(struct tiers *t, struct sequence *s) {
    if (t->copying == s) (void)tiers_collect(t, true, 0);
    if (!s->image.copies) return;
    DL_DELETE2(t->images, s, image_prev, image_next);
    t->n_images--;
    kv_image_release(&s->image);
    free(s->image_ids);
    s->image_ids = NULL;
    s->n_image = 0;
    s->n_filed = 0;
}

// --- copies --------------------------------------------------------------------------------------

static int begin(struct tiers *t, struct sequence *s, bool load, int64_t now_us) {
    void *host[TIER_BATCH];
    int32_t blocks[TIER_BATCH];
    const struct backend_ops *ops = t->backend->ops;
    for (int32_t i = 0; i < t->n_slots; i++) {
        host[i] = tiers_host(t, s->image.copies[t->slots[i]].host);
        blocks[i] = s->ring.blocks[t->slots[i]];
    }
    t->copying = s;
    t->loading = load;
    t->copy_began_us = now_us;
    TRY(lead_move(t->lead, load ? PLAN_LOAD : PLAN_SAVE, blocks, host, t->n_slots));
    int rc = load ? ops->kv_blocks_load(t->backend, t->store, blocks, host, t->n_slots)
                  : ops->kv_blocks_save(t->backend, t->store, host, blocks, t->n_slots);
    if (rc == 0) return 1;
    t->copying = NULL;
    return rc;
}

int tiers_save(struct tiers *t, struct sequence *s, int32_t most, int64_t now_us) {
    assert(!t->copying);
    t->n_slots = 0;
    while (t->n_slots < most && t->n_slots < TIER_BATCH) {
        int32_t slot;
        int rc = kv_image_next(&s->image, &s->ring, &slot);
        if (rc == E_NOMEM && t->n_slots == 0) return rc;
        if (rc <= 0) break;
        // Marked before it is copied, so that kv_image_next returns another one. A copy fails only if
        // the device fails, and then every cache is lost.
        kv_image_copied(&s->image, &s->ring, slot);
        t->slots[t->n_slots++] = slot;
    }
    return t->n_slots == 0 ? 0 : begin(t, s, false, now_us);
}

int tiers_load(struct tiers *t, struct sequence *s, const int32_t *slots, int32_t n,
               int64_t now_us) {
    assert(!t->copying && n >= 1);
    t->n_slots = n < TIER_BATCH ? n : TIER_BATCH;
    memcpy(t->slots, slots, (size_t)t->n_slots * sizeof *slots);
    TRY(begin(t, s, true, now_us));
    return t->n_slots;
}

const struct kv_load *tiers_load_with_step(struct tiers *t, struct sequence *s,
                                           const int32_t *slots, int32_t n, int64_t *waited_us) {
    assert(!t->copying && n >= 1 && n <= TIER_STEP_BLOCKS);
    for (int32_t i = 0; i < n; i++) {
        t->step_host[i] = tiers_host(t, s->image.copies[slots[i]].host);
        t->step_blocks[i] = s->ring.blocks[slots[i]];
    }
    t->step_load = (struct kv_load){t->store, t->step_blocks, t->step_host, n};
    t->n_slots = n;
    t->copying = s;
    t->loading = t->with_step = true;
    t->waited_us = waited_us;
    return &t->step_load;
}

int tiers_collect(struct tiers *t, bool wait, int64_t now_us) {
    struct sequence *s = t->copying;
    if (!s) return 1;
    const struct backend_ops *ops = t->backend->ops;
    struct kv_copied how = {0};
    int rc = ops->kv_copies_done ? ops->kv_copies_done(t->backend, wait, &how) : 1;
    if (rc == 0) return 0;
    double bytes = (double)t->n_slots * (double)t->store->block_bytes;
    bool with_step = t->with_step;
    // Without a device clock, the host's clock gives the time up to this poll. For copies beside a
    // step it would give the step's time, so they then count for nothing.
    int64_t took = how.took_us > 0 || with_step ? how.took_us : now_us - t->copy_began_us;
    if (rc == 1 && t->loading) rate_note(&t->load_rate, bytes, took);
    if (t->waited_us) *t->waited_us += how.held_us;
    t->waited_us = NULL;
    t->copying = NULL;
    t->with_step = false;
    // With transit, other caches on the way to their snapshots need the room.
    if (with_step && t->transit && !s->resume) tiers_drop(t, s);
    return rc;
}

// --- whole blocks --------------------------------------------------------------------------------

size_t tiers_whole_bytes(const struct tiers *t) {
    return lead_is_alone(t->lead) ? t->store->block_bytes : t->lead->whole_bytes;
}

int tiers_pack(struct tiers *t, const int32_t *host, int32_t n, void *const *whole) {
    for (int32_t i = 0; i < n; i++) memcpy(whole[i], tiers_host(t, host[i]), t->store->block_bytes);
    return lead_fetch(t->lead, host, n, whole);
}

int tiers_unpack(struct tiers *t, const int32_t *host, int32_t n, const void *const *whole) {
    for (int32_t i = 0; i < n; i++) memcpy(tiers_host(t, host[i]), whole[i], t->store->block_bytes);
    return lead_put(t->lead, host, n, whole);
}

enum { TRY_EXPENSIVE = 32 };

bool tiers_read_is_slow(struct tiers *t, double bytes, int64_t tokens) {
    double compute = rate_cost(t->prefill_rate, (double)tokens);
    if (t->read_rate == 0 || compute == 0) return false; // not measured yet
    double read = t->open_us + rate_cost(t->read_rate, bytes) + rate_cost(t->load_rate, bytes);
    return read > compute && ++t->n_expensive % TRY_EXPENSIVE != 0;
}
