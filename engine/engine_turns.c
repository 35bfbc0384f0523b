// The owner's side of turns. Checks that need nothing of the engine's thread are made here.
//
// The owner has a table of sequences: an entry lives from the first submit until an event says that
// neither turn nor cache is left. Its size bounds the commands under way, so none is refused.
#include "base/random_id.h"
#include "engine/engine_internal.h"
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
    int32_t n = e->instance.opt.max_running + e->max_queued;
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

static int check_log(const struct engine *e, const struct engine_turn *t, struct err *err) {
    if (!t->ids || t->n_ids < 1)
        return err_set(err, E_INVAL, "ids: a turn needs a log of at least one token");
    int64_t given = t->n_ids - t->n_drawn;
    if (t->n_drawn < 0 || given < 1 || t->n_input < 0 || t->n_input > given)
        return err_set(err, E_INVAL, "n_input %lld, n_drawn %lld: in a log of %lld tokens",
                       (long long)t->n_input, (long long)t->n_drawn, (long long)t->n_ids);
    if (t->n_drawn > 0 && (t->score_only || branches_wanted(&t->sampling) > 1))
        return err_set(err, E_INVAL, "n_drawn: only a turn with one answer goes on");
    // Length first: it bounds the loop below.
    int64_t room = t->session_len - t->n_ids;
    if (room < 0 || (room == 0 && !t->score_only)) {
        return err_set(err, E_FULL,
                       "a log of %lld tokens leaves no room to generate in a session of %lld",
                       (long long)t->n_ids, (long long)t->session_len);
    }
    for (int64_t i = 0; i < t->n_ids; i++) {
        if (prompt_allows(t->prompt, i, t->ids[i])) continue;
        if (t->ids[i] < 0 || t->ids[i] >= e->info.n_vocab) {
            return err_set(err, E_INVAL, "ids: %d at position %lld is not in the vocabulary of %d",
                           t->ids[i], (long long)i, e->info.n_vocab);
        }
    }
    return 0;
}

static int check_prompt(const struct engine *e, const struct engine_turn *t, struct err *err) {
    const struct prompt *p = t->prompt;
    if (!p) return 0;
    if (p->width != prompt_width(&e->model->config, p->kind))
        return err_set(err, E_INVAL, "prompt: made for another model");
    for (int32_t i = 0; i < prompt_n_prefix(p); i++)
        if (i >= t->n_ids - 1 || t->ids[i] != PROMPT_ID_FIRST + i)
            return err_set(err, E_INVAL,
                           "ids: a log with a prefix begins with its %d virtual tokens, and has "
                           "more tokens than those",
                           p->n_rows);
    return 0;
}

int engine_prompt_load(const struct engine *e, const char *dir, struct prompt **out,
                       struct err *err) {
    return prompt_load(out, &e->model->config, dir, err);
}

int64_t engine_prompt_width(const struct engine *e, enum prompt_kind kind) {
    return prompt_width(&e->model->config, kind);
}

