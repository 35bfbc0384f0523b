// Chooses parked caches to write to snapshots, and handles the results of the writes.
//
// A cache is written only when it is about to leave host memory, so that caches in frequent use cost
// no disk writes: the least recently used ones while less than a quarter of host memory is free, and
// a cache whose room is needed. If host memory is only a buffer on the way to snapshots
// (tiers.transit), a parked cache is written at once. When the engine stops, all caches are written.
//
// A turn never waits for a disk: it takes the room, and snapshots not written by then are given up.
// So are those that a full or slow disk does not take. The engine counts and logs each once; the next
// turn recomputes.
#include "engine/cache/movers.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>

enum {
    LOW_PART = 4, // with less than a quarter of host memory free, caches are written ahead
    MOST_BEGUN = 2,
    WRITE_US = 20000000, // most for one snapshot: a slower disk is of no use
};

// --- one snapshot --------------------------------------------------------------------------------

static bool has_current_snapshot(struct caches *c, const struct sequence *s) {
    return s->n_filed == s->n_image && snapshots_find(&c->snapshots, s->names.id);
}

bool cache_wants_snapshot(struct caches *c, const struct sequence *s) {
    if (!snapshots_on(&c->snapshots) || !s->names.id[0] || s->n_filed == NOT_WRITABLE) return false;
    return s->state == CACHE_PARKED && s->image.copies && s->n_image > 0 &&
           !has_current_snapshot(c, s) &&
           !tiers_read_is_slow(&c->tiers,
                               (double)s->image.n_held * (double)tiers_whole_bytes(&c->tiers),
                               s->n_image);
}

void cache_count_given_up(struct caches *c, const char *reason) {
    static const char *const reasons[N_GIVEN_UP] = GIVEN_UP_REASONS;
    int i = 0;
    while (i < N_GIVEN_UP - 1 && strcmp(reasons[i], reason) != 0) i++;
    metric_add(c->metrics->given_up[i], 1);
}

static void give_up(struct caches *c, struct sequence *s, const char *reason, const char *why) {
    char quoted[600];
    if (s) s->n_filed = NOT_WRITABLE;
    cache_count_given_up(c, reason);
    log_warn("snapshot.given_up", "reason=%s why=%s", reason,
             log_quote(quoted, sizeof quoted, why));
}

static int by_number(const void *a, const void *b) {
    uint64_t x = ((const struct kv_snapshot_block *)a)->number,
             y = ((const struct kv_snapshot_block *)b)->number;
    return (x > y) - (x < y);
}

// The image's blocks, ascending. The job holds each too, so they do not change until it is done.
static int take_image(struct caches *c, const struct sequence *s, struct snapshot_job *j) {
    const struct kv_image *m = &s->image;
    size_t n = (size_t)m->n_held;
    j->blocks = malloc(n * sizeof *j->blocks);
    j->memory = malloc(n * sizeof *j->memory);
    j->host = malloc(n * sizeof *j->host);
    j->ids = malloc((size_t)s->n_image * sizeof *j->ids);
    if (!j->blocks || !j->memory || !j->host || !j->ids) return E_NOMEM;
    memcpy(j->ids, s->image_ids, (size_t)s->n_image * sizeof *j->ids);
    int32_t k = 0;
    for (int32_t i = 0; i < m->n_slots; i++) { // sum holds the host block until all are sorted
        if (m->copies[i].host < 0) continue;
        j->blocks[k].number = (uint64_t)m->copies[i].number;
        j->blocks[k++].sum = (uint64_t)m->copies[i].host;
    }
    qsort(j->blocks, n, sizeof *j->blocks, by_number);
    for (size_t i = 0; i < n; i++) {
        j->host[i] = (int32_t)j->blocks[i].sum;
        j->memory[i] = tiers_host(&c->tiers, j->host[i]);
        kv_pool_ref(&c->tiers.host, j->host[i]);
    }
    j->n_host = (int32_t)n;
    return 0;
}

static struct snapshot_job *job_of(const struct caches *c, const struct sequence *s) {
    struct snapshot_job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    *j = (struct snapshot_job){
        .task = SNAPSHOT_WRITE,
        .name = snapshot_name(s->names.id),
        .head = {.maker = c->snapshots.maker,
                 .memory_len = s->image.memory_len,
                 .sink_len = s->image.sink_len,
                 .n_tokens = s->n_image,
                 .n_blocks = s->image.n_held,
                 .owner = {s->names.owner.lo, s->names.owner.hi},
                 .prompt = {s->image_prompt.lo, s->image_prompt.hi}},
        .fd = -1,
        .most_us = WRITE_US,
        .sequence = s->id,
        .version = s->image_version,
    };
    memcpy(j->head.id, s->names.id, sizeof j->head.id);
    return j;
}

int cache_write(struct caches *c, struct sequence *s) {
    struct snapshot_job *j = job_of(c, s);
    if (!j) return E_NOMEM;
    int rc = take_image(c, s, j);
    if (rc == 0) rc = cache_pieces_begin(c, j);
    if (rc == 0) rc = snapshots_write(&c->snapshots, j);
    if (rc == 0) return 0;
    cache_give_host_blocks_back(c, j);
    snapshot_job_free(j);
    if (rc == E_FULL) give_up(c, s, "large", "it is larger than snapshot_bytes");
    if (rc == E_NOMEM) give_up(c, s, "memory", "no memory to write it");
    return rc;
}

// --- choice of the next cache --------------------------------------------------------------------

// Drops a cache whose host memory was only a buffer, once its snapshot is written or given up.
static void leave(struct caches *c, struct sequence *s) {
    if (c->tiers.transit && s->state == CACHE_PARKED && !s->turn) cache_drop(c, s, s->why);
}

static bool host_is_low(const struct caches *c) {
    const struct kv_pool *host = &c->tiers.host;
    return c->saving_all || c->tiers.transit || host->n_free < host->n_blocks / LOW_PART;
}

void caches_write(struct caches *c) {
    struct sequence *s, *next, *first = c->tiers.images;
    if (!c->look_for_writes || !snapshots_on(&c->snapshots) || !host_is_low(c)) return;
    c->look_for_writes = false;
    // When the engine stops, the most recently used is first: in utlist, the head's prev is the tail.
    for (s = c->saving_all && first ? first->image_prev : first; s; s = next) {
        next = !c->saving_all ? s->image_next : s == first ? NULL : s->image_prev;
        if (c->snapshots.n_writing >= MOST_BEGUN) return; // the end of a write searches again
        if (s->state != CACHE_PARKED || s == c->tiers.copying) continue;
        if (snapshots_is_writing(&c->snapshots, s->id)) continue;
        if (!cache_wants_snapshot(c, s) || (cache_write(c, s) < 0 && s->n_filed == NOT_WRITABLE))
            leave(c, s);
    }
}

void cache_written(struct caches *c, struct snapshot_job *j) {
    struct sequence *s = caches_find(c, j->sequence);
    if (s && s->image_version != j->version) s = NULL; // its copy has changed meanwhile
    if (j->rc < 0 && j->rc != E_CANCELLED) {
        give_up(c, s, j->reason, j->why.text);
    } else if (j->rc == 0) {
        metric_add(c->metrics->snapshots_written, 1);
        metric_add(c->metrics->snapshot_bytes_written, (double)j->bytes);
        if (s && s->n_image == j->head.n_tokens) s->n_filed = s->n_image;
        log_debug("snapshot.written", "tokens=%lld bytes=%lld ms=%.1f", (long long)j->head.n_tokens,
                  (long long)j->bytes, (double)j->took_us / 1e3);
    }
    if (s) leave(c, s);
}
