// The owner's side of turns. Checks that need nothing of the engine's thread are made here.
//
// The owner has a table of sequences: an entry lives from the first submit until an event says that
// neither turn nor cache is left. Its size bounds the commands under way, so none is refused.
#include "base/random_id.h"
#include "engine/engine_internal.h"
#include "engine/run/command.h"
#include "engine/run/load.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- the owner's table ---------------------------------------------------------------------------

static struct owned *find(struct engine *e, uint64_t sequence) {
    struct owned *w;
    HASH_FIND(hh, e->owned, &sequence, sizeof sequence, w);
    return w;
}

static struct owned *find_or_add(struct engine *e, uint64_t sequence) {
    struct owned *w = find(e, sequence);
    if (w) return w;
    w = calloc(1, sizeof *w);
    if (!w) return NULL;
    w->sequence = sequence;
    HASH_ADD(hh, e->owned, sequence, sizeof w->sequence, w);
    if (hash_added(&w->hh)) return w;
    free(w);
    return NULL;
}

static void forget(struct engine *e, struct owned *w) {
    HASH_DEL(e->owned, w);
    free(w);
}

// --- places --------------------------------------------------------------------------------------

// How many turns of this priority there may be, before owners that have many are refused.
static int32_t n_places(const struct engine *e, enum engine_priority p) {
    int32_t n = e->max_running + e->max_queued;
    return p == ENGINE_INTERACTIVE ? n : n / TURNS_IDLE_PART + 1;
}

// One owner may fill all places. Beyond them, each owner may have a quarter of an equal part, so a flood
// of one owner's turns does not keep another owner's out. Memory bounds them all together.
static bool is_full(const struct engine *e, const struct turn_places *mine,
                    enum engine_priority p) {
    int32_t n = n_places(e, p), owners = e->n_busy[p] + (mine->n_active == 0);
    int32_t part = n / (4 * owners) > 1 ? n / (4 * owners) : 1;
    return e->n_active[p] >= TURNS_OVERFULL * n || (e->n_active[p] >= n && mine->n_active >= part);
}

static void note_full(struct engine *e, struct turn_places *mine, enum engine_priority p) {
    if (!mine->turnover.full_us && is_full(e, mine, p))
        turnover_filled(&mine->turnover, clock_mono_us(e->clock));
}

static struct turn_owner *find_turn_owner(struct engine *e, uint64_t owner) {
    struct turn_owner *o;
    HASH_FIND(hh, e->turn_owners, &owner, sizeof owner, o);
    return o;
}

static struct turn_owner *find_or_add_turn_owner(struct engine *e, uint64_t owner) {
    struct turn_owner *o = find_turn_owner(e, owner);
    if (o) return o;
    o = calloc(1, sizeof *o);
    if (!o) return NULL;
    o->owner = owner;
    HASH_ADD(hh, e->turn_owners, owner, sizeof o->owner, o);
    if (hash_added(&o->hh)) return o;
    free(o);
    return NULL;
}

static void take_place(struct engine *e, struct owned *w, struct turn_places *mine,
                       enum engine_priority p) {
    w->places = mine;
    w->priority = p;
    e->n_busy[p] += mine->n_active++ == 0;
    e->n_active[p]++;
    note_full(e, mine, p);
}

static void leave_place(struct engine *e, const struct owned *w, int64_t now_us) {
    enum engine_priority p = w->priority;
    e->n_busy[p] -= --w->places->n_active == 0;
    e->n_active[p]--;
    for (struct turn_owner *o = e->turn_owners; o; o = o->hh.next)
        if (!is_full(e, &o->places[p], p)) turnover_ended(&o->places[p].turnover, now_us);
}

int64_t engine_retry_us(struct engine *e, uint64_t owner, enum engine_priority priority) {
    struct turn_owner *o = find_turn_owner(e, owner);
    struct turn_places unknown = {0}, *mine = o ? &o->places[priority] : &unknown;
    note_full(e, mine, priority);
    return turnover_promise(&mine->turnover, clock_mono_us(e->clock),
                            mine->n_active > 0 ? mine->n_active : 1);
}