static int check_turn(const struct engine *e, const struct engine_turn *t, struct err *err) {
    if (t->sequence == 0) return err_set(err, E_INVAL, "sequence: 0 names no sequence");
    if (t->session_len < 1 || t->session_len > e->info.max_session_len)
        return err_set(err, E_INVAL, "session_len: %lld is not in 1 .. %lld",
                       (long long)t->session_len, (long long)e->info.max_session_len);
    if (t->memory_len < 1 || t->memory_len > e->info.max_memory_len)
        return err_set(err, E_INVAL, "memory_len: %d is not in 1 .. %d", t->memory_len,
                       e->info.max_memory_len);
    if (t->sink_len < 0 || t->sink_len >= t->memory_len)
        return err_set(err, E_INVAL, "sink_len: %d is not in 0 .. %d, below memory_len",
                       t->sink_len, t->memory_len - 1);
    if (t->share_group > INT64_MAX)
        return err_set(err, E_INVAL, "share_group: larger than %lld", (long long)INT64_MAX);
    if (t->sampling.stop.n_texts > 0 && !e->tokenizer)
        return err_set(err, E_INVAL,
                       "stop: the model has no tokenizer, so its tokens have no text to stop at");
    if (t->sampling.bad_words.n_texts > 0 && !e->tokenizer)
        return err_set(
            err, E_INVAL,
            "bad_words: the model has no tokenizer, so words must be lists of token ids");
    if (t->lasting_id && strlen(t->lasting_id) > KV_SNAPSHOT_ID_MAX)
        return err_set(err, E_INVAL, "lasting_id: longer than %d characters", KV_SNAPSHOT_ID_MAX);
    if (t->origin_id && strlen(t->origin_id) > KV_SNAPSHOT_ID_MAX)
        return err_set(err, E_INVAL, "origin_id: longer than %d characters", KV_SNAPSHOT_ID_MAX);
    TRY(sampling_params_check(&t->sampling, e->info.n_vocab, err));
    TRY(branches_check(t, e->n_eos, err));
    if (t->sampling.context_embedding && t->sampling.context_pooling != POOLING_SUM &&
        !final_norm_usable(&e->instance.final_norm))
        return err_set(err, E_UNSUPPORTED,
                       "context_pooling: the final norm is on another rank of this instance");
    TRY(check_log(e, t, err));
    TRY(drafts_check(t->expected, t->n_expected, e->info.n_vocab, err));
    return check_prompt(e, t, err);
}

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
    if (atomic_load(&e->instance.load.device_lost))
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
    TRY(check_turn(e, turn, err));
    struct turn_owner *owner = find_or_add_turn_owner(e, turn->owner);
    if (!owner) return err_set(err, E_NOMEM, "no memory for another turn");
    struct turn_places *mine = &owner->places[turn->priority];
    TRY(check_room(e, turn, w, mine, err));
    int64_t reserve = branches_reserve(turn, e->instance.opt.prefill_tokens, e->info.block_tokens,
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
        if (rc == 0) rc = context_reserve(&t->context, &t->spec, e->info.width, err);
        if (rc == 0)
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
    int32_t most = e->instance.opt.max_running;
    t->sched.places = n_branches < most ? n_branches : most;
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
               HASH_COUNT(e->owned) < (unsigned)e->max_known && check_turn(e, t, &err) == 0;
    struct live_turn *turn = can ? live_turn_new(t, clock_mono_us(e->clock)) : NULL;
    struct owned *w = turn ? find_or_add(e, t->sequence) : NULL;
    struct command c = {.kind = COMMAND_PREPARE, .sequence = t->sequence, .turn = turn};
    if (w) {
        turn->sched.reserve =
            kv_ring_max_blocks(t->memory_len, t->sink_len, e->instance.opt.prefill_tokens,
                               e->info.block_tokens, t->n_ids);
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

int engine_poll(struct engine *e, struct engine_event *out) {
    if (e->n_forget > 0) forget_again(e);
    int got = queue_try_pop(&e->events, out);
    if (got == 1) take_event(e, out);
    return got;
}

int engine_wait(struct engine *e, struct engine_event *out, int64_t timeout_us) {
    while (queue_pop(&e->events, out, timeout_us) == 1) {
        take_event(e, out);
        if (out->kind != ENGINE_FORKED && out->kind != ENGINE_SNAPSHOT) return 1;
    }
    return 0;
}

bool engine_token_is_near(const struct engine *e) {
    int32_t cpu = atomic_load_explicit(&e->instance.load.drawing_on, memory_order_relaxed);
    return cpu >= 0 && cpu != sched_getcpu();
}

void engine_load(const struct engine *e, struct engine_load *out) {
    const struct instance_load *l = &e->instance.load;
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
        .host_blocks_total = e->instance.caches.tiers.host.n_blocks,
        .snapshots = atomic_load_explicit(&l->snapshots, memory_order_relaxed),
        .snapshot_bytes = atomic_load_explicit(&l->snapshot_bytes, memory_order_relaxed),
        .steps = atomic_load_explicit(&l->steps, memory_order_relaxed),
        .step_us_ewma = atomic_load_explicit(&l->step_us_ewma, memory_order_relaxed),
        .device_lost = atomic_load_explicit(&l->device_lost, memory_order_relaxed),
        .heartbeat_us = atomic_load_explicit(&l->heartbeat_us, memory_order_relaxed),
    };
}
