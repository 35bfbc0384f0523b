// Host memory for caches that leave the device, in blocks of a bounded arena. This is the mechanism:
// room, order of use, batches of copies, and measured rates. park.c decides which cache is parked,
// load.c which comes back.
//
// Engine thread only.
#pragma once
#include "kernels/backend.h"
#include "kvcache/image.h"

struct lead;
struct sequence;

enum {
    TIER_BATCH = 32,         // most blocks of one batch of copies
    TIER_STEP_BLOCKS = 256,  // most that come back with a step
    TIERS_MAX_IMAGES = 16384 // most sequences with a copy in host memory
};

struct tiers {
    struct backend *backend;
    struct kv_store *store;
    struct lead *lead;       // the other ranks copy the same blocks; NULL: there are none
    struct kv_pool host;     // host block ids; n_blocks 0: there is no host tier
    char *memory;            // (host.n_blocks, block_bytes)
    struct sequence *images; // sequences with an image, the least recently used first
    int32_t n_images, n_parked;
    bool transit;        // host memory is only a buffer on the way to snapshots
    int32_t n_expensive; // snapshots that seemed slower than recomputing
    // The batch under way: one at a time.
    struct sequence *copying; // NULL: none
    int32_t slots[TIER_BATCH], n_slots;
    bool loading;
    int64_t copy_began_us;
    bool with_step;     // it comes with a step (load of struct batch)
    int64_t *waited_us; // of that step's turn; NULL: the turn has ended
    struct kv_load step_load;
    void *step_host[TIER_STEP_BLOCKS];
    int32_t step_blocks[TIER_STEP_BLOCKS];
    // Running means, in bytes or tokens per microsecond; 0: not measured yet. read_rate: of
    // snapshots; open_us: the time to read a snapshot's head and table.
    double load_rate, read_rate, prefill_rate, open_us;
};

// bytes 0: no tier. The memory is taken as it is used, on a GPU at once (pinned). transit: as in struct tiers.
int tiers_init(struct tiers *t, struct backend *backend, struct lead *lead, struct kv_store *store,
               int64_t bytes, bool transit, struct err *err);
void tiers_release(struct tiers *t); // after the last image has gone
static inline bool tiers_on(const struct tiers *t) {
    return t->host.n_blocks > 0;
}
// The bytes of a host block (store->block_bytes), laid out as on the device. Only while tiers_on.
void *tiers_host(const struct tiers *t, int32_t host_block);

// Makes the sequence's image, if it has none, and lists it as the one used last. E_NOMEM.
int tiers_image(struct tiers *t, struct sequence *s);
// `to`, which has no image, shares the host blocks of the first n positions of `from`: nothing is
// copied. E_NOMEM.
int tiers_fork(struct tiers *t, struct sequence *to, const struct sequence *from, int64_t n);
void tiers_used(struct tiers *t, struct sequence *s); // its image, if any, was used last
void tiers_drop(struct tiers *t, struct sequence *s); // drops its image; waits for copies of it

// Begins a batch, at most `most` blocks. 1: begun; 0: nothing to copy, the image is whole; E_NOMEM:
// no host block is free; E_DEVICE.
int tiers_save(struct tiers *t, struct sequence *s, int32_t most, int64_t now_us);
// Begins to copy the first of these n slots (n >= 1) back, at most one batch. Returns their number,
// or E_DEVICE.
int tiers_load(struct tiers *t, struct sequence *s, const int32_t *slots, int32_t n,
               int64_t now_us);
// Copies all n slots (1 <= n <= TIER_STEP_BLOCKS) back with the next step, whose batch gets this
// load. The time that the step waits for it is added to *waited_us.
const struct kv_load *tiers_load_with_step(struct tiers *t, struct sequence *s,
                                           const int32_t *slots, int32_t n, int64_t *waited_us);
// Host blocks as they travel to a file or to another engine: whole[i] (tiers_whole_bytes) has the parts
// of all ranks. E_NOMEM, E_DEVICE: only with several ranks.
size_t tiers_whole_bytes(const struct tiers *t);
int tiers_pack(struct tiers *t, const int32_t *host, int32_t n, void *const *whole);
int tiers_unpack(struct tiers *t, const int32_t *host, int32_t n, const void *const *whole);

// Completes the batch under way. 1: done, or there was none; 0: not done yet (never with wait);
// E_DEVICE.
int tiers_collect(struct tiers *t, bool wait, int64_t now_us);

// Whether reading these bytes of a snapshot takes longer than computing these tokens. One in
// TRY_EXPENSIVE that seems slower is read all the same, to measure again: a disk that was slow once
// may be fast now.
bool tiers_read_is_slow(struct tiers *t, double bytes, int64_t tokens);

// Running means: a new value weighs an eighth.
static inline void rate_note(double *rate, double amount, int64_t took_us) {
    if (took_us <= 0 || amount <= 0) return;
    double now = amount / (double)took_us;
    *rate = *rate == 0 ? now : *rate + (now - *rate) / 8;
}
// As rate_note, of values that are no rates. *mean 0: none yet.
static inline void rate_mean(double *mean, double now) {
    *mean = *mean == 0 ? now : *mean + (now - *mean) / 8;
}
// The estimated time for an amount, in microseconds; 0: no estimate yet.
static inline double rate_cost(double rate, double amount) {
    return rate > 0 ? amount / rate : 0;
}
