// Which parked caches are written to files (snapshots.h), and what becomes of those writes.
//
// A cache is written when it is about to leave host memory, so that what is used often never costs
// the disk anything: the ones used longest ago, while a quarter of host memory is not free, and
// when somebody wants their room. Where there is no host tier, host memory is only the way to the
// file (tiers.transit), and whoever has come that far is written at once. At the server's end all
// are.
//
// Nobody waits for a disk but those who have time: a turn that wants room gets it, and what had not
// been written by then is given up, like everything that a slow or full disk does not take. That is
// counted, said once, and costs a computation later.
#include "engine/run/instance.h"

#include "base/log.h"
#include <stdlib.h>
#include <string.h>

enum {
    LOW_PART = 4, // of host memory: below it, those used longest ago are written ahead
    MOST_BEGUN = 2,
    WRITE_US = 20000000, // a disk that takes longer for one is too slow to be of use
    KEEP_US = 8000000,   // what the end may take: most supervisors kill after ten seconds
    KEEP_WAIT_US = 20000,
};

static struct sequence *find(struct instance *in, uint64_t id) {
    struct sequence *s;
    HASH_FIND(hh, in->sequences, &id, sizeof id, s);
    return s;
}

// --- one file

static bool is_filed(struct instance *in, const struct sequence *s) {
    return s->n_filed == s->n_image && snapshots_find(&in->snapshots, s->names.id);
}

bool instance_file_wanted(struct instance *in, struct sequence *s) {
    if (!snapshots_on(&in->snapshots) || !s->names.id[0] || s->file_refused) return false;
    return s->parked && s->image.copies && s->n_image > 0 && !is_filed(in, s) &&
           !instance_file_is_dear(in, (double)s->image.n_held * (double)in->store.block_bytes,
                                  s->n_image);
}

void instance_file_given_up(struct instance *in, const char *reason) {
    static const char *const reasons[N_GIVEN_UP] = GIVEN_UP_REASONS;
    int i = 0;
    while (i < N_GIVEN_UP - 1 && strcmp(reasons[i], reason) != 0) i++;
    metric_add(in->metrics.given_up[i], 1);
}

static void refuse_write(struct instance *in, struct sequence *s, const char *reason,
                         const char *why) {
    char quoted[600];
    if (s) s->file_refused = true; // until it has been used again
    instance_file_given_up(in, reason);
    log_warn("snapshot.given_up", "reason=%s why=%s", reason,
             log_quote(quoted, sizeof quoted, why));
}

static int by_logical(const void *a, const void *b) {
    uint64_t x = ((const struct kv_snapshot_block *)a)->logical,
             y = ((const struct kv_snapshot_block *)b)->logical;
    return (x > y) - (x < y);
}

// The image's blocks, ascending, with a holder more each: they stay as they are until the job is
// back.
static int take_image(struct instance *in, struct sequence *s, struct snapshot_job *j) {
    struct kv_image *m = &s->image;
    size_t n = (size_t)m->n_held;
    j->blocks = malloc(n * sizeof *j->blocks);
    j->memory = malloc(n * sizeof *j->memory);
    j->host = malloc(n * sizeof *j->host);
    j->ids = malloc((size_t)s->n_image * sizeof *j->ids);
    if (!j->blocks || !j->memory || !j->host || !j->ids) return E_NOMEM;
    memcpy(j->ids, s->image_ids, (size_t)s->n_image * sizeof *j->ids);
    int32_t k = 0;
    for (int32_t i = 0; i < m->n_slots; i++) { // sum: the host block, until they are in order
        if (m->copies[i].host < 0) continue;
        j->blocks[k].logical = (uint64_t)m->copies[i].logical;
        j->blocks[k++].sum = (uint64_t)m->copies[i].host;
    }
    qsort(j->blocks, n, sizeof *j->blocks, by_logical);
    for (size_t i = 0; i < n; i++) {
        j->host[i] = (int32_t)j->blocks[i].sum;
        j->memory[i] = tiers_host(&in->tiers, j->host[i]);
        kv_pool_ref(&in->tiers.host, j->host[i]);
    }
    j->n_host = (int32_t)n;
    return 0;
}

static void give_back(struct instance *in, struct snapshot_job *j) {
    for (int32_t i = 0; i < j->n_host; i++) kv_pool_unref(&in->tiers.host, j->host[i]);
    j->n_host = 0;
}

