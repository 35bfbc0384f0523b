// Reads a cache from its snapshot: first the snapshot's head and table, then, if they fit, its blocks
// into host memory, from which load.c copies them to the device.
#include "engine/cache/movers.h"

#include "base/log.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM_WAIT_US = 250000 }; // how long a slow disk may take to free host memory

// --- head and table ------------------------------------------------------------------------------

// The snapshot of s, or of the sequence that s was forked from. NULL: there is none.
static const struct snapshot_entry *find_snapshot(struct caches *c, const struct sequence *s) {
    const struct snapshot_entry *own = snapshots_find(&c->snapshots, s->names.id);
    return own ? own : snapshots_find(&c->snapshots, s->names.origin);
}

bool cache_read_begin(struct caches *c, struct sequence *s, int64_t n_ids, int64_t n_cached) {
    const struct snapshot_entry *e = find_snapshot(c, s);
    if (!e) return false;
    int64_t n = e->n_tokens < n_ids - 1 ? e->n_tokens : n_ids - 1;
    // Estimated from the part of the log; the window's part is known only from the head.
    double bytes = (double)e->bytes * (double)n / (double)e->n_tokens;
    if (n <= n_cached || tiers_read_is_slow(&c->tiers, bytes, n - n_cached)) return false;
    struct snapshot_job *j = calloc(1, sizeof *j);
    if (!j) return false;
    *j = (struct snapshot_job){.task = SNAPSHOT_OPEN, .name = e->name, .fd = -1, .sequence = s->id};
    bool is_origins = strcmp(e->id, s->names.id) != 0;
    if (snapshots_read(&c->snapshots, j) < 0) {
        snapshot_job_free(j);
        return false;
    }
    struct resume *r = resume_begin(c, s, CACHE_OPENING, CACHE_SNAPSHOT, n);
    if (!r) return false; // the job returns and finds no resume
    r->job = j;
    r->is_origins = is_origins;
    j->resume = r;
    return true;
}

static void refuse(struct caches *c, struct sequence *s, const struct snapshot_job *j,
                   const char *reason, const char *why) {
    static const char *const reasons[N_REFUSED] = REFUSED_REASONS;
    char quoted[600];
    int i = 0;
    while (i < N_REFUSED - 1 && strcmp(reasons[i], reason) != 0) i++;
    metric_add(c->metrics->refused[i], 1);
    log_warn("snapshot.refused", "reason=%s why=%s", reason, log_quote(quoted, sizeof quoted, why));
    s->refused = reasons[i];
    s->n_filed = 0;
    snapshots_forget(&c->snapshots, j->name);
}

// How many of the snapshot's blocks a ring of r's shape and n positions holds; -1: one is missing,
// since the window had moved on when it was written.
static int32_t blocks_wanted(const struct kv_ring *r, const struct snapshot_job *j, int64_t n) {
    int32_t at = 0, wanted = 0;
    for (int64_t number; (number = kv_ring_holds(r, n, wanted)) >= 0; wanted++) {
        while (at < j->head.n_blocks && (int64_t)j->blocks[at].number < number) at++;
        if (at == j->head.n_blocks || (int64_t)j->blocks[at].number != number) return -1;
    }
    return wanted;
}

// How many tokens of the turn's log the snapshot holds.
static int64_t common_tokens(const struct resume *r, const struct snapshot_job *j) {
    const struct sequence *s = r->sequence;
    return s->turn_ids
               ? sequence_common_prefix(j->ids, j->head.n_tokens, s->turn_ids, s->n_turn_ids - 1)
               : sequence_common_prefix(j->ids, j->head.n_tokens, r->hint_ids, r->n_hint);
}

struct verdict {
    const char *reason, *why; // NULL: the snapshot fits
    bool is_useless;          // for every sequence: it is removed, also if it is the origin's
};

// Whether the snapshot was written by an equal engine, for this sequence and for the same log.
static struct verdict judge(const struct caches *c, const struct resume *r,
                            const struct snapshot_job *j) {
    static const char why[] = "it does not fit this session";
    const struct sequence *s = r->sequence;
    const struct kv_snapshot_head *h = &j->head;
    if (j->rc < 0) return (struct verdict){j->reason, j->why.text, true};
    const char *other = kv_snapshot_difference(&h->maker, &c->snapshots.maker);
    if (other)
        return (struct verdict){other, "another build, or other settings or weights, wrote it",
                                true};
    if (strcmp(h->id, r->is_origins ? s->names.origin : s->names.id) != 0)
        return (struct verdict){"session", why, true};
    if (h->owner[0] != s->names.owner.lo || h->owner[1] != s->names.owner.hi)
        return (struct verdict){"session", why, false};
    if (h->memory_len != s->ring.memory_len || h->sink_len != s->ring.sink_len)
        return (struct verdict){"window", why, false};
    if (h->prompt[0] != s->prompt.lo || h->prompt[1] != s->prompt.hi)
        return (struct verdict){"prompt", "its virtual tokens are of another table", false};
    int64_t n = common_tokens(r, j);
    if (n == 0) return (struct verdict){"tokens", "its log is a different one", false};
    if (blocks_wanted(&s->ring, j, n) < 0)
        return (struct verdict){"window", "it lacks blocks that the shorter log needs", false};
    return (struct verdict){0};
}

