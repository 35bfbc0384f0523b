// An engine without a model: every function of engine/engine.h, deterministic, advanced by the
// test. One test program each includes it, where it replaces the real engine at link time.
//
// The token at position p is a hash of the token before it, p and the seed, so a log can be checked
// against fake_token(). fake_step() gives every turn one step; events wait in a list as the
// engine's do.
#pragma once
#include "engine/engine.h"
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Its own allocations never fail, even while a test makes other allocations fail.
#ifndef fake_realloc
#define fake_realloc realloc
#endif
#define FAKE_VOCAB 1000
#define FAKE_WIDTH 4 // values of a virtual token
#define FAKE_TURNS 512

struct fake_turn {
    bool used, started, cancelled, yields;
    struct engine_turn t;
    int64_t n_ids, n_generated, n_cached, cap;
    char held[64]; // text that waits for the next token
};
struct fake_sequence {
    uint64_t sequence;
    int64_t n_cached; // of its log
};
static struct fake_state {
    struct engine_info info;
    struct fake_sequence sequences[FAKE_TURNS];
    struct engine_event *events;
    size_t n_events, first_event, cap_events;
    int64_t time_us;
    int default_tokens; // of a turn without max_tokens
    int submit_rc;      // what the next submits return instead
    int64_t retry_us;   // and when there may be room
    int eos_after;      // > 0: each turn's answer has an eos as that token, whatever max_tokens is
    bool lost;          // the device failed: turns end and are refused with E_DEVICE
    bool is_gone;       // as a lost process: the ends of its turns give no reason
    int fail_after;     // > 0: turns end with an error after that many tokens more
    int fail_code;      // of that error; 0: E_INTERNAL
    int n_short;        // so many turns end with E_NOMEM instead of beginning
    char table[PROMPT_HASH_DIGITS + 1]; // the last turn's prompt table; "": none
    bool names_snapshot;                // the last turn has a lasting_id
    int import_rc;                      // what imports return instead
    bool no_host;                       // they find no room
    int n_exported, n_imported;
    int n_submitted, n_released, n_asked, n_forked, n_forgotten, n_prepared;
    const char *files[8]; // names of snapshots that exist at the start; "" once removed
    int64_t last_n_ids;
    bool reopened;       // what engine_reopened says
    int32_t blocks_free; // of info.n_blocks
    int32_t host_blocks;
    int n_turns; // so many entries below have been used; the last member: fake_reset_one()
    struct fake_turn turns[FAKE_TURNS];
} fakes[3], *fake_now = fakes;
// Of all engines: one grammar stands for every text.
struct grammar {
    int unused;
};
static struct {
    struct grammar only;
    bool dropped;                  // it must be compiled again
    bool invalid;                  // no text can be compiled
    atomic_int n_compiled, n_held; // by engine_grammar_prepare; by sessions
    int n_late;                    // turns submitted without theirs
} fake_grammars;
// The engine that was spoken to last; with one engine always the first, whose address is NULL.
#define fake (*fake_now)
static void fake_use(const struct engine *e) {
    if (fake_now != &fakes[(size_t)e]) fake_now = &fakes[(size_t)e]; // workers only read
}
static struct engine *fake_engine(size_t i) {
    return (struct engine *)i;
}

// The turns take megabytes, nearly all of them unused, and some tests start over a thousand times.
static void fake_reset_one(void) {
    for (int i = 0; i < fake.n_turns; i++)
        if (fake.turns[i].used) free(fake.turns[i].t.ids);
    free(fake.events);
    memset(fake.turns, 0, (size_t)fake.n_turns * sizeof *fake.turns);
    memset(&fake, 0, offsetof(struct fake_state, turns));
    fake.default_tokens = 6;
    fake.info = (struct engine_info){.model_name = "fake",
                                     .family = "llama",
                                     .fingerprint = "f-1",
                                     .chat_template = "chatml",
                                     .tokenizer = "bpe",
                                     .backend = "fake: 1 thread",
                                     .n_vocab = FAKE_VOCAB,
                                     .end_of_turn = 2,
                                     .max_session_len = 4096,
                                     .default_memory_len = 256,
                                     .max_memory_len = 1024,
                                     .block_tokens = 16,
                                     .n_blocks = 1024};
}
static void fake_reset(void) {
    for (size_t i = sizeof fakes / sizeof *fakes; i-- > 0;) { // the first one is the last
        fake_use(fake_engine(i));
        fake_reset_one();
    }
}

