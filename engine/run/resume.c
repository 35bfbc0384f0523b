// See resume.h.
#include "engine/run/resume.h"

#include "base/log.h"
#include "engine/run/instance.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

// What copies back may take between two steps of others, as a part of a step; and where nobody
// steps, between two looks at the commands.
enum { STEP_PART = 4, LEAST_SLICE_US = 1000, ALONE_SLICE_US = 20000, SLICE_BATCHES = 256 };

// One in so many that looks too dear is tried all the same, or what has been measured once, on a
// bad day of the disk, would hold for ever.
enum { TRY_DEAR = 32, ROOM_WAIT_US = 250000 };

void resume_free(struct resume *r) {
    if (!r) return;
    if (r->stage == RESUME_BLOCKS) snapshot_job_free(r->job); // no thread has it yet
    free(r->hint_ids);
    free(r->slots);
    free(r);
}

static void resume_end(struct instance *in, struct resume *r) {
    struct snapshot_job *j = r->job;
    r->sequence->resume = NULL;
    if (in->stepping == r) in->stepping = NULL;
    DL_DELETE(in->resuming, r);
    if (j && r->stage == RESUME_BLOCKS) {
        for (int32_t i = 0; i < j->n_host; i++) kv_pool_unref(&in->tiers.host, j->host[i]);
    } else if (j) { // a thread has it: it comes back, and finds nobody
        j->resume = NULL;
        atomic_store(&j->stop, true);
    }
    resume_free(r);
}

// --- what is cheapest ----------------------------------------------------------------------------

bool instance_file_is_dear(struct instance *in, double bytes, int64_t tokens) {
    const struct tiers *t = &in->tiers;
    double compute = rate_cost(t->prefill_rate, (double)tokens);
    if (t->read_rate == 0 || compute == 0) return false; // not measured yet
    double read = t->open_us + rate_cost(t->read_rate, bytes) + rate_cost(t->load_rate, bytes);
    return read > compute && ++in->n_dear % TRY_DEAR != 0;
}

static struct resume *begin(struct instance *in, struct sequence *s, enum resume_stage stage,
                            enum engine_cache_source source, int64_t n) {
    struct resume *r = malloc(sizeof *r);
    if (!r) return NULL;
    *r = (struct resume){.sequence = s,
                         .stage = stage,
                         .source = source,
                         .n = n,
                         .began_us = clock_mono_us(in->emit.clock)};
    s->resume = r;
    DL_APPEND(in->resuming, r);
    return r;
}

static bool begin_host(struct instance *in, struct sequence *s, const int32_t *ids, int64_t n_ids,
                       int64_t n_cached) {
    const struct tiers *t = &in->tiers;
    const struct kv_image *m = &s->image;
    if (s->image_group != s->group) return false;
    int64_t n = sequence_common_prefix(s->image_ids, s->n_image, ids, n_ids - 1);
    if (n <= n_cached || !kv_image_serves(m, &s->ring, n)) return false;
    double copy = rate_cost(t->load_rate, (double)m->n_held * (double)in->store.block_bytes);
    double compute = rate_cost(t->prefill_rate, (double)(n - n_cached));
    if (copy > 0 && compute > 0 && copy > compute) return false;
    if (!begin(in, s, RESUME_BLOCKS, CACHE_HOST, n)) return false;
    kv_ring_truncate(&s->ring, 0);
    return true;
}

// Its own, or that of the one whose log its own began as. NULL: there is none.
const struct snapshot_entry *instance_file_of(struct instance *in,
                                              const struct sequence_names *names) {
    const struct snapshot_entry *own = snapshots_find(&in->snapshots, names->id);
    return own ? own : snapshots_find(&in->snapshots, names->origin);
}

// What is in the file is not known yet: only that it may be worth a look.
static bool begin_file(struct instance *in, struct sequence *s, int64_t n_ids, int64_t n_cached) {
    const struct snapshot_entry *e = instance_file_of(in, &s->names);
    if (!e) return false;
    int64_t n = e->n_tokens < n_ids - 1 ? e->n_tokens : n_ids - 1;
    // As if only that part of it were read: what the window leaves of it is not known yet.
    double bytes = (double)e->bytes * (double)n / (double)e->n_tokens;
    if (n <= n_cached || instance_file_is_dear(in, bytes, n - n_cached)) return false;
    struct snapshot_job *j = calloc(1, sizeof *j);
    struct resume *r = j ? begin(in, s, RESUME_OPEN, CACHE_SNAPSHOT, n) : NULL;
    if (!r) {
        free(j);
        return false;
    }
    *j = (struct snapshot_job){
        .task = SNAPSHOT_OPEN, .name = e->name, .fd = -1, .sequence = s->id, .resume = r};
    r->job = j;
    r->origins = strcmp(e->id, s->names.id) != 0;
    if (snapshots_read(&in->snapshots, j) == 0) return true;
    snapshot_job_free(j);
    resume_end(in, r);
    return false;
}

