// How turns begin and end on the engine's thread: commands, admission, deadlines, eviction.
//
// Life of a sequence in the table: made by its first turn; while a turn is queued or none is there
// it is in the scheduler's idle list and may lose its cache at any time; while a turn runs it is
// not. It leaves the table when it has neither a turn nor a block.
#include "engine/run/instance.h"

#include "base/log.h"
#include <stddef.h>
#include <string.h>

static struct sequence *find(struct instance *in, uint64_t id) {
    struct sequence *s;
    HASH_FIND(hh, in->sequences, &id, sizeof id, s);
    return s;
}

// NULL when memory is out, also where it is the table's own that cannot grow.
static struct sequence *find_or_add(struct instance *in, uint64_t id) {
    struct sequence *s = find(in, id);
    if (s) return s;
    s = sequence_new(id);
    if (!s) return NULL;
    HASH_ADD(hh, in->sequences, id, sizeof s->id, s);
    if (hash_added(&s->hh)) return s;
    sequence_free(s);
    return NULL;
}

void instance_forget_if_empty(struct instance *in, struct sequence *s) {
    if (s->turn || s->ring.n_held > 0 || s->parked || s->resume) return;
    tiers_drop(&in->tiers, s);
    instance_park_ask(in, s, false);
    sched_idle_remove(&in->sched, &s->idle);
    HASH_DEL(in->sequences, s);
    sequence_free(s);
}

// Sequences that share their blocks could be more than there are blocks, and the owner's table is
// bounded: beyond the bound the oldest goes, as for want of room; one that has to be copied first
// goes when the next comes. Those with a turn in the queue are in the list too and not counted.
static void go_idle(struct instance *in, struct sequence *s) {
    sched_idle_add(&in->sched, &s->idle);
    while (in->opt.max_idle > 0 && in->sched.n_idle > in->opt.max_idle + in->sched.n_queued) {
        if (instance_evict(in) != EVICT_DONE) break;
    }
}

// --- the end of a turn ---------------------------------------------------------------------------

static void count_end(struct instance *in, const struct turn *t, enum engine_finish finish) {
    const struct run_metrics *m = &in->metrics;
    metric_add(m->finished[finish], 1);
    if (!t->first_us) return;
    metric_observe(m->prefill_time, (double)(t->first_us - t->started_us) * 1e-6);
    metric_observe(m->decode_time, (double)(t->last_us - t->first_us) * 1e-6);
}

void instance_finish(struct instance *in, struct turn *t, enum engine_finish finish,
                     const struct err *why, bool drop_cache) {
    instance_tell(in);
    struct sequence *s = t->sequence;
    // What its first step stood still for is part of what is said below. Where that step is not
    // over, nobody waits for it, and it is not the next turn's.
    if (in->tiers.step_turn == t) {
        if (tiers_collect(&in->tiers, false, clock_mono_us(in->emit.clock)) < 0)
            atomic_store(&in->load.device_lost, true);
        in->tiers.step_turn = NULL;
    }
    bool ran = t->sched.state == SCHED_PREFILL || t->sched.state == SCHED_DECODE;
    sched_leave(&in->sched, &t->sched);
    buf_reset(&in->text);
    if (finish != FINISH_STOP && turn_flush(t, &in->scratch, &in->text) < 0) {
        log_warn("engine.text_lost", "turn=%llu", (unsigned long long)t->spec.turn);
    }
    if (t->slot) t->slot->taken = false;
    if (ran) {
        sequence_take_log(s, t->spec.ids);
        t->spec.ids = NULL;
    }
    s->turn = NULL;
    instance_resume_abort(in, s);
    if (drop_cache) sequence_drop(s);
    s->used_us = clock_mono_us(in->emit.clock);
    tiers_used(&in->tiers, s);
    if (s->ring.n_held > 0) go_idle(in, s);
    count_end(in, t, finish);
    emit_done(&in->emit, t, finish, why, buf_z(&in->text), in->text.len, s->ring.n_held, s->parked);
    s->file_refusal = NULL;
    if (s->release_asked)
        instance_give_up(in, s, RELEASE_ASKED);
    else
        instance_forget_if_empty(in, s);
    engine_turn_free(t);
}

// --- commands ------------------------------------------------------------------------------------