static int32_t fake_token(int32_t before, int64_t position, uint64_t seed) {
    uint64_t h = (uint64_t)(uint32_t)before * 0x9e3779b97f4a7c15u +
                 (uint64_t)position * 0xbf58476d1ce4e5b9u + seed;
    h ^= h >> 31;
    h *= 0x94d049bb133111ebu;
    return (int32_t)(10 + (h >> 33) % (FAKE_VOCAB - 10));
}
// Every fifth id is held back until the next token; some carry two-byte characters.
static void fake_text(int32_t id, char out[24]) {
    snprintf(out, 24, id % 7 == 0 ? "\xc3\xa9%d " : "w%d ", id);
}

static struct engine_event *fake_event(enum engine_event_kind kind, const struct fake_turn *t) {
    if (fake.n_events == fake.cap_events) {
        fake.cap_events = fake.cap_events ? fake.cap_events * 2 : 64;
        fake.events = fake_realloc(fake.events, fake.cap_events * sizeof *fake.events);
    }
    struct engine_event *e = &fake.events[fake.n_events++];
    memset(e, 0, sizeof *e);
    e->kind = kind;
    e->time_us = fake.time_us;
    if (t) {
        e->sequence = t->t.sequence;
        e->turn = t->t.turn;
    }
    return e;
}

static struct fake_sequence *fake_sequence(uint64_t sequence, bool make) {
    struct fake_sequence *free_one = NULL;
    for (int i = 0; i < FAKE_TURNS; i++) {
        if (fake.sequences[i].sequence == sequence) return &fake.sequences[i];
        if (!free_one && fake.sequences[i].sequence == 0) free_one = &fake.sequences[i];
    }
    if (!make) return NULL;
    if (!free_one) abort();
    *free_one = (struct fake_sequence){.sequence = sequence};
    return free_one;
}

static void fake_done(struct fake_turn *t, enum engine_finish finish) {
    struct engine_event *e = fake_event(ENGINE_DONE, t);
    struct fake_sequence *q = fake_sequence(t->t.sequence, t->started);
    e->finish = finish;
    if (finish == FINISH_ERROR) {
        e->error_code = fake.lost ? E_DEVICE : fake.fail_code ? fake.fail_code : E_INTERNAL;
        if (!t->started && fake.n_short > 0) e->error_code = E_NOMEM;
        strcpy(t->held, fake.is_gone ? "" : "the fake device failed");
    }
    e->text_len = (uint32_t)strlen(t->held);
    memcpy(e->text, t->held, e->text_len);
    // The real engine does not clear the event either.
    memset(e->text + e->text_len, '#', sizeof e->text - e->text_len);
    e->n_prefilled = t->started ? t->t.n_ids - t->n_cached : 0;
    e->n_generated = t->n_generated;
    e->prefill_us = 100;
    e->resume_us = 40;
    e->decode_us = 10 * t->n_generated;
    e->paused_us = 7;
    e->queue_us = 5;
    if (q && t->started) q->n_cached = t->n_ids - (t->n_generated > 0);
    e->blocks = q && q->n_cached > 0 ? 1 : 0;
    free(t->t.ids);
    t->used = false;
}