bool instance_resume_begin(struct instance *in, struct sequence *s, const int32_t *ids,
                           int64_t n_ids, int64_t n_cached) {
    if (s->resume) return true; // a hint has begun it
    return begin_host(in, s, ids, n_ids, n_cached) || begin_file(in, s, n_ids, n_cached);
}

bool instance_resume_serves(const struct sequence *s, const struct sequence_shape *shape,
                            const int32_t *ids, int64_t n_ids) {
    const struct resume *r = s->resume;
    if (s->ring.memory_len != shape->memory_len || s->ring.sink_len != shape->sink_len ||
        s->group != shape->group)
        return false;
    if (r->stage == RESUME_OPEN) return true; // looked at when it is known what is in the file
    bool file = r->stage == RESUME_BLOCKS && r->job;
    const int32_t *theirs = file ? r->job->ids : s->image_ids;
    int64_t n = file ? r->n : s->n_image;
    return sequence_common_prefix(theirs, n, ids, n_ids - 1) >= r->n;
}

// Few at a time, from blocks that nobody holds and no running turn has been promised: whoever hints
// and never comes costs others nothing.
enum { MOST_WARM = 8 };

struct sequence_shape instance_image_shape(const struct instance *in, const struct sequence *s) {
    return (struct sequence_shape){
        .group = s->image_group,
        .memory_len = s->image.memory_len,
        .sink_len = s->image.sink_len,
        .chunk_tokens = in->opt.prefill_tokens,
        .block_tokens = in->opt.block_tokens,
        .session_len = in->opt.max_session_len,
    };
}

static bool has_room_for_hint(const struct instance *in, int32_t n_blocks) {
    int32_t held = 0;
    for (int32_t i = 0; i < in->sched.n_running; i++)
        held += ((struct turn *)in->sched.running[i])->sequence->ring.n_held;
    return in->n_warm < MOST_WARM && n_blocks <= in->pool.n_free - (in->sched.n_reserved - held);
}

static void hint_begun(struct instance *in, struct sequence *s) {
    s->warm_until_us = clock_mono_us(in->emit.clock) + ENGINE_WARM_US;
    in->n_warm++;
}

void instance_warm(struct instance *in, struct sequence *s) {
    const struct sequence_shape shape = instance_image_shape(in, s);
    struct err err;
    if (!s->parked || s->resume || !has_room_for_hint(in, s->image.n_held)) return;
    if (sequence_ready(s, &in->pool, &shape, &err) < 0) return;
    if (instance_resume_begin(in, s, s->image_ids, s->n_image + 1, 0)) hint_begun(in, s);
}

void instance_prepare(struct instance *in, struct sequence *s, struct turn *t) {
    const struct sequence_shape shape = instance_turn_shape(in, &t->spec);
    struct err err;
    if (s && (s->turn || s->ring.n_held > 0 || s->parked || s->resume)) {
        engine_turn_free(t);
        return;
    }
    if (s) s->names = t->names;
    if (s && has_room_for_hint(in, t->sched.reserve) &&
        sequence_ready(s, &in->pool, &shape, &err) == 0 && begin_file(in, s, t->n_log + 1, 0)) {
        s->resume->hint_ids = t->spec.ids;
        s->resume->n_hint = t->n_log;
        t->spec.ids = NULL;
        hint_begun(in, s);
    } else {
        emit_released(&in->emit, t->spec.sequence, RELEASE_ASKED, 0,
                      snapshots_find(&in->snapshots, t->names.id) != NULL);
        if (s) instance_forget_if_empty(in, s);
    }
    engine_turn_free(t);
}

void instance_not_warm(struct instance *in, struct sequence *s) {
    in->n_warm -= s->warm_until_us != 0;
    s->warm_until_us = 0;
}