static struct known_snapshot *find_known(const struct engine *e, struct hash128 name) {
    struct known_snapshot *k;
    HASH_FIND(hh, e->known, &name, sizeof name, k);
    return k;
}

void engine_note_snapshot(struct engine *e, struct hash128 name, const char *id) {
    if (find_known(e, name)) return;
    struct known_snapshot *k = calloc(1, sizeof *k);
    if (!k) return; // it is not shown, but still used
    k->name = name;
    snprintf(k->id, sizeof k->id, "%s", id);
    HASH_ADD(hh, e->known, name, sizeof k->name, k);
    if (!hash_added(&k->hh)) free(k);
}

static void drop_known(struct engine *e, struct known_snapshot *k) {
    e->n_forget -= k->forget;
    HASH_DEL(e->known, k);
    free(k);
}

static void note_snapshot(struct engine *e, const struct engine_event *ev) {
    struct hash128 name = {ev->snapshot_name[0], ev->snapshot_name[1]};
    struct known_snapshot *k = find_known(e, name);
    if (ev->snapshot)
        engine_note_snapshot(e, name, "");
    else if (k)
        drop_known(e, k);
}

static void note_event(struct engine *e, const struct engine_event *ev) {
    if (ev->kind == ENGINE_SNAPSHOT) note_snapshot(e, ev);
    struct owned *w = find(e, ev->sequence);
    if (!w) return;
    if (ev->kind == ENGINE_DONE) {
        w->active = false;
        leave_place(e, w, ev->time_us);
        w->park_sent = w->export_sent = false;
        if (ev->blocks == 0 && !ev->parked) forget(e, w);
    } else if (ev->kind == ENGINE_PARKED) {
        w->park_sent = false;
    } else if (ev->kind == ENGINE_RELEASED || ev->kind == ENGINE_EXPORTED) {
        w->release_sent = w->park_sent = w->export_sent = false;
        if (!w->active) forget(e, w); // else a new turn was submitted meanwhile
    } else if (ev->kind == ENGINE_FORKED && ev->blocks == 0) {
        if (!w->active) forget(e, w); // else its turn starts from nothing
    }
}

// --- submit --------------------------------------------------------------------------------------

// Adds the tokens of one form of a word.
static int add_bad_form(const struct engine *e, int32_t before, const char *text,
                        struct sampling_words *words, struct err *err) {
    struct token_list ids;
    token_list_init(&ids);
    int rc = engine_tokenize_after(e, before, text, strlen(text), &ids, err);
    if (rc == 0) rc = sampling_words_add_ids(words, "bad_words", ids.ids, ids.len, err);
    token_list_release(&ids);
    return rc;
}

// The sampler bans token sequences: a text becomes those that it has in the midst of a text, with and
// without a space before it.
static int resolve_bad_texts(const struct engine *e, struct sampling_params *p, struct err *err) {
    struct sampling_words *w = &p->bad_words;
    char spaced[SAMPLING_WORD_BYTES + 1] = " ";
    struct token_list any;
    int32_t before = -1;
    if (w->n_texts == 0) return 0;
    token_list_init(&any);
    if (engine_tokenize(e, "a", 1, false, &any, NULL) == 0 && any.len > 0)
        before = any.ids[any.len - 1]; // a token of text
    token_list_release(&any);
    for (int32_t i = 0; i < w->n_texts; i++) {
        const char *text = sampling_word_text(w, i);
        strcpy(spaced + 1, text);
        TRY(add_bad_form(e, before, text, w, err));
        if (text[0] != ' ') TRY(add_bad_form(e, before, spaced, w, err));
    }
    w->n_texts = 0;
    return 0;
}

static int check_room(const struct engine *e, const struct engine_turn *t, const struct owned *w,
                      const struct turn_places *mine, struct err *err) {
    if (e->stopped) return err_set(err, E_CLOSED, "the engine is shutting down");
    if (atomic_load(&e->load->device_lost))
        return err_set(err, E_DEVICE, "the device failed; nothing runs until the server restarts");
    if (w && w->active) return err_set(err, E_BUSY, "a turn of this sequence is under way");
    if (is_full(e, mine, t->priority)) {
        return err_set(err, E_BUSY, "%d of %d turns that run or wait are yours: the queue is full",
                       mine->n_active, e->n_active[t->priority]);
    }
    if (!w && HASH_COUNT(e->owned) >= (unsigned)e->max_known) {
        return err_set(err, E_BUSY, "%d sequences hold a cache or a turn already", e->max_known);
    }
    return 0;
}