static void fake_step_turn(struct fake_turn *t) {
    if (t->cancelled || t->yields) {
        if (!t->cancelled) t->held[0] = '\0';
        fake_done(t, t->cancelled ? FINISH_CANCELLED : FINISH_YIELDED);
        return;
    }
    if (!t->started && fake.n_short > 0) {
        fake_done(t, FINISH_ERROR);
        fake.n_short--;
        return;
    }
    if (!t->started) {
        struct fake_sequence *q = fake_sequence(t->t.sequence, true);
        t->started = true;
        t->n_cached = q->n_cached < t->n_ids ? q->n_cached : t->n_ids - 1;
        struct engine_event *e = fake_event(ENGINE_STARTED, t);
        e->n_cached = t->n_cached;
        e->n_total = t->n_ids - t->n_cached;
        e->source = t->t.n_ids == t->t.n_input ? CACHE_NONE
                    : t->n_cached              ? CACHE_KEPT
                                               : CACHE_RECOMPUTED;
        if (e->n_total > 64) {
            struct engine_event *p = fake_event(ENGINE_PROGRESS, t);
            p->n_done = 64;
            p->n_total = t->n_ids - t->n_cached;
        }
        return;
    }
    int32_t id = fake_token(t->t.ids[t->n_ids - 1], t->n_ids, t->t.sampling.seed);
    if (t->n_ids == t->cap)
        t->t.ids = fake_realloc(t->t.ids, (size_t)(t->cap *= 2) * sizeof(int32_t));
    t->t.ids[t->n_ids++] = id;
    t->n_generated++;
    struct engine_event *e = fake_event(ENGINE_TOKEN, t);
    char text[24];
    e->id = id;
    e->logprob = -(float)id / 256;
    e->n_alternatives = t->t.sampling.top_logprobs;
    for (int i = 0; i < e->n_alternatives; i++)
        e->alternatives[i] = (struct engine_alternative){(id + i) % FAKE_VOCAB, -(float)i};
    fake_text(id, text);
    if (id % 5 == 0 && strlen(t->held) + strlen(text) < sizeof t->held) {
        strcat(t->held, text);
    } else {
        e->text_len = (uint32_t)sprintf(e->text, "%s%s", t->held, text);
        t->held[0] = '\0';
    }
    for (int32_t branch = 1; branch < t->t.sampling.n; branch++) { // the turn's other answers
        struct engine_event *o = fake_event(ENGINE_TOKEN, t);
        o->id = fake_token(id, t->n_ids, t->t.sampling.seed + (uint64_t)branch);
        o->branch = branch;
        o->logprob = -1;
        fake_text(o->id, o->text);
        o->text_len = (uint32_t)strlen(o->text);
    }
    int64_t max = t->t.sampling.max_tokens ? t->t.sampling.max_tokens : fake.default_tokens;
    if (fake.fail_after && t->n_generated - t->t.n_drawn >= fake.fail_after)
        fake_done(t, FINISH_ERROR);
    else if (fake.eos_after && t->n_generated >= fake.eos_after)
        fake_done(t, FINISH_EOS);
    else if (t->n_ids >= t->t.session_len || (t->t.sampling.max_tokens && t->n_generated >= max))
        fake_done(t, FINISH_LENGTH);
    else if (t->n_generated >= max)
        fake_done(t, FINISH_EOS);
}

// The device of the engine in use fails: every turn ends, and later ones are refused.
static inline void fake_lose(void) {
    fake.lost = true;
    for (int i = 0; i < fake.n_turns; i++)
        if (fake.turns[i].used) fake_done(&fake.turns[i], FINISH_ERROR);
}

static int fake_n_running(void) {
    int n = 0;
    for (int i = 0; i < fake.n_turns; i++) n += fake.turns[i].used;
    return n;
}
static void fake_step(void) {
    fake.time_us += 1000;
    for (int i = 0; i < fake.n_turns; i++)
        if (fake.turns[i].used) fake_step_turn(&fake.turns[i]);
}
// Evicts this sequence's cache, as memory pressure does. False if it has none or is running.
static bool fake_pressure(uint64_t sequence) {
    struct fake_sequence *q = fake_sequence(sequence, false);
    for (int i = 0; i < fake.n_turns; i++)
        if (fake.turns[i].used && fake.turns[i].t.sequence == sequence) return false;
    if (!q) return false;
    q->sequence = 0;
    struct engine_event *e = fake_event(ENGINE_RELEASED, NULL);
    e->sequence = sequence;
    e->why = RELEASE_PRESSURE;
    return true;
}