int instance_file_write(struct instance *in, struct sequence *s) {
    struct snapshot_job *j = calloc(1, sizeof *j);
    if (!j) return E_NOMEM;
    *j = (struct snapshot_job){
        .task = SNAPSHOT_WRITE,
        .name = snapshot_name(s->names.id),
        .head = {.maker = in->snapshots.maker,
                 .memory_len = s->image.memory_len,
                 .sink_len = s->image.sink_len,
                 .n_tokens = s->n_image,
                 .n_blocks = s->image.n_held,
                 .owner = {s->names.owner.lo, s->names.owner.hi}},
        .fd = -1,
        .most_us = WRITE_US,
        .sequence = s->id,
        .version = s->image_version,
    };
    memcpy(j->head.id, s->names.id, sizeof j->head.id);
    int rc = take_image(in, s, j);
    if (rc == 0) rc = snapshots_write(&in->snapshots, j);
    if (rc == 0) {
        s->writing = j;
        return 0;
    }
    give_back(in, j);
    snapshot_job_free(j);
    if (rc == E_FULL) refuse_write(in, s, "large", "it is larger than snapshot_bytes");
    if (rc == E_NOMEM) refuse_write(in, s, "memory", "no memory to write it");
    return rc;
}

// --- who is next

// Of those that came to host memory on the way to a file, one without hope of it goes.
static void leave(struct instance *in, struct sequence *s) {
    if (s->leaving && !s->turn) instance_give_up(in, s, (enum engine_release)s->leaving_why);
}

static bool host_is_low(const struct instance *in) {
    const struct kv_pool *host = &in->tiers.host;
    return in->keeping || in->tiers.transit || host->n_free < host->n_blocks / LOW_PART;
}

void instance_persist(struct instance *in) {
    struct sequence *s, *next, *first = in->tiers.images;
    if (!in->persist_look || !snapshots_on(&in->snapshots)) return;
    if (!host_is_low(in)) return;
    in->persist_look = false;
    // At the end the one used last goes first: utlist's head has the tail before it.
    for (s = in->keeping && first ? first->image_prev : first; s; s = next) {
        next = !in->keeping ? s->image_next : s == first ? NULL : s->image_prev;
        if (in->snapshots.n_writing >= MOST_BEGUN) return; // the end of one looks again
        if (!s->parked || s->resume || s->writing || s == in->tiers.copying) continue;
        if (!instance_file_wanted(in, s) || (instance_file_write(in, s) < 0 && s->file_refused))
            leave(in, s);
    }
}

// --- what comes back

static void written(struct instance *in, struct snapshot_job *j) {
    struct sequence *s = find(in, j->sequence);
    if (s && s->writing != j) s = NULL; // another of that number
    if (s) s->writing = NULL;
    if (j->rc < 0 && j->rc != E_CANCELLED) {
        refuse_write(in, s, j->reason, j->why.text);
    } else if (j->rc == 0) {
        metric_add(in->metrics.snapshots_written, 1);
        metric_add(in->metrics.snapshot_bytes_written, (double)j->bytes);
        if (s && s->image_version == j->version && s->n_image == j->head.n_tokens)
            s->n_filed = s->n_image;
        log_debug("snapshot.written", "tokens=%lld bytes=%lld ms=%.1f", (long long)j->head.n_tokens,
                  (long long)j->bytes, (double)j->took_us / 1e3);
    }
    if (s && s->parked) leave(in, s);
}

void instance_snapshot_done(struct instance *in, struct snapshot_job *j) {
    snapshots_done(&in->snapshots, j);
    in->persist_look = true;
    if (j->task == SNAPSHOT_WRITE)
        written(in, j);
    else
        instance_resume_read(in, j);
    give_back(in, j);
    snapshot_job_free(j);
}

void instance_file_refused(struct instance *in, struct sequence *s, struct hash128 name,
                           const char *reason, const char *why) {
    static const char *const reasons[N_REFUSED] = REFUSED_REASONS;
    char quoted[600];
    int i = 0;
    while (i < N_REFUSED - 1 && strcmp(reasons[i], reason) != 0) i++;
    metric_add(in->metrics.refused[i], 1);
    log_warn("snapshot.refused", "reason=%s why=%s", reason, log_quote(quoted, sizeof quoted, why));
    s->file_refusal = reasons[i];
    s->n_filed = 0;
    snapshots_forget(&in->snapshots, name);
}

// --- the end

// The idle one used last is to be copied: it parks, and is written like any other then.
static bool ask_next(struct instance *in) {
    struct sched_idle *head = &in->sched.idle;
    for (struct sched_idle *i = head->prev; i != head; i = i->prev) {
        struct sequence *s = (struct sequence *)((char *)i - offsetof(struct sequence, idle));
        if (s->ring.n_held == 0 || !s->names.id[0] || s->park_refused) continue;
        instance_park_ask(in, s, true);
        return true;
    }
    return false;
}

void instance_keep_all(struct instance *in) {
    int64_t until = clock_mono_us(in->emit.clock) + KEEP_US;
    if (!snapshots_on(&in->snapshots) || !tiers_on(&in->tiers)) return;
    in->keeping = true;
    for (;;) {
        struct command c;
        int64_t now = clock_mono_us(in->emit.clock);
        bool asked = ask_next(in), copying = instance_park(in, false, 0);
        in->persist_look = true;
        instance_persist(in);
        if ((!asked && in->snapshots.n_writing == 0) || now > until) break;
        if (queue_pop(in->commands, &c, copying ? 0 : KEEP_WAIT_US) == 1) instance_command(in, &c);
    }
}
