// Copies caches from the device to host memory, and lets them leave the device.
//
// A copy begins for one of three reasons. It runs between steps, a few blocks at a time:
//   - the owner asked (the idle clock);
//   - a step finds the pool empty: the turn that needs blocks takes no part in this step;
//   - running turns will soon need blocks that are neither free nor clean: the least recently used
//     caches are copied ahead, and keep their blocks until a turn needs them.
// While turns run, copies take a sixteenth of the time, or half of it if a turn waits for the blocks.
// Without running turns they run in slices, between which the loop reads commands.
//
// No wait is endless: a cache that is copied becomes clean, parked or dropped.
#include "engine/cache/movers.h"

#include <stdlib.h>
#include <string.h>

enum { SHARE = 16, SHARE_PRESSED = 2, SLICE_US = 5000, SLICE_BATCHES = 64, BUSY_BLOCKS = 2 };

// --- leave the device ----------------------------------------------------------------------------

// The copy is complete: frees the device's blocks.
static void park_now(struct caches *c, struct sequence *s) {
    cache_idle_remove(c, s);
    sequence_drop(s);
    cache_set(c, s, CACHE_PARKED);
    warm_end(c, s);
    c->look_for_writes = true;
    if (s->leaves_engine) {
        cache_pack(c, s);
        return;
    }
    // A cache on its way to a snapshot is dropped next, and the owner gets that event only.
    if (!c->tiers.transit) emit_parked(c->emit, s->id, s->why, s->image.n_held);
}

void cache_ask_to_park(struct caches *c, struct sequence *s, enum engine_release why) {
    s->why = why;
    if (s->state == CACHE_CLEAN)
        park_now(c, s);
    else
        cache_set(c, s, CACHE_PARKING);
}

void cache_park(struct caches *c, struct sequence *s) {
    if (s->state == CACHE_PARKED || s->resume) return;
    if (!tiers_on(&c->tiers) || !cache_is_on_device(s->state))
        cache_drop(c, s, RELEASE_ASKED);
    else
        cache_ask_to_park(c, s, RELEASE_ASKED);
}

// --- copies --------------------------------------------------------------------------------------

static bool image_is_current(const struct sequence *s) {
    return s->image.copies && s->image_version == s->version;
}

// Makes the image one of the ring's present contents: cuts off the part that the last turn changed.
static int image_begin(struct caches *c, struct sequence *s) {
    struct kv_ring *r = &s->ring;
    if (image_is_current(s)) return 0;
    bool other = s->image.copies &&
                 (s->image.memory_len != r->memory_len || s->image.sink_len != r->sink_len ||
                  s->image_group != s->group || !sequence_same_prompt(s->image_prompt, s->prompt));
    if (other) cache_drop_image(c, s);
    int32_t *ids = malloc((size_t)r->n_tokens * sizeof *ids);
    if (!ids || tiers_image(&c->tiers, s) < 0) {
        free(ids);
        return E_NOMEM;
    }
    int64_t same = sequence_common_prefix(s->image_ids, s->n_image, s->ids, r->n_tokens);
    kv_image_cut(&s->image, same, r->block_tokens);
    if (same != s->n_image || same != r->n_tokens) s->n_filed = 0;
    memcpy(ids, s->ids, (size_t)r->n_tokens * sizeof *ids);
    free(s->image_ids);
    s->image_ids = ids;
    s->n_image = r->n_tokens;
    s->image_group = s->group;
    s->image_prompt = s->prompt;
    s->image_version = s->version;
    return 0;
}

// Whether to try again at once. *rc becomes E_BUSY if room follows when a snapshot is written.
static bool try_again(struct caches *c, const struct sequence *s, int *rc) {
    if (*rc != E_NOMEM) return false;
    bool pressed = s->state == CACHE_PARKING && s->why == RELEASE_PRESSURE;
    enum room room = cache_make_host_room(c, s, pressed || c->park_pressed);
    if (room == ROOM_LATER) *rc = E_BUSY;
    return room == ROOM_MADE;
}