const struct engine_info *engine_info(const struct engine *e) {
    fake_use(e);
    return &fake.info;
}

int64_t engine_prompt_width(const struct engine *e, enum prompt_kind kind) {
    return FAKE_WIDTH;
}

int engine_turn_submit(struct engine *e, struct engine_turn *turn, struct err *err) {
    fake_use(e);
    if (fake.lost) return err_set(err, E_DEVICE, "the fake device failed");
    fake.names_snapshot = turn->lasting_id;
    if (fake.submit_rc) return err_set(err, fake.submit_rc, "the fake engine says no");
    struct fake_turn *slot = NULL;
    for (int i = 0; i < FAKE_TURNS && i <= fake.n_turns; i++) {
        if (!fake.turns[i].used && !slot) slot = &fake.turns[i];
        if (fake.turns[i].used && fake.turns[i].t.sequence == turn->sequence)
            return err_set(err, E_BUSY, "a turn of this sequence is under way");
    }
    if (!slot) return err_set(err, E_BUSY, "the queue is full");
    if (slot - fake.turns >= fake.n_turns) fake.n_turns = (int)(slot - fake.turns) + 1;
    if (turn->sampling.grammar && !turn->compiled) fake_grammars.n_late++;
    turn->compiled = NULL;
    if (turn->n_ids >= turn->session_len) return err_set(err, E_FULL, "no room");
    memset(fake.table, 0, sizeof fake.table);
    if (turn->prompt) memcpy(fake.table, turn->prompt->digits, sizeof fake.table);
    *slot = (struct fake_turn){.used = true, .t = *turn, .n_ids = turn->n_ids, .cap = turn->n_ids};
    slot->n_generated = turn->n_drawn;
    for (int64_t i = turn->n_ids - turn->n_drawn; i < turn->n_ids; i++) { // what is held back
        char text[24];
        fake_text(turn->ids[i], text);
        if (turn->ids[i] % 5 == 0 && strlen(slot->held) + strlen(text) < sizeof slot->held)
            strcat(slot->held, text);
        else
            slot->held[0] = '\0';
    }
    fake.n_submitted++;
    fake.last_n_ids = turn->n_ids;
    return 0;
}
int64_t engine_retry_us(struct engine *e, uint64_t owner, enum engine_priority priority) {
    fake_use(e);
    return fake.retry_us;
}
void engine_turn_cancel(struct engine *e, uint64_t sequence, uint64_t turn) {
    fake_use(e);
    for (int i = 0; i < fake.n_turns; i++)
        if (fake.turns[i].used && fake.turns[i].t.sequence == sequence &&
            fake.turns[i].t.turn == turn)
            fake.turns[i].cancelled = true;
}
void engine_turn_yield(struct engine *e, uint64_t sequence, uint64_t turn) {
    fake_use(e);
    for (int i = 0; i < fake.n_turns; i++)
        if (fake.turns[i].used && fake.turns[i].t.sequence == sequence &&
            fake.turns[i].t.turn == turn)
            fake.turns[i].yields = true;
}
void engine_sequence_release(struct engine *e, uint64_t sequence) {
    fake_use(e);
    fake.n_asked++;
    if (!fake_pressure(sequence)) return;
    fake.events[fake.n_events - 1].why = RELEASE_ASKED;
    fake.n_released++;
}
// It has no host memory: a parked cache is evicted.
void engine_sequence_park(struct engine *e, uint64_t sequence) {
    fake_use(e);
    engine_sequence_release(e, sequence);
}
// So there is nothing to bring back early.
void engine_sequence_warm(struct engine *e, uint64_t sequence) {}
void engine_sequence_prepare(struct engine *e, struct engine_turn *t) {
    fake_use(e);
    fake.n_prepared++;
    free(t->ids);
    t->ids = NULL;
}
// It writes no files; it counts the sessions whose files should be removed.
void engine_snapshot_forget(struct engine *e, uint64_t sequence, const char *lasting_id) {
    fake_use(e);
    fake.n_forgotten++;
}
bool engine_has_snapshot(const struct engine *e, const char *lasting_id) {
    fake_use(e);
    for (size_t i = 0; i < sizeof fake.files / sizeof *fake.files && fake.files[i]; i++)
        if (!strcmp(fake.files[i], lasting_id)) return true;
    return false;
}
int engine_snapshots_tidy(struct engine *e, bool (*wanted)(void *ctx, const char *lasting_id),
                          void *ctx) {
    fake_use(e);
    int n = 0;
    for (size_t i = 0; i < sizeof fake.files / sizeof *fake.files && fake.files[i]; i++)
        if (!wanted(ctx, fake.files[i])) fake.files[i] = "", n++;
    return n;
}
int engine_sequence_fork(struct engine *e, uint64_t from, uint64_t to, int64_t n_tokens) {
    fake_use(e);
    const struct fake_sequence *f = fake_sequence(from, false);
    if (to == 0 || to == from || fake_sequence(to, false)) return E_INVAL;
    fake.n_forked++;
    if (!f || n_tokens <= 0) return 0;
    int64_t n_cached = n_tokens < f->n_cached ? n_tokens : f->n_cached;
    if (n_cached > 0) fake_sequence(to, true)->n_cached = n_cached;
    struct engine_event *ev = fake_event(ENGINE_FORKED, NULL);
    ev->sequence = to;
    ev->n_cached = n_cached;
    ev->blocks = n_cached > 0;
    return 0;
}
// A packed cache is the length of its log.
struct packed_cache {
    int64_t n_ids;
};
void engine_sequence_export(struct engine *e, uint64_t sequence) {
    fake_use(e);
    struct fake_sequence *q = fake_sequence(sequence, false);
    if (!q || q->n_cached == 0) return;
    struct packed_cache *cache = fake_realloc(NULL, sizeof *cache);
    cache->n_ids = q->n_cached;
    q->sequence = 0;
    struct engine_event *ev = fake_event(ENGINE_EXPORTED, NULL);
    ev->sequence = sequence;
    ev->cache = cache;
    ev->blocks = 1;
    fake.n_exported++;
}
int engine_sequence_import(struct engine *e, uint64_t sequence, struct packed_cache *cache) {
    fake_use(e);
    if (fake.import_rc) return fake.import_rc;
    if (fake_sequence(sequence, false)) return E_INVAL;
    if (!fake.no_host) fake_sequence(sequence, true)->n_cached = cache->n_ids;
    struct engine_event *ev = fake_event(ENGINE_FORKED, NULL);
    ev->sequence = sequence;
    ev->n_cached = fake.no_host ? 0 : cache->n_ids;
    ev->blocks = !fake.no_host;
    ev->parked = !fake.no_host;
    fake.n_imported++;
    free(cache);
    return 0;
}
void engine_packed_free(struct packed_cache *cache) {
    free(cache);
}
int engine_poll(struct engine *e, struct engine_event *out) {
    fake_use(e);
    if (fake.first_event == fake.n_events) {
        fake.first_event = fake.n_events = 0;
        return 0;
    }
    *out = fake.events[fake.first_event++];
    return 1;
}
int engine_wait(struct engine *e, struct engine_event *out, int64_t timeout_us) {
    fake_use(e);
    while (fake.first_event == fake.n_events && fake_n_running() > 0) fake_step();
    return engine_poll(e, out);
}
// Its cache counts in blocks of one token.
void engine_load(const struct engine *e, struct engine_load *out) {
    fake_use(e);
    *out = (struct engine_load){.blocks_free = fake.blocks_free,
                                .host_blocks_total = fake.host_blocks,
                                .blocks_total = fake.info.n_blocks * fake.info.block_tokens};
}
bool engine_reopened(struct engine *e) {
    fake_use(e);
    return fake.reopened;
}
bool engine_reopens(const struct engine *e) {
    return false;
}
const char *engine_finish_name(enum engine_finish f) {
    static const char *const names[] = {"eos",      "stop",  "length",   "cancelled",
                                        "deadline", "error", "shutdown", "yielded"};
    return names[f];
}
const char *engine_cache_source_name(enum engine_cache_source s) {
    static const char *const names[] = {"none", "kept", "recomputed", "host", "snapshot"};
    return names[s];
}
// One token per byte, 100 + the byte.
int engine_tokenize(const struct engine *e, const char *text, size_t len, bool special,
                    struct token_list *out, struct err *err) {
    fake_use(e);
    for (size_t i = 0; i < len; i++)
        if (token_list_push(out, 100 + (unsigned char)text[i]) < 0)
            return err_set(err, E_NOMEM, "no memory for the fake tokens");
    return 0;
}