// Its turn has been admitted, and promised the blocks; not so one that waits in the queue.
static bool has_admitted(const struct resume *r) {
    const struct turn *t = r->sequence->turn;
    return t && t->sched.state != SCHED_QUEUED;
}

bool instance_hints_give_way(struct instance *in) {
    struct resume *r;
    bool any = false;
    DL_FOREACH(in->resuming, r) {
        if (has_admitted(r) || r->sequence->ring.n_held == 0) continue;
        any = r->gives_way = true;
    }
    return any;
}

void instance_resume_abort(struct instance *in, struct sequence *s) {
    if (!s->resume) return;
    if (in->tiers.copying == s)
        (void)tiers_collect(&in->tiers, true, clock_mono_us(in->emit.clock));
    kv_ring_truncate(&s->ring, 0);
    bool reading = s->resume->source == CACHE_SNAPSHOT && s->resume->stage != RESUME_OPEN;
    resume_end(in, s->resume);
    if (reading) tiers_drop(&in->tiers, s); // it was to become whole
    instance_not_warm(in, s);
    in->persist_look = true; // what is parked still was passed over while it was on its way back
}

// What the turn has waited for what began then: on a hint, before there was a turn.
static void waited_since(const struct instance *in, struct turn *t, int64_t began_us) {
    int64_t from = began_us > t->started_us ? began_us : t->started_us;
    t->restore_us = clock_mono_us(in->emit.clock) - from;
}

// Its turn goes on, with what there is.
static void turn_on(struct instance *in, struct sequence *s, int64_t n_cached,
                    enum engine_cache_source source, int64_t began_us) {
    struct turn *t = s->turn;
    if (!t || t->sched.state != SCHED_WAIT) return;
    t->n_cached = n_cached;
    t->n_shared = 0;
    if (!s->resume) sequence_name_all(s, t->spec.ids); // nobody finds what is not there yet
    t->source = source;
    waited_since(in, t, began_us);
    instance_turn_started(in, t);
}

static void failed(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    int64_t began = r->began_us;
    bool file = r->source == CACHE_SNAPSHOT;
    instance_resume_abort(in, s);
    tiers_drop(&in->tiers, s);
    instance_unparked(in, s);
    if (!s->turn) { // on a hint: nobody waits, but the owner believes it parked
        instance_give_up(in, s, file ? RELEASE_ASKED : RELEASE_PRESSURE);
        return;
    }
    turn_on(in, s, 0, CACHE_RECOMPUTED, began);
}

// The file is not used, and nothing has been touched yet: the turn goes on as it would have
// without.
static void declined(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    struct turn *t = s->turn;
    int64_t began = r->began_us;
    log_debug("snapshot.declined", "tokens=%lld", (long long)r->n);
    resume_end(in, r);
    if (!t) {
        instance_not_warm(in, s);
        instance_give_up(in, s, RELEASE_ASKED);
        return;
    }
    waited_since(in, t, began);
    instance_unparked(in, s);
    instance_turn_started(in, t);
}

// All of it is there, or what was missing is on its way in front of whatever reads it.
static void arrived(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    bool file = r->source == CACHE_SNAPSHOT;
    metric_add(file ? in->metrics.snapshots_read : in->metrics.restored, 1);
    metric_add(in->metrics.restored_bytes, (double)r->n_slots * (double)in->store.block_bytes);
    instance_unparked(in, s);
    resume_end(in, r);
}

static void succeeded(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    int32_t *ids = malloc((size_t)r->n * sizeof *ids);
    if (!ids) {
        failed(in, r);
        return;
    }
    memcpy(ids, s->image_ids, (size_t)r->n * sizeof *ids);
    free(s->ids);
    s->ids = ids;
    s->n_ids = r->n;
    int64_t n = r->n, began = r->began_us;
    enum engine_cache_source source = r->source;
    arrived(in, r);
    if (in->tiers.transit) { // others are on their way too
        tiers_drop(&in->tiers, s);
        s->image_state = IMAGE_STALE;
    }
    if (s->turn) {
        instance_not_warm(in, s);
    } else { // on a hint: the copies stay, so it may go again in no time
        if (!in->tiers.transit) s->image_state = IMAGE_WHOLE;
        sched_idle_add(&in->sched, &s->idle);
    }
    turn_on(in, s, n, source, began);
}

// --- with the turn's first step ------------------------------------------------------------------