static void submit(struct instance *in, struct turn *t) {
    struct sequence *s = find_or_add(in, t->spec.sequence);
    if (!s) {
        struct err err;
        err_set(&err, E_NOMEM, "no memory for another sequence");
        metric_add(in->metrics.finished[FINISH_ERROR], 1);
        emit_done(&in->emit, t, FINISH_ERROR, &err, "", 0, 0, false);
        engine_turn_free(t);
        return;
    }
    t->sequence = s;
    s->turn = t;
    s->names = t->names;
    sched_idle_add(&in->sched, &s->idle); // about to be used: evicted last
    if (t->deadline_us < in->next_deadline_us) in->next_deadline_us = t->deadline_us;
    sched_enqueue(&in->sched, &t->sched);
}

// What the source has in host memory serves the new one too. It is parked from the start, unless it
// has the blocks on the device: then the copies are there for when it parks. Images that are only
// on the way to a file are left to that; and one that is being read is not right yet.
static int fork_image(struct instance *in, struct sequence *to, const struct sequence *from,
                      int64_t n) {
    const struct sequence_shape shape = instance_image_shape(in, from);
    const struct resume *r = from->resume;
    bool right = from->image.copies && !in->tiers.transit &&
                 !(r && r->stage == RESUME_COPY && r->source == CACHE_SNAPSHOT);
    bool parks = to->ring.n_held == 0;
    struct err err;
    if (n > from->n_image) n = from->n_image;
    if (!right || n <= 0) return 0;
    if (parks) {
        // A ring says what the window leaves of so many positions.
        TRY(sequence_ready(to, &in->pool, &shape, &err));
        bool serves = kv_image_serves(&from->image, &to->ring, n);
        sequence_drop(to);
        if (!serves) return 0;
    }
    TRY(tiers_fork(&in->tiers, to, from, n));
    to->used_us = clock_mono_us(in->emit.clock);
    to->image_state = parks ? IMAGE_WHOLE : IMAGE_STALE;
    to->parked = parks;
    in->tiers.n_parked += parks;
    in->persist_look = true;
    return 0;
}

// The new sequence is idle or parked from here on, and may be evicted like any other. Where there
// was nothing to share it does not come into being; the owner's side is told which.
static void fork_sequence(struct instance *in, const struct command *c) {
    struct sequence *from = find(in, c->from), *to = from ? find_or_add(in, c->sequence) : NULL;
    if (to && to->ring.n_held == 0 && !to->turn && !to->parked) {
        int rc = sequence_fork(to, from, c->n_tokens);
        if (rc >= 0) rc = fork_image(in, to, from, c->n_tokens);
        if (rc < 0) log_warn("engine.fork", "code=%s", err_name(rc));
        if (to->ring.n_held > 0) go_idle(in, to);
    }
    if (to && to->parked)
        emit_forked(&in->emit, c->sequence, to->n_image, to->image.n_held, true);
    else
        emit_forked(&in->emit, c->sequence, to ? to->ring.n_tokens : 0, to ? to->ring.n_held : 0,
                    false);
    if (to) instance_forget_if_empty(in, to);
}

// Where nothing can be parked, and nothing is, it goes.
static void park(struct instance *in, struct sequence *s) {
    if (s->parked || s->resume) return;
    if (tiers_on(&in->tiers) && s->ring.n_held > 0)
        instance_park_ask(in, s, true);
    else
        instance_give_up(in, s, RELEASE_ASKED);
}

void instance_command(struct instance *in, const struct command *c) {
    struct sequence *s = find(in, c->sequence);
    switch (c->kind) {
    case COMMAND_SUBMIT:
        submit(in, c->turn);
        break;
    case COMMAND_CANCEL:
        if (s && s->turn && s->turn->spec.turn == c->turn_id) {
            instance_finish(in, s->turn, FINISH_CANCELLED, NULL, false);
        }
        break;
    case COMMAND_RELEASE:
        if (!s) break; // evicted meanwhile: its event is under way
        if (s->turn)
            s->release_asked = true;
        else
            instance_give_up(in, s, RELEASE_ASKED);
        break;
    case COMMAND_PARK:
        if (s && !s->turn) park(in, s);
        break;
    case COMMAND_WARM:
        if (s && !s->turn) instance_warm(in, s);
        break;
    case COMMAND_PREPARE:
        instance_prepare(in, find_or_add(in, c->sequence), c->turn);
        break;
    case COMMAND_FORK:
        fork_sequence(in, c);
        break;
    case COMMAND_FORGET:
        snapshots_forget(&in->snapshots, c->name);
        if (s) s->names.id[0] = '\0'; // nothing of it is written any more
        break;
    case COMMAND_SNAPSHOT:
        instance_snapshot_done(in, c->job);
        break;
    case COMMAND_KEEP:
        in->keep_asked = true;
        break;
    case COMMAND_STOP:
        in->stopping = true;
        break;
    }
}