// Frees a turn that was not queued: its log is still the caller's.
static void drop_new(struct live_turn *t) {
    if (t) t->spec.ids = NULL;
    live_turn_free(t);
}

int engine_turn_submit(struct engine *e, struct engine_turn *turn, struct err *err) {
    struct owned *w = find(e, turn->sequence);
    TRY(engine_turn_check(e, turn, err));
    struct turn_owner *owner = find_or_add_turn_owner(e, turn->owner);
    if (!owner) return err_set(err, E_NOMEM, "no memory for another turn");
    struct turn_places *mine = &owner->places[turn->priority];
    TRY(check_room(e, turn, w, mine, err));
    int64_t reserve = branches_reserve(turn, e->groups, e->prefill_tokens, e->info.block_tokens,
                                       live_turn_max_log(turn));
    int32_t n_branches = turn->score_only ? 1 : branches_wanted(&turn->sampling);
    if (reserve > e->info.n_blocks)
        return err_set(err, E_NOMEM,
                       "memory_len %d%s needs %lld cache blocks of %d tokens, and the cache has %d",
                       turn->memory_len,
                       n_branches > 1 ? ", with these branches and max_tokens," : "",
                       (long long)reserve, e->info.block_tokens, e->info.n_blocks);
    if (!turn->sampling.has_seed) {
        turn->sampling.seed = random_u64();
        turn->sampling.has_seed = true;
    }
    struct live_turn *t = live_turn_new(turn, clock_mono_us(e->clock));
    if (t) {
        int rc = resolve_bad_texts(e, &t->spec.sampling, err);
        if (rc == 0) rc = engine_grammar_take(e, t, err);
        if (rc == 0 && !e->process) rc = context_reserve(&t->context, &t->spec, e->info.width, err);
        if (rc == 0 && !e->process)
            rc = branches_new(&t->branches, &t->spec, live_turn_max_log(&t->spec), e->info.n_vocab,
                              e->eos_ids, e->n_eos, err);
        if (rc < 0) {
            drop_new(t);
            return rc;
        }
    }
    w = t ? find_or_add(e, turn->sequence) : NULL;
    if (!w) {
        drop_new(t);
        return err_set(err, E_NOMEM, "no memory for another turn");
    }
    t->sched.reserve = (int32_t)reserve;
    t->sched.places = core_places(e->max_running, n_branches);
    t->sched.priority = turn->priority;
    t->sched.never_paused = turn->on_logits;
    struct command c = {
        .kind = COMMAND_SUBMIT, .sequence = turn->sequence, .turn_id = turn->turn, .turn = t};
    int rc = queue_try_push(&e->commands, &c);
    if (rc < 0) { // cannot happen while the table's bound holds
        drop_new(t);
        forget(e, w);
        return err_set(err, rc, "the engine's command queue is full");
    }
    w->turn = turn->turn;
    w->active = true;
    w->cancel_sent = false;
    take_place(e, w, mine, turn->priority);
    turn->ids = NULL;
    return 0;
}

// --- cancel, release, events ---------------------------------------------------------------------

static void end_turn(struct engine *e, struct command c) {
    struct owned *w = find(e, c.sequence);
    bool runs = w && w->active && w->turn == c.turn_id && !w->cancel_sent;
    if (runs) w->cancel_sent = queue_try_push(&e->commands, &c) == 0;
}

void engine_turn_cancel(struct engine *e, uint64_t sequence, uint64_t turn) {
    end_turn(e, (struct command){COMMAND_CANCEL, .sequence = sequence, .turn_id = turn});
}

void engine_turn_yield(struct engine *e, uint64_t sequence, uint64_t turn) {
    end_turn(e, (struct command){COMMAND_YIELD, .sequence = sequence, .turn_id = turn});
}