// Whether what is missing comes with the turn's first step; slice: what others may be held up.
static bool comes_with_step(const struct instance *in, const struct resume *r, int64_t slice) {
    const struct tiers *t = &in->tiers;
    const struct turn *turn = r->sequence->turn;
    int32_t rest = r->n_slots - r->at;
    if (!t->backend->ops->kv_layer_wait || rest > TIER_STEP_BLOCKS || r->next || in->stepping ||
        !turn || turn->sched.state != SCHED_WAIT)
        return false;
    if (instance_n_stepping(in) == 0) return true;
    double cost = rate_cost(t->load_rate, (double)rest * (double)in->store.block_bytes);
    return cost > 0 && cost <= (double)slice;
}

static void go_with_step(struct instance *in, struct resume *r) {
    r->stage = RESUME_STEP;
    in->stepping = r;
    turn_on(in, r->sequence, r->n, r->source, r->began_us);
}

void instance_resume_load(struct instance *in, struct sequence *s) {
    struct resume *r = s->resume;
    assert(r == in->stepping && !in->batch.batch.load);
    // Somebody may have begun to park since: a batch of it at most.
    if (tiers_collect(&in->tiers, true, clock_mono_us(in->emit.clock)) < 0)
        atomic_store(&in->load.device_lost, true);
    in->batch.batch.load =
        tiers_load_with_step(&in->tiers, s, r->slots + r->at, r->n_slots - r->at);
}

void instance_resume_stepped(struct instance *in) {
    struct sequence *s = in->stepping->sequence;
    arrived(in, in->stepping);
    instance_not_warm(in, s);
    metric_add(in->metrics.restored_overlapped, 1);
    sequence_name_all(s, s->turn->spec.ids);
}

// --- from a file ---------------------------------------------------------------------------------

static void refused(struct instance *in, struct resume *r, const struct snapshot_job *j,
                    const char *reason, const char *why) {
    instance_file_refused(in, r->sequence, j->name, reason, why);
    declined(in, r);
}

// It is of no use to this sequence now: its own goes, another's may be of use to that one.
static void unfit(struct instance *in, struct resume *r, const struct snapshot_job *j,
                  const char *reason, const char *why) {
    if (r->origins)
        declined(in, r);
    else
        refused(in, r, j, reason, why);
}

// How many of the file's blocks a ring of r's shape and n positions holds; -1: one is not there,
// since the window had moved on when it was written.
static int32_t blocks_wanted(const struct kv_ring *r, const struct snapshot_job *j, int64_t n) {
    int32_t at = 0, wanted = 0;
    for (int64_t logical; (logical = kv_ring_holds(r, n, wanted)) >= 0; wanted++) {
        while (at < j->head.n_blocks && (int64_t)j->blocks[at].logical < logical) at++;
        if (at == j->head.n_blocks || (int64_t)j->blocks[at].logical != logical) return -1;
    }
    return wanted;
}

// Whether its bytes mean here what they meant to whoever wrote them, and may be seen: declined or
// refused, and false, where not.
static bool is_usable(struct instance *in, struct resume *r, const struct snapshot_job *j) {
    const struct sequence *s = r->sequence;
    const struct kv_snapshot_head *h = &j->head;
    static const char why[] = "it was written for something else";
    const char *other = kv_snapshot_difference(&h->maker, &in->snapshots.maker);
    bool whose = h->owner[0] == s->names.owner.lo && h->owner[1] == s->names.owner.hi;
    if (j->rc < 0)
        refused(in, r, j, j->reason, j->why.text);
    else if (other)
        refused(in, r, j, other, why);
    else if (strcmp(h->id, r->origins ? s->names.origin : s->names.id) != 0)
        refused(in, r, j, "session", why);
    else if (!whose)
        unfit(in, r, j, "session", why);
    else if (h->memory_len != s->ring.memory_len || h->sink_len != s->ring.sink_len)
        unfit(in, r, j, "window", why);
    else
        return true;
    return false;
}