int engine_grammar_prepare(const struct engine *e, uint64_t owner, const struct grammar_text *text,
                           struct grammar **out, struct err *err) {
    atomic_fetch_add(&fake_grammars.n_compiled, 1);
    atomic_fetch_add(&fake_grammars.n_held, 1);
    if (fake_grammars.invalid) {
        atomic_fetch_sub(&fake_grammars.n_held, 1);
        return err_set(err, E_INVAL, "regex: invalid");
    }
    *out = &fake_grammars.only;
    return 0;
}

struct grammar *engine_grammar_find(const struct engine *e, uint64_t owner,
                                    const struct grammar_text *text) {
    if (fake_grammars.dropped) return NULL;
    atomic_fetch_add(&fake_grammars.n_held, 1);
    return &fake_grammars.only;
}

void engine_grammar_release(struct grammar *g) {
    if (g) atomic_fetch_sub(&fake_grammars.n_held, 1);
}

// Conversations that clients send whole are tested with a real model.
struct chat_syntax engine_syntax(const struct engine *e) {
    return (struct chat_syntax){0};
}

bool engine_begins_thinking(const struct engine *e, const int32_t *log, int64_t n, bool goes_on) {
    return false;
}
const char *engine_rendering_text(const struct chat_rendering *r, size_t *len) {
    *len = 0;
    return "";
}
size_t engine_rendering_turn_end(const struct chat_rendering *r, size_t from) {
    return SIZE_MAX;
}