void engine_sequence_park(struct engine *e, uint64_t sequence) {
    struct owned *w = find(e, sequence);
    if (!w || w->active || w->park_sent || w->release_sent) return;
    struct command c = {.kind = COMMAND_PARK, .sequence = sequence};
    w->park_sent = queue_try_push(&e->commands, &c) == 0;
}

void engine_sequence_warm(struct engine *e, uint64_t sequence) {
    const int64_t again_us = 5000000; // bounds the commands under way and the work for one client
    struct owned *w = find(e, sequence);
    int64_t now = clock_mono_us(e->clock);
    if (!w || w->active || (w->warmed_us && now - w->warmed_us < again_us)) return;
    struct command c = {.kind = COMMAND_WARM, .sequence = sequence};
    if (queue_try_push(&e->commands, &c) == 0) w->warmed_us = now;
}

void engine_sequence_prepare(struct engine *e, struct engine_turn *t) {
    struct err err;
    t->score_only = true;
    t->n_input = 0;
    bool file = (t->lasting_id && engine_has_snapshot(e, t->lasting_id)) ||
                (t->origin_id && engine_has_snapshot(e, t->origin_id));
    bool can = file && !e->stopped && !e->saves_at_stop && !find(e, t->sequence) &&
               HASH_COUNT(e->owned) < (unsigned)e->max_known && engine_turn_check(e, t, &err) == 0;
    struct live_turn *turn = can ? live_turn_new(t, clock_mono_us(e->clock)) : NULL;
    struct owned *w = turn ? find_or_add(e, t->sequence) : NULL;
    struct command c = {.kind = COMMAND_PREPARE, .sequence = t->sequence, .turn = turn};
    if (w) {
        turn->sched.reserve =
            kv_ring_max_blocks(&(struct kv_ring_shape){.memory_len = t->memory_len,
                                                       .sink_len = t->sink_len,
                                                       .chunk_tokens = e->prefill_tokens,
                                                       .block_tokens = e->info.block_tokens,
                                                       .session_len = t->n_ids,
                                                       .groups = e->groups});
        if (queue_try_push(&e->commands, &c) == 0) {
            t->ids = NULL;
            return;
        }
        forget(e, w);
    }
    if (turn) turn->spec.ids = NULL; // the log is t's
    live_turn_free(turn);
    free(t->ids);
    t->ids = NULL;
}

void engine_sequence_release(struct engine *e, uint64_t sequence) {
    struct owned *w = find(e, sequence);
    if (!w || w->release_sent || e->saves_at_stop) return;
    struct command c = {.kind = COMMAND_RELEASE, .sequence = sequence};
    w->release_sent = queue_try_push(&e->commands, &c) == 0;
}

int engine_sequence_fork(struct engine *e, uint64_t from, uint64_t to, int64_t n_tokens) {
    if (e->stopped) return E_CLOSED;
    if (to == 0 || to == from || find(e, to)) return E_INVAL;
    if (!find(e, from) || n_tokens <= 0) return 0; // nothing to share
    if (HASH_COUNT(e->owned) >= (unsigned)e->max_known) return E_BUSY;
    struct owned *w = find_or_add(e, to);
    if (!w) return E_NOMEM;
    struct command c = {.kind = COMMAND_FORK, .sequence = to, .from = from, .n_tokens = n_tokens};
    int rc = queue_try_push(&e->commands, &c);
    if (rc < 0) forget(e, w);
    return rc;
}

void engine_sequence_export(struct engine *e, uint64_t sequence) {
    struct owned *w = find(e, sequence);
    if (!w || w->active || w->release_sent || w->export_sent || e->saves_at_stop) return;
    struct command c = {.kind = COMMAND_EXPORT, .sequence = sequence};
    w->export_sent = queue_try_push(&e->commands, &c) == 0;
}

