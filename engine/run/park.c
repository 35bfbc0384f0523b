// Who gives up the device's blocks, and what becomes of them: copied to host memory in the
// background and then given up (parked), or, where host memory is not to be had, just given up.
//
// Three things start a copy, all between steps, a few blocks at a time:
//   - the owner asked (the idle clock);
//   - a step finds the pool dry: the turn that wants blocks sits this step out, the others go on;
//   - blocks that running turns will want soon are neither free nor clean: the sequences used
//     longest ago are copied ahead, and keep their blocks until somebody needs them.
// While turns run, copying ahead gets a sixteenth of the time, and half of it when somebody waits;
// nobody runs: it goes on in slices between which commands are looked at.
//
// Nothing waits for ever: the sequence that is copied becomes clean or is given up.
#include "engine/run/instance.h"

#include "base/log.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { SHARE = 16, SHARE_PRESSED = 2, SLICE_US = 5000, SLICE_BATCHES = 64, BUSY_BLOCKS = 2 };

static struct sequence *sequence_of(struct sched_idle *i) {
    return (struct sequence *)((char *)i - offsetof(struct sequence, idle));
}

void instance_park_ask(struct instance *in, struct sequence *s, bool asked) {
    in->n_park_asked += (asked ? 1 : 0) - (s->park_asked ? 1 : 0);
    s->park_asked = asked;
    if (!asked) s->park_pressed = false;
}

void instance_unparked(struct instance *in, struct sequence *s) {
    in->tiers.n_parked -= s->parked;
    s->parked = s->leaving = false;
}

// --- leaving -------------------------------------------------------------------------------------

void instance_give_up(struct instance *in, struct sequence *s, enum engine_release why) {
    int32_t blocks = s->ring.n_held;
    bool filed = snapshots_find(&in->snapshots, s->names.id);
    instance_resume_abort(in, s);
    tiers_drop(&in->tiers, s);
    sequence_drop(s);
    instance_unparked(in, s);
    instance_not_warm(in, s);
    instance_park_ask(in, s, false);
    metric_add(in->metrics.released[why], 1);
    emit_released(&in->emit, s->id, why, blocks, filed);
    instance_forget_if_empty(in, s);
}

// The image is whole: the device's blocks go.
static void park_now(struct instance *in, struct sequence *s) {
    enum engine_release why = s->park_pressed ? RELEASE_PRESSURE : RELEASE_ASKED;
    sched_idle_remove(&in->sched, &s->idle);
    sequence_drop(s);
    s->parked = true;
    instance_park_ask(in, s, false);
    instance_not_warm(in, s);
    in->tiers.n_parked++;
    in->persist_look = true;
    s->leaving = in->tiers.transit;
    s->leaving_why = why;
    if (s->leaving) return; // the owner hears of it when it is written
    metric_add(in->metrics.parked[why], 1);
    emit_parked(&in->emit, s->id, why, s->image.n_held);
}

// Host memory for `s`: the image used longest ago goes, if that was before s was used. One that
// ought to have a file and has none yet is written first, unless a turn waits (pressed). What is
// being written gives no room until it is. A turn that s has makes it the one used last.
enum room { ROOM_NONE, ROOM_MADE, ROOM_LATER };
static enum room make_room(struct instance *in, const struct sequence *s, bool pressed) {
    for (struct sequence *o = in->tiers.images; o; o = o->image_next) {
        if (o == s || o == in->tiers.copying || o->resume) continue;
        if (o->used_us > s->used_us && !s->turn) return ROOM_NONE;
        if (o->writing && !pressed) return ROOM_LATER;
        if (o->writing) continue;
        bool wanted = o->parked && instance_file_wanted(in, o);
        if (wanted && !pressed) {
            int rc = instance_file_write(in, o);
            if (rc == 0 || rc == E_BUSY) return ROOM_LATER;
        } else if (wanted) {
            instance_file_given_up(in, "pressed");
        }
        if (o->parked)
            instance_give_up(in, o, RELEASE_PRESSURE);
        else
            tiers_drop(&in->tiers, o);
        return ROOM_MADE;
    }
    return ROOM_NONE;
}

int instance_host_room(struct instance *in, struct sequence *s) {
    // Nobody gives way to a hint.
    return s->turn && make_room(in, s, true) == ROOM_MADE ? 0 : E_NOMEM;
}

// --- copies --------------------------------------------------------------------------------------

// The image is about what the ring holds now: what the last turn changed is cut off.
static int image_begin(struct instance *in, struct sequence *s) {
    struct kv_ring *r = &s->ring;
    if (s->image_state != IMAGE_STALE) return 0;
    bool other =
        s->image.copies && (s->image.memory_len != r->memory_len ||
                            s->image.sink_len != r->sink_len || s->image_group != s->group);
    if (other) tiers_drop(&in->tiers, s);
    int32_t *ids = malloc((size_t)r->n_tokens * sizeof *ids);
    if (!ids || tiers_image(&in->tiers, s) < 0) {
        free(ids);
        return E_NOMEM;
    }
    int64_t same = sequence_common_prefix(s->image_ids, s->n_image, s->ids, r->n_tokens);
    kv_image_cut(&s->image, same, r->map.block_tokens);
    if (same != s->n_image || same != r->n_tokens) s->n_filed = 0;
    memcpy(ids, s->ids, (size_t)r->n_tokens * sizeof *ids);
    free(s->image_ids);
    s->image_ids = ids;
    s->n_image = r->n_tokens;
    s->image_group = s->group;
    s->image_state = IMAGE_FRESH;
    s->image_version++;
    return 0;
}