// Deadlines are looked at only when one can have passed.
void instance_expire(struct instance *in) {
    int64_t now = clock_mono_us(in->emit.clock);
    if (now < in->next_deadline_us) return;
    struct sequence *s, *next;
    in->next_deadline_us = INT64_MAX;
    HASH_ITER(hh, in->sequences, s, next) {
        if (!s->turn) continue;
        int64_t deadline = s->turn->deadline_us;
        if (deadline <= now)
            instance_finish(in, s->turn, FINISH_DEADLINE, NULL, false);
        else if (deadline < in->next_deadline_us)
            in->next_deadline_us = deadline;
    }
}

// --- admission -----------------------------------------------------------------------------------

static struct turn_slot *free_slot(struct instance *in) {
    struct turn_slot *slot = in->slots;
    while (slot->taken) slot++; // as many slots as turns may run
    return slot;
}

struct sequence_shape instance_turn_shape(const struct instance *in, const struct engine_turn *t) {
    return (struct sequence_shape){
        .group = t->share_group,
        .memory_len = t->memory_len,
        .sink_len = t->sink_len,
        .chunk_tokens = in->opt.prefill_tokens,
        .block_tokens = in->opt.block_tokens,
        .session_len = in->opt.max_session_len,
    };
}

static int begin(struct instance *in, struct turn *t, struct err *err) {
    struct sequence *s = t->sequence;
    struct sequence_shape shape = instance_turn_shape(in, &t->spec);
    // Blocks that are being copied to host memory stay what they are until they have been: from
    // here on they are written, or given to others, while the image says that they are right.
    if (in->tiers.copying == s && !in->tiers.loading)
        (void)tiers_collect(&in->tiers, true, t->started_us);
    // After a hint its cache may be on its way: that is waited for if it is what this turn needs.
    // Once its blocks are being filled, the ring holds nothing that could be compared.
    if (s->resume && !instance_resume_serves(s, &shape, t->spec.ids, t->n_log))
        instance_resume_abort(in, s);
    if (!s->resume || s->resume->stage == RESUME_OPEN)
        TRY(sequence_match(s, &in->pool, &shape, t->spec.ids, t->n_log, &t->n_cached, &t->n_shared,
                           err));
    instance_park_ask(in, s, false);
    if (!s->resume) instance_not_warm(in, s);
    s->park_refused = s->file_refused = false;
    s->image_state = IMAGE_STALE;
    // Of the sequence's own cache: what it shares from now on is told beside it.
    t->source = t->n_cached > t->n_shared         ? CACHE_KEPT
                : t->spec.n_ids > t->spec.n_input ? CACHE_RECOMPUTED
                                                  : CACHE_NONE;
    if (instance_resume_begin(in, s, t->spec.ids, t->n_log, t->n_cached))
        t->sched.state = SCHED_WAIT;
    else
        instance_unparked(in, s);
    t->slot = free_slot(in);
    t->slot->taken = true;
    return turn_begin(t, t->slot, in->tokenizer, in->eos_ids, in->n_eos, err);
}

void instance_turn_started(struct instance *in, struct turn *t) {
    t->sched.state = SCHED_PREFILL;
    t->sched.n_todo = t->n_log - t->n_cached;
    metric_add(in->metrics.cached_tokens, (double)t->n_cached);
    metric_add(in->metrics.shared_tokens, (double)t->n_shared);
    emit_started(&in->emit, t, t->source, t->sched.n_todo, t->sequence->ring.n_held);
}

void instance_admit(struct instance *in) {
    struct sched_turn *next;
    while ((next = sched_admit(&in->sched))) {
        struct turn *t = (struct turn *)next;
        struct err err = {0};
        sched_idle_remove(&in->sched, &t->sequence->idle);
        t->started_us = clock_mono_us(in->emit.clock);
        metric_observe(in->metrics.queue_time, (double)(t->started_us - t->submitted_us) * 1e-6);
        int rc = begin(in, t, &err);
        if (t->sched.state != SCHED_WAIT) instance_turn_started(in, t);
        if (rc < 0) instance_finish(in, t, FINISH_ERROR, &err, false);
    }
}