int engine_sequence_import(struct engine *e, uint64_t sequence, struct packed_cache *cache) {
    if (e->stopped) return E_CLOSED;
    if (sequence == 0 || find(e, sequence)) return E_INVAL;
    if (kv_snapshot_difference(&cache->maker, &e->maker)) return E_INVAL;
    if (HASH_COUNT(e->owned) >= (unsigned)e->max_known) return E_BUSY;
    struct owned *w = find_or_add(e, sequence);
    if (!w) return E_NOMEM;
    struct command c = {.kind = COMMAND_IMPORT, .sequence = sequence, .cache = cache};
    int rc = queue_try_push(&e->commands, &c);
    if (rc < 0) forget(e, w);
    return rc;
}

int64_t engine_packed_tokens(const struct packed_cache *cache) {
    return cache->n_ids;
}

void engine_packed_free(struct packed_cache *cache) {
    packed_cache_free(cache);
}

// --- snapshots -----------------------------------------------------------------------------------

static int send_forget(struct engine *e, uint64_t sequence, struct hash128 name) {
    struct command c = {.kind = COMMAND_FORGET, .sequence = sequence, .name = name};
    return queue_try_push(&e->commands, &c);
}

bool engine_has_snapshot(const struct engine *e, const char *lasting_id) {
    const struct known_snapshot *k = e->known ? find_known(e, snapshot_name(lasting_id)) : NULL;
    return k && !k->forget;
}

// Also without a known snapshot: one may be on its way to the disk.
void engine_snapshot_forget(struct engine *e, uint64_t sequence, const char *lasting_id) {
    if (!e->has_snapshots) return;
    struct hash128 name = snapshot_name(lasting_id);
    struct known_snapshot *k = find_known(e, name);
    if (send_forget(e, sequence, name) == 0 || (k && k->forget)) return;
    engine_note_snapshot(e, name, lasting_id);
    k = find_known(e, name);
    if (!k) return; // no memory: the next start removes it (engine_snapshots_tidy)
    k->forget = true;
    k->sequence = sequence;
    e->n_forget++;
}

static void forget_again(struct engine *e) {
    struct known_snapshot *k, *next;
    HASH_ITER(hh, e->known, k, next) {
        if (!k->forget || send_forget(e, k->sequence, k->name) < 0) continue;
        k->forget = false; // its event, or the next start, takes it out
        e->n_forget--;
    }
}

int engine_snapshots_tidy(struct engine *e, bool (*wanted)(void *ctx, const char *lasting_id),
                          void *ctx) {
    struct known_snapshot *k, *next;
    int n = 0;
    HASH_ITER(hh, e->known, k, next) {
        if (!k->id[0] || wanted(ctx, k->id)) continue;
        engine_snapshot_forget(e, 0, k->id);
        n++;
    }
    return n;
}

void engine_save_at_stop(struct engine *e) {
    struct command c = {.kind = COMMAND_SAVE};
    if (e->saves_at_stop || e->stopped || !e->has_snapshots) return;
    e->saves_at_stop = queue_try_push(&e->commands, &c) == 0;
}

// What an event lends ends with the next one.
static void take_event(struct engine *e, const struct engine_event *ev) {
    free(e->lent);
    free(e->lent_scores);
    e->lent = ev->context_embedding;
    e->lent_scores = ev->scores;
    branches_free((struct branches *)e->lent_branches);
    e->lent_branches = ev->branches;
    note_event(e, ev);
}

static void forget_all(struct engine *e) {
    struct owned *w, *next;
    HASH_ITER(hh, e->owned, w, next) forget(e, w);
}

// The next turn that ended with the engine's process. 0: there is none, and no cache is left.
static int next_lost(struct engine *e, struct engine_event *out) {
    struct owned *w = e->owned;
    while (w && !w->active) w = w->hh.next;
    if (!w) {
        forget_all(e);
        e->ends_lost = false;
        return 0;
    }
    *out = (struct engine_event){.kind = ENGINE_DONE,
                                 .sequence = w->sequence,
                                 .turn = w->turn,
                                 .time_us = clock_mono_us(e->clock),
                                 .finish = FINISH_ERROR,
                                 .error_code = E_DEVICE};
    return 1;
}

// 1: *out is an event for the owner.
static int pass_on(struct engine *e, struct engine_event *out) {
    if (out->kind == EVENT_PROCESS_LOST) {
        e->ends_lost = true;
        if (next_lost(e, out) == 0) return 0;
    }
    take_event(e, out);
    return 1;
}