// Whether to try again; *rc becomes E_BUSY where there will be room when somebody has been written.
static bool try_again(struct instance *in, const struct sequence *s, int *rc) {
    if (*rc != E_NOMEM) return false;
    enum room room = make_room(in, s, s->park_pressed || in->park_pressed);
    if (room == ROOM_LATER) *rc = E_BUSY;
    return room == ROOM_MADE;
}

// A batch of its copies. 1: begun; 0: the image is whole; E_BUSY: later; negative: there is no room
// for it.
static int save_some(struct instance *in, struct sequence *s, int32_t most, int64_t now) {
    int rc;
    do rc = image_begin(in, s);
    while (try_again(in, s, &rc));
    if (rc < 0) return rc;
    do rc = tiers_save(&in->tiers, s, most, now);
    while (try_again(in, s, &rc));
    return rc;
}

// --- whose turn it is ----------------------------------------------------------------------------

// Blocks that running turns will want in their next steps.
static int64_t wanted_soon(const struct instance *in) {
    int64_t n = 0;
    for (int32_t i = 0; i < in->sched.n_running; i++) {
        const struct turn *t = (const struct turn *)in->sched.running[i];
        int64_t left = t->sched.reserve - t->sequence->ring.n_held;
        int64_t soon = t->sched.n_todo / in->opt.block_tokens + 2;
        if (left > 0) n += left < soon ? left : soon;
    }
    return n;
}

// The next one to copy: who has been asked to go, else who may soon have to. NULL: nobody.
static struct sequence *next_to_save(struct instance *in, int64_t now) {
    int64_t short_of = wanted_soon(in) - in->pool.n_free;
    struct sequence *ahead = NULL;
    struct sched_idle *head = &in->sched.idle;
    for (struct sched_idle *i = head->next; i != head; i = i->next) {
        struct sequence *s = sequence_of(i);
        if (s->ring.n_held == 0 || s->resume) continue;
        if (s->warm_until_us && s->warm_until_us <= now) instance_park_ask(in, s, true);
        if (s->park_asked) return s;
        if (s->image_state == IMAGE_WHOLE)
            short_of -= s->ring.n_held;
        else if (!ahead && !s->park_refused)
            ahead = s;
        if (short_of <= 0 && in->n_park_asked == 0 && in->n_warm == 0) return NULL;
    }
    return short_of > 0 ? ahead : NULL;
}

static void cannot_park(struct instance *in, struct sequence *s) {
    s->park_refused = true; // until it has been used again
    if (s->park_asked) instance_give_up(in, s, s->park_pressed ? RELEASE_PRESSURE : RELEASE_ASKED);
}

static void is_whole(struct instance *in, struct sequence *s) {
    s->image_state = IMAGE_WHOLE;
    if (s->park_asked) park_now(in, s);
}

// One batch. False when there is nothing to do.
static bool park_some(struct instance *in, int32_t most, int64_t now) {
    struct sequence *s = next_to_save(in, now);
    if (!s) return false;
    int rc = save_some(in, s, most, now);
    if (rc == E_BUSY) return false;
    if (rc == E_DEVICE)
        atomic_store(&in->load.device_lost, true);
    else if (rc < 0)
        cannot_park(in, s);
    else if (rc == 0)
        is_whole(in, s);
    return rc != E_DEVICE;
}

bool instance_park(struct instance *in, bool busy, int64_t step_us) {
    struct tiers *t = &in->tiers;
    if (!tiers_on(t)) return false;
    if (in->stepping && !in->park_pressed) return true; // a turn's step comes first
    int64_t began = clock_mono_us(in->emit.clock), now = began;
    if (busy && in->park_debt_us > 0) {
        in->park_debt_us -= step_us / (in->park_pressed ? SHARE_PRESSED : SHARE);
        if (in->park_debt_us > 0) return true;
    }
    for (int i = 0; i < (busy ? 1 : SLICE_BATCHES) && now - began < SLICE_US; i++) {
        int rc = tiers_collect(t, false, now);
        if (rc == 0) return true; // a device is at it
        if (rc < 0) atomic_store(&in->load.device_lost, true);
        if (rc < 0 || !park_some(in, busy ? BUSY_BLOCKS : TIER_BATCH, now)) {
            in->park_pressed = false;
            return false;
        }
        now = clock_mono_us(in->emit.clock);
        // Where copies are done when they return, this one's are, and its time is known.
        (void)tiers_collect(t, false, now);
    }
    in->park_debt_us = busy ? now - began : 0;
    return true;
}

enum evicted instance_evict(struct instance *in) {
    struct sched_idle *head = &in->sched.idle, *next;
    struct sequence *oldest = NULL;
    for (struct sched_idle *i = head->next; i != head; i = next) {
        struct sequence *s = sequence_of(i);
        next = i->next;
        if (s->ring.n_held == 0) { // its turn is queued: there is nothing to take, or to tell
            sched_idle_remove(&in->sched, i);
            continue;
        }
        if (s->resume) continue; // its turn is queued, and what it holds is not there yet
        if (!oldest) oldest = s;
        if (!tiers_on(&in->tiers)) break;
        if (s->image_state != IMAGE_WHOLE || s == in->tiers.copying) continue;
        s->park_pressed = true;
        park_now(in, s);
        return EVICT_DONE;
    }
    if (!oldest) return instance_hints_give_way(in) ? EVICT_WAIT : EVICT_NONE;
    if (!tiers_on(&in->tiers) || oldest->park_refused) {
        sched_idle_remove(&in->sched, &oldest->idle);
        instance_give_up(in, oldest, RELEASE_PRESSURE);
        return EVICT_DONE;
    }
    instance_park_ask(in, oldest, true);
    oldest->park_pressed = in->park_pressed = true;
    return EVICT_WAIT;
}