static void opened(struct instance *in, struct snapshot_job *j) {
    struct resume *r = j->resume;
    struct sequence *s = r->sequence;
    const struct turn *t = s->turn;
    r->job = NULL;
    if (!is_usable(in, r, j)) return;
    int64_t n = j->head.n_tokens, n_cached = t ? t->n_cached : 0;
    n = t ? sequence_common_prefix(j->ids, n, t->spec.ids, t->n_log - 1)
          : sequence_common_prefix(j->ids, n, r->hint_ids, r->n_hint);
    if (n == 0) {
        unfit(in, r, j, "tokens", "it stands for another log");
        return;
    }
    int32_t wanted = blocks_wanted(&s->ring, j, n);
    if (wanted < 0) {
        unfit(in, r, j, "window", "the log was cut behind what it has");
        return;
    }
    rate_mean(&in->tiers.open_us, (double)j->took_us);
    double bytes = (double)wanted * (double)j->head.maker.block_bytes;
    struct snapshot_job *read = n > n_cached && !instance_file_is_dear(in, bytes, n - n_cached)
                                    ? calloc(1, sizeof *read)
                                    : NULL;
    if (!read) {
        declined(in, r);
        return;
    }
    *read = (struct snapshot_job){.task = SNAPSHOT_READ,
                                  .name = j->name,
                                  .head = j->head,
                                  .ids = j->ids,
                                  .blocks = j->blocks,
                                  .fd = j->fd,
                                  .sequence = s->id,
                                  .resume = r};
    j->ids = NULL, j->blocks = NULL, j->fd = -1;
    r->job = read; // not with a thread yet
    r->n = n;
    r->stage = RESUME_BLOCKS;
    kv_ring_truncate(&s->ring, 0);
}

// Host blocks for what the ring holds, which of the file's blocks go there, and off it goes.
// E_BUSY: there will be room for it soon.
static int read_begin(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    struct snapshot_job *j = r->job;
    const struct kv_map *map = &s->ring.map;
    int rc;
    tiers_drop(&in->tiers, s);
    TRY(tiers_image(&in->tiers, s));
    while ((rc = kv_image_fill(&s->image, &s->ring)) == E_NOMEM) {
        if (instance_host_room(in, s) == 0) continue;
        // What is being written gives room when it is; a disk that is slow is not waited for.
        bool soon = in->snapshots.n_writing > 0 &&
                    clock_mono_us(in->emit.clock) - r->began_us < ROOM_WAIT_US;
        return soon ? E_BUSY : E_NOMEM;
    }
    size_t n = (size_t)s->ring.n_held;
    r->slots = malloc(n * sizeof *r->slots);
    j->memory = malloc(n * sizeof *j->memory);
    j->wanted = malloc(n * sizeof *j->wanted);
    j->host = malloc(n * sizeof *j->host);
    if (!r->slots || !j->memory || !j->wanted || !j->host) return E_NOMEM;
    for (int32_t i = 0; i < j->head.n_blocks; i++) {
        int64_t logical = (int64_t)j->blocks[i].logical;
        int32_t slot = kv_map_slot(map, logical * map->block_tokens);
        const struct kv_copy *c = &s->image.copies[slot];
        if (c->host < 0 || c->logical != logical) continue;
        r->slots[j->n_wanted] = slot;
        j->memory[j->n_wanted] = tiers_host(&in->tiers, c->host);
        j->wanted[j->n_wanted++] = i;
    }
    assert(j->n_wanted == s->ring.n_held); // opened() has looked
    s->image_ids = j->ids;
    j->ids = NULL;
    s->n_image = r->n;
    s->image_group = s->group;
    s->image_version++;
    s->n_filed = r->n == j->head.n_tokens && !r->origins ? r->n : 0;
    for (int32_t i = 0; i < j->n_wanted; i++) {
        j->host[i] = s->image.copies[r->slots[i]].host;
        kv_pool_ref(&in->tiers.host, j->host[i]);
    }
    j->n_host = r->n_slots = j->n_wanted;
    return snapshots_read(&in->snapshots, j);
}

void instance_resume_read(struct instance *in, struct snapshot_job *j) {
    struct resume *r = j->resume;
    if (j->task == SNAPSHOT_READ && j->rc == 0)
        rate_note(&in->tiers.read_rate, (double)j->bytes, j->took_us);
    if (!r) return;
    if (j->task == SNAPSHOT_OPEN) {
        opened(in, j);
        return;
    }
    if (j->rc == 0) {
        r->job = NULL;
        return;
    }
    instance_file_refused(in, r->sequence, j->name, j->reason, j->why.text);
    failed(in, r);
}

// --- going on ------------------------------------------------------------------------------------

// 1: it has its blocks; 0: not yet; negative: it cannot have them.
static int take_blocks(struct instance *in, struct resume *r) {
    struct sequence *s = r->sequence;
    while (kv_ring_restore(&s->ring, r->n) == E_NOMEM) {
        if (!s->turn) return E_NOMEM; // nobody gives way to a hint
        enum evicted e = instance_evict(in);
        if (e == EVICT_WAIT) return 0;
        if (e == EVICT_NONE) return E_NOMEM;
    }
    return 1;
}