int engine_tokenize_start(const struct engine *e, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    return engine_tokenize(e, text, len, true, out, err);
}
int engine_tokenize_after(const struct engine *e, int32_t last_id, const char *text, size_t len,
                          struct token_list *out, struct err *err) {
    fake_use(e);
    return engine_tokenize(e, text, len, true, out, err);
}
bool engine_token_is_text(const struct engine *e, int32_t id) {
    return true;
}
const char *engine_token_bytes(const struct engine *e, int32_t id, size_t *len) {
    static char byte;
    fake_use(e);
    byte = (char)(id - 100);
    *len = 1;
    return &byte;
}
// 3 starts a system message, 4 a user's, 5 the answer; 2 ends each (not twice).
int engine_render_turn(const struct engine *e, const struct engine_message *messages, size_t n,
                       int32_t last_id, struct token_list *out, struct err *err) {
    fake_use(e);
    int rc = last_id >= 0 && last_id != 2 ? token_list_push(out, 2) : 0;
    for (size_t i = 0; rc == 0 && i < n; i++) {
        const char *content = messages[i].content;
        rc = token_list_push(out, strcmp(messages[i].role, "system") == 0 ? 3 : 4);
        if (rc == 0) rc = engine_tokenize(e, content, strlen(content), false, out, err);
        if (rc == 0) rc = token_list_push(out, 2);
    }
    if (rc == 0) rc = token_list_push(out, 5);
    return rc < 0 ? err_set(err, rc, "no memory for the fake tokens") : 0;
}