// Begins a batch of copies. 1: begun; 0: the image is complete; E_BUSY: try again later; E_NOMEM:
// host memory has no room; E_DEVICE.
static int save_some(struct caches *c, struct sequence *s, int32_t most, int64_t now) {
    int rc;
    do rc = image_begin(c, s);
    while (try_again(c, s, &rc));
    if (rc < 0) return rc;
    do rc = tiers_save(&c->tiers, s, most, now);
    while (try_again(c, s, &rc));
    return rc;
}

// --- choice of the next cache --------------------------------------------------------------------

// Parks caches again that were resumed on a hint and whose turn has not come in time.
static void end_hints(struct caches *c, int64_t now) {
    struct sequence *next;
    for (struct sequence *s = c->n_warm > 0 ? c->idle : NULL; s; s = next) {
        next = s->idle_next;
        bool over = s->warm_until_us && s->warm_until_us <= now;
        if (!over || !cache_is_on_device(s->state) || s->state == CACHE_PARKING) continue;
        cache_ask_to_park(c, s, RELEASE_ASKED);
    }
}

// The next cache to copy: one that is parking, else one whose blocks may soon be needed.
static struct sequence *next_to_save(struct caches *c) {
    int64_t short_of = c->load.blocks_soon - c->pool.n_free;
    struct sequence *ahead = NULL;
    for (struct sequence *s = c->idle; s; s = s->idle_next) {
        if (short_of <= 0 && c->n_in[CACHE_PARKING] == 0) return NULL;
        if (s->state == CACHE_PARKING) return s;
        if (s->state == CACHE_CLEAN) short_of -= s->ring.n_held;
        if (!ahead && (s->state == CACHE_DEVICE || s->state == CACHE_COPYING)) ahead = s;
    }
    return short_of > 0 ? ahead : NULL;
}

static void saved(struct caches *c, struct sequence *s, int rc) {
    bool parking = s->state == CACHE_PARKING;
    if (rc < 0 && parking)
        cache_drop(c, s, s->why);
    else if (rc < 0)
        cache_set(c, s, CACHE_DEVICE_ONLY);
    else if (rc > 0 && !parking)
        cache_set(c, s, CACHE_COPYING);
    else if (rc == 0 && parking)
        park_now(c, s);
    else if (rc == 0)
        cache_set(c, s, CACHE_CLEAN);
}

// Begins one batch. False: nothing can be copied now.
static bool park_some(struct caches *c, int32_t most, int64_t now) {
    end_hints(c, now);
    struct sequence *s = next_to_save(c);
    if (!s) return false;
    int rc = save_some(c, s, most, now);
    if (rc == E_BUSY) return false;
    if (rc == E_DEVICE)
        c->device_lost = true;
    else
        saved(c, s, rc);
    return rc != E_DEVICE;
}

bool caches_park(struct caches *c, bool stepped, int64_t round_us) {
    struct tiers *t = &c->tiers;
    if (!tiers_on(t)) return false;
    if (c->stepping && !c->park_pressed) return true; // a turn's step comes first
    int64_t began = clock_mono_us(c->emit->clock), now = began;
    if (stepped && c->park_debt_us > 0) {
        c->park_debt_us -= round_us / (c->park_pressed ? SHARE_PRESSED : SHARE);
        if (c->park_debt_us > 0) return true;
    }
    for (int i = 0; i < (stepped ? 1 : SLICE_BATCHES) && now - began < SLICE_US; i++) {
        int rc = tiers_collect(t, false, now);
        if (rc == 0) return true; // the device is still copying
        if (rc < 0) c->device_lost = true;
        if (rc < 0 || !park_some(c, stepped ? BUSY_BLOCKS : TIER_BATCH, now)) {
            c->park_pressed = false;
            return false;
        }
        now = clock_mono_us(c->emit->clock);
        // A backend that copies synchronously has finished: this measures the batch.
        (void)tiers_collect(t, false, now);
    }
    c->park_debt_us = stepped ? now - began : 0;
    return true;
}
