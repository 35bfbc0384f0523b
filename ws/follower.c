// Followers by number, and the session service's callbacks on their way to them. See follower.h.
#include "ws/follower.h"
#include "base/array.h"
#include "base/err.h"
#include "ws/net/net.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A long event with many followers is written to some followers for this time, then other connections are served.
#define PUSH_US 1000
#define STALL_PATIENCE_US 5000000
// The low bits of a number are a slot, the others count.
#define SLOT_BITS 20
#define SLOT_MASK (((uint64_t)1 << SLOT_BITS) - 1)

int followers_add(struct followers *fs, struct follower *f) {
    size_t slot = 0;
    while (slot < fs->n_slots && fs->slots[slot]) slot++;
    if (slot == fs->n_slots) {
        size_t n = fs->n_slots ? fs->n_slots * 2 : 64;
        if (n > (size_t)1 << SLOT_BITS) return E_NOMEM;
        TRY(ARRAY_RESIZE(fs->slots, n));
        memset(fs->slots + slot, 0, (n - slot) * sizeof(*fs->slots));
        fs->n_slots = n;
    }
    fs->slots[slot] = f;
    fs->n++;
    f->client = ++fs->last << SLOT_BITS | slot;
    return 0;
}

static struct follower *find(struct followers *fs, uint64_t client) {
    size_t slot = client & SLOT_MASK;
    struct follower *f = slot < fs->n_slots ? fs->slots[slot] : NULL;
    return f && f->client == client ? f : NULL;
}

void followers_remove(struct followers *fs, struct follower *f) {
    fs->slots[f->client & SLOT_MASK] = NULL;
    fs->n--;
}

void followers_release(struct followers *fs) {
    free(fs->slots);
    free(fs->fresh);
    memset(fs, 0, sizeof(*fs));
}

void followers_each(struct followers *fs, void (*fn)(struct follower *f, int64_t now_us),
                    int64_t now_us) {
    for (size_t i = 0; i < fs->n_slots; i++)
        if (fs->slots[i]) fn(fs->slots[i], now_us);
}

// --- pushing ---

bool follower_push_later(struct followers *fs, struct follower *f) {
    if (f->fresh) return true;
    if (ARRAY_RESERVE(fs->fresh, fs->cap_fresh, fs->n_fresh + 1) < 0) return false;
    fs->fresh[fs->n_fresh++] = f->client;
    f->fresh = true;
    return true;
}

bool followers_push(struct followers *fs) {
    int64_t end_us = net_now_us() + PUSH_US;
    bool any = fs->n_fresh > 0;
    size_t n = 0;
    while (n < fs->n_fresh && (n == 0 || net_now_us() < end_us)) { // push() may add more
        struct follower *f = find(fs, fs->fresh[n++]);
        if (!f) continue;
        f->fresh = false;
        f->ops->push(f);
    }
    fs->n_fresh -= n;
    if (fs->n_fresh) memmove(fs->fresh, fs->fresh + n, fs->n_fresh * sizeof(*fs->fresh));
    return any;
}

// --- from the session service ---

static void on_answer(void *ctx, uint64_t client, const struct session_answer *a) {
    struct follower *f = find(ctx, client);
    if (f && f->ops->on_answer) f->ops->on_answer(f, a);
}
static void on_ready(void *ctx, uint64_t client, struct session *s) {
    struct follower *f = find(ctx, client);
    if (f && f->ops->on_ready) f->ops->on_ready(f, s);
}
static void on_progress(void *ctx, uint64_t client, struct session *s, int64_t turn, int64_t done,
                        int64_t total) {
    struct follower *f = find(ctx, client);
    if (f && f->ops->on_progress) f->ops->on_progress(f, s, turn, done, total);
}
static void on_stalled(void *ctx, uint64_t client, struct session *s, const struct err *why,
                       int64_t stalled_us) {
    struct follower *f = find(ctx, client);
    char message[640];
    if (f && f->ops->on_stalled) f->ops->on_stalled(f, s, why);
    if (!f || !f->ops->on_store_failed || stalled_us < STALL_PATIENCE_US) return;
    snprintf(message, sizeof message,
             "the answer cannot be saved: %s. What there is of it is kept and saved when the disk "
             "works again",
             why->text);
    f->ops->on_store_failed(f, message);
}
static void on_moved(void *ctx, uint64_t client, struct session *s, int64_t turn,
                     const char *reason) {
    struct follower *f = find(ctx, client);
    if (f && f->ops->on_moved) f->ops->on_moved(f, s, turn, reason);
}
static void on_gone(void *ctx, uint64_t client, struct session *s) {
    struct follower *f = find(ctx, client);
    if (f && f->ops->on_gone) f->ops->on_gone(f, s);
}
static void on_changed(void *ctx, int64_t key, const char *owner, const char *id, bool removed) {
    struct followers *fs = ctx;
    for (size_t i = 0; i < fs->n_slots; i++)
        if (fs->slots[i] && fs->slots[i]->ops->on_changed)
            fs->slots[i]->ops->on_changed(fs->slots[i], key, owner, id, removed);
}

void followers_callbacks(struct followers *fs, struct sessions_callbacks *out) {
    *out = (struct sessions_callbacks){.ctx = fs,
                                       .on_answer = on_answer,
                                       .on_ready = on_ready,
                                       .on_progress = on_progress,
                                       .on_gone = on_gone,
                                       .on_changed = on_changed,
                                       .on_stalled = on_stalled,
                                       .on_moved = on_moved};
}