static struct snapshot_job *read_job(struct snapshot_job *opened, struct resume *r) {
    struct snapshot_job *j = calloc(1, sizeof *j);
    if (!j) return NULL;
    *j = (struct snapshot_job){.task = SNAPSHOT_READ,
                               .name = opened->name,
                               .head = opened->head,
                               .ids = opened->ids,
                               .blocks = opened->blocks,
                               .fd = opened->fd,
                               .sequence = r->sequence->id,
                               .resume = r};
    opened->ids = NULL, opened->blocks = NULL, opened->fd = -1;
    return j;
}

static void decline(struct caches *c, struct sequence *s) {
    log_debug("snapshot.declined", "tokens=%lld", (long long)s->resume->n);
    resume_end(c, s, RESUME_DECLINED);
}

static void opened(struct caches *c, struct snapshot_job *j) {
    struct resume *r = j->resume;
    struct sequence *s = r->sequence;
    struct verdict v = judge(c, r, j);
    r->job = NULL;
    if (v.reason) {
        // The origin may still use its own snapshot.
        if (v.is_useless || !r->is_origins) refuse(c, s, j, v.reason, v.why);
        decline(c, s);
        return;
    }
    int64_t n = common_tokens(r, j), n_cached = s->turn_ids ? s->cached.n : 0;
    double bytes = (double)blocks_wanted(&s->ring, j, n) * (double)j->head.maker.block_bytes;
    rate_mean(&c->tiers.open_us, (double)j->took_us);
    bool slow = n <= n_cached || tiers_read_is_slow(&c->tiers, bytes, n - n_cached);
    r->job = slow ? NULL : read_job(j, r);
    if (!r->job) {
        decline(c, s);
        return;
    }
    r->n = n;
    kv_ring_truncate(&s->ring, 0);
    cache_set(c, s, CACHE_WAITING);
}

// --- blocks --------------------------------------------------------------------------------------

// Host blocks for all of the ring's. E_BUSY: a snapshot that is being written frees some soon.
static int take_host_blocks(struct caches *c, struct resume *r) {
    struct sequence *s = r->sequence;
    int rc;
    tiers_drop(&c->tiers, s);
    TRY(tiers_image(&c->tiers, s));
    while ((rc = kv_image_fill(&s->image, &s->ring)) == E_NOMEM) {
        // A hint drops no other cache.
        if (s->turn && cache_make_host_room(c, s, true) == ROOM_MADE) continue;
        bool soon = c->snapshots.n_writing > 0 &&
                    clock_mono_us(c->emit->clock) - r->began_us < ROOM_WAIT_US;
        return soon ? E_BUSY : E_NOMEM;
    }
    return rc;
}

// Lists the snapshot's blocks to read and their places; the job holds the host blocks too.
static int plan_reads(struct caches *c, struct resume *r) {
    struct sequence *s = r->sequence;
    struct snapshot_job *j = r->job;
    size_t n = (size_t)s->ring.n_held;
    r->slots = malloc(n * sizeof *r->slots);
    j->memory = malloc(n * sizeof *j->memory);
    j->wanted = malloc(n * sizeof *j->wanted);
    j->host = malloc(n * sizeof *j->host);
    if (!r->slots || !j->memory || !j->wanted || !j->host) return E_NOMEM;
    for (int32_t i = 0; i < j->head.n_blocks; i++) {
        int64_t number = (int64_t)j->blocks[i].number;
        int32_t slot = kv_ring_slot(&s->ring, number);
        if (slot < 0) continue;
        const struct kv_copy *copy = &s->image.copies[slot];
        if (copy->host < 0 || copy->number != number) continue;
        r->slots[j->n_wanted] = slot;
        j->memory[j->n_wanted] = tiers_host(&c->tiers, copy->host);
        j->host[j->n_wanted] = copy->host;
        j->wanted[j->n_wanted++] = i;
        kv_pool_ref(&c->tiers.host, copy->host);
    }
    assert(j->n_wanted == s->ring.n_held); // checked by judge()
    j->n_host = r->n_slots = j->n_wanted;
    return 0;
}

int cache_read_blocks(struct caches *c, struct resume *r) {
    struct sequence *s = r->sequence;
    struct snapshot_job *j = r->job;
    TRY(take_host_blocks(c, r));
    TRY(plan_reads(c, r));
    s->n_filed = r->n == j->head.n_tokens && !r->is_origins ? r->n : 0;
    s->image_ids = j->ids;
    j->ids = NULL;
    s->n_image = r->n;
    s->image_group = s->group;
    s->image_prompt = s->prompt;
    s->image_version = ++c->last_version;
    TRY(cache_pieces_begin(c, j));
    TRY(snapshots_read(&c->snapshots, j));
    cache_set(c, s, CACHE_READING);
    return 0;
}

void cache_read_done(struct caches *c, struct snapshot_job *j) {
    struct resume *r = j->resume;
    if (j->task == SNAPSHOT_READ && j->rc == 0)
        rate_note(&c->tiers.read_rate, (double)j->bytes, j->took_us);
    if (!r) return;
    struct sequence *s = r->sequence;
    if (j->task == SNAPSHOT_OPEN) {
        opened(c, j);
        return;
    }
    r->job = NULL;
    if (j->rc == 0) {
        cache_set(c, s, CACHE_LOADING);
        return;
    }
    refuse(c, s, j, j->reason, j->why.text);
    resume_end(c, s, RESUME_FAILED);
}