// From host memory: all of them are there, in whatever order.
static int copies_begin(struct resume *r) {
    const struct sequence *s = r->sequence;
    assert(kv_image_missing(&s->image, &s->ring) == 0); // begin_host() has looked
    r->slots = malloc((size_t)s->ring.n_held * sizeof *r->slots);
    if (!r->slots) return E_NOMEM;
    for (int32_t i = 0; i < s->image.n_slots; i++) {
        if (s->ring.blocks[i] >= 0) r->slots[r->n_slots++] = i;
    }
    return 0;
}

// 1: done; 0: not yet; 2: there is more to do at once; 3: the disk is waited for; 4: the rest comes
// with a step; negative: failed.
enum { MORE = 2, READING = 3, STEPPING = 4 };
static int go_on(struct instance *in, struct resume *r, int64_t slice, int64_t until) {
    struct tiers *t = &in->tiers;
    if (r->stage == RESUME_STEP) return STEPPING;
    if (r->stage == RESUME_OPEN) return READING;
    if (r->stage == RESUME_BLOCKS) {
        int rc = r->sequence->ring.n_held > 0 ? 1 : take_blocks(in, r);
        if (rc <= 0) return rc;
        rc = r->job ? read_begin(in, r) : copies_begin(r);
        if (rc == E_BUSY) return READING;
        if (rc < 0) return rc;
        r->stage = RESUME_COPY;
    }
    for (int i = 0; i < SLICE_BATCHES; i++) {
        int64_t now = clock_mono_us(in->emit.clock);
        int32_t ready =
            r->job ? atomic_load_explicit(&r->job->n_done, memory_order_acquire) : r->n_slots;
        int rc = tiers_collect(t, false, now);
        if (rc < 0) return rc;
        if (rc == 0 || (i > 0 && now >= until)) return MORE;
        if (r->at == r->n_slots) return 1;
        if (r->at == ready) return READING;
        if (ready == r->n_slots && comes_with_step(in, r, slice)) {
            if (r->job) return READING; // all of it has come: its thread is about to say so
            go_with_step(in, r);
            return STEPPING;
        }
        rc = tiers_load(t, r->sequence, r->slots + r->at, ready - r->at, now);
        if (rc < 0) return rc;
        r->at += rc;
        (void)tiers_collect(t, false, clock_mono_us(in->emit.clock));
    }
    return MORE;
}

static void give_way(struct instance *in, struct resume *r) {
    if (r->source == CACHE_HOST)
        instance_resume_abort(in, r->sequence); // it stays parked
    else
        instance_give_up(in, r->sequence, RELEASE_PRESSURE);
}

// It cannot be brought back, and stays what it was.
static void cannot(struct instance *in, struct resume *r, int rc) {
    bool file = r->source == CACHE_SNAPSHOT;
    log_debug("engine.resume", "code=%s source=%s", err_name(rc),
              engine_cache_source_name(r->source));
    if (rc == E_NOMEM && !r->sequence->turn && !file)
        instance_resume_abort(in, r->sequence); // it stays parked
    else
        failed(in, r);
}

bool instance_resume(struct instance *in) {
    bool more = false;
    in->reading = false;
    struct resume *r, *next;
    int64_t step = atomic_load_explicit(&in->load.step_us_ewma, memory_order_relaxed) / STEP_PART;
    int64_t slice = instance_n_stepping(in) == 0 ? ALONE_SLICE_US
                    : step > LEAST_SLICE_US      ? step
                                                 : LEAST_SLICE_US;
    int64_t until = clock_mono_us(in->emit.clock) + slice;
    DL_FOREACH_SAFE(in->resuming, r, next) {
        if (r->gives_way && !has_admitted(r)) {
            give_way(in, r);
            continue;
        }
        int rc = go_on(in, r, slice, until);
        if (rc == E_DEVICE) atomic_store(&in->load.device_lost, true);
        if (rc < 0)
            cannot(in, r, rc);
        else if (rc == 1)
            succeeded(in, r);
        more = more || rc == 0 || rc == MORE;
        in->reading = in->reading || rc == READING;
        if (clock_mono_us(in->emit.clock) >= until) return in->resuming;
    }
    return more;
}