int engine_poll(struct engine *e, struct engine_event *out) {
    if (e->n_forget > 0) forget_again(e);
    if (e->ends_lost && next_lost(e, out) == 1) return pass_on(e, out);
    while (queue_try_pop(&e->events, out) == 1)
        if (pass_on(e, out) == 1) return 1;
    return 0;
}

bool engine_reopens(const struct engine *e) {
    return e->process;
}

bool engine_reopened(struct engine *e) {
    struct engine_event dropped;
    if (!e->process || !atomic_load(&e->load->device_lost)) return false;
    while (engine_poll(e, &dropped) == 1)
        if (dropped.kind == ENGINE_EXPORTED) packed_cache_free(dropped.cache);
    forget_all(e);
    return process_take_up(e->process);
}

int engine_wait(struct engine *e, struct engine_event *out, int64_t timeout_us) {
    if (e->ends_lost && next_lost(e, out) == 1) return pass_on(e, out);
    while (queue_pop(&e->events, out, timeout_us) == 1) {
        if (pass_on(e, out) == 0) continue;
        if (out->kind != ENGINE_FORKED && out->kind != ENGINE_SNAPSHOT) return 1;
    }
    return 0;
}

bool engine_token_is_near(const struct engine *e) {
    int32_t cpu = atomic_load_explicit(&e->load->drawing_on, memory_order_relaxed);
    return cpu >= 0 && cpu != sched_getcpu();
}

void engine_why_lost(const struct engine *e, char *out, size_t cap) {
    const struct core_load *l = e->load;
    if (e->process)
        process_why_lost(e->process, out, cap);
    else
        snprintf(out, cap, "%s", atomic_load(&l->says_why) ? l->why_lost : "");
}

void engine_load(const struct engine *e, struct engine_load *out) {
    const struct core_load *l = e->load;
    int32_t turns[ENGINE_N_PRIORITIES][3];
    for (int p = 0; p < ENGINE_N_PRIORITIES; p++) {
        turns[p][0] = atomic_load_explicit(&l->turns[p].running, memory_order_relaxed);
        turns[p][1] = atomic_load_explicit(&l->turns[p].queued, memory_order_relaxed);
        turns[p][2] = atomic_load_explicit(&l->turns[p].paused, memory_order_relaxed);
    }
    *out = (struct engine_load){
        .running = turns[ENGINE_INTERACTIVE][0] + turns[ENGINE_IDLE][0],
        .queued = turns[ENGINE_INTERACTIVE][1] + turns[ENGINE_IDLE][1],
        .paused = turns[ENGINE_INTERACTIVE][2] + turns[ENGINE_IDLE][2],
        .idle_running = turns[ENGINE_IDLE][0],
        .idle_queued = turns[ENGINE_IDLE][1],
        .idle_paused = turns[ENGINE_IDLE][2],
        .sequences = atomic_load_explicit(&l->sequences, memory_order_relaxed),
        .blocks_free = atomic_load_explicit(&l->blocks_free, memory_order_relaxed),
        .blocks_total = e->info.n_blocks,
        .blocks_idle = atomic_load_explicit(&l->blocks_idle, memory_order_relaxed),
        .parked = atomic_load_explicit(&l->parked, memory_order_relaxed),
        .host_blocks_free = atomic_load_explicit(&l->host_blocks_free, memory_order_relaxed),
        .host_blocks_total = e->host_blocks,
        .snapshots = atomic_load_explicit(&l->snapshots, memory_order_relaxed),
        .snapshot_bytes = atomic_load_explicit(&l->snapshot_bytes, memory_order_relaxed),
        .steps = atomic_load_explicit(&l->steps, memory_order_relaxed),
        .step_us_ewma = atomic_load_explicit(&l->step_us_ewma, memory_order_relaxed),
        .device_lost = atomic_load_explicit(&l->device_lost, memory_order_relaxed),
        .heartbeat_us = atomic_load_explicit(&l->heartbeat_us, memory_order_relaxed),
        .restarts = e->process ? process_restarts(e->process) : 0,
    };
}
