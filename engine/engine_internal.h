// The engine behind engine.h, for engine/*.c and for tests that drive it without a thread.
#pragma once
#include "engine/dist/lead.h"
#include "engine/engine.h"
#include "engine/grammar/grammars.h"
#include "engine/model/prompt_tasks.h"
#include "engine/process/process.h"
#include "engine/run/engine_core.h"
#include "engine/run/load.h"
#include "engine/text/chat_template.h"
#include "engine/turnover.h"
#include <pthread.h>

// Turns of idle priority may take a TURNS_IDLE_PART-th of the places (running and queued together).
// When they are full, owners that have few turns get more, up to TURNS_OVERFULL times as many in all
// (engine_turns.c).
enum { TURNS_IDLE_PART = 4, TURNS_OVERFULL = 2 };

// The turns of one owner of sessions, with one priority, that run or wait.
struct turn_places {
    int32_t n_active;
    struct turnover turnover; // of the places that it may have
};
struct turn_owner {
    uint64_t owner; // engine_turn.owner
    struct turn_places places[ENGINE_N_PRIORITIES];
    UT_hash_handle hh;
};

// The owner's view of a sequence: whether a turn runs, and which commands are under way. An entry
// means that the engine may have a turn or a cache of it.
struct owned {
    uint64_t sequence, turn;    // turn: the running or queued one
    struct turn_places *places; // of that turn
    enum engine_priority priority;
    bool active, cancel_sent, release_sent, park_sent, export_sent;
    int64_t warmed_us; // time of the last hint; 0: none
    UT_hash_handle hh;
};

// A snapshot, as the owner's thread knows it.
struct known_snapshot {
    struct hash128 name;
    char id[KV_SNAPSHOT_ID_MAX + 1]; // of a snapshot that was found at opening; else ""
    bool forget;                     // to be removed; the command had no room yet
    uint64_t sequence;
    UT_hash_handle hh;
};

struct engine {
    // Constant after opening.
    struct engine_info info;
    char model_name[256], backend_name[128], template_error[512];
    struct backend *backend;
    struct model *model;
    struct lead lead;                  // of the other ranks, if there are any
    struct process *process;           // has backend, model, lead and core; NULL: this one has
    struct model_config *own_config;   // read for an engine process's engine; NULL: the model's
    const struct model_config *config; // own_config, or the model's
    struct kv_groups own_groups;       // of an engine process's engine, without places
    const struct kv_groups *groups;    // own_groups, or the model's
    int32_t max_running, prefill_tokens, host_blocks;
    bool has_final_norm;
    struct tokenizer *tokenizer; // NULL: ids only
    struct chat_template *chat;  // NULL: no chat turns
    struct prompt_tasks tasks;
    struct kv_snapshot_maker maker;  // of its caches' bytes
    struct grammars *grammars;       // has a lock of its own; NULL: no tokenizer
    struct thinking_marks *thinking; // NULL: the model does not think, or does so in a channel
    struct thinking_marks *channel;  // that of gpt-oss, for turns without a grammar; or NULL
    int32_t eos_ids[MODEL_MAX_EOS + 1];
    int32_t n_eos, max_queued, max_known;

    // The owner's thread.
    struct owned *owned;                         // uthash
    struct known_snapshot *known;                // uthash
    double *lent;                                // the last event's context_embedding
    struct engine_scores *lent_scores;           // and its scores
    const struct engine_branches *lent_branches; // and its branches: the first of struct branches
    int32_t n_forget;                            // known snapshots with `forget` set
    bool saves_at_stop;                          // engine_save_at_stop was called
    bool has_snapshots;                          // constant
    // uthash; the configuration names all owners, so it has no bound
    struct turn_owner *turn_owners;
    int32_t n_active[ENGINE_N_PRIORITIES], n_busy[ENGINE_N_PRIORITIES]; // turns; owners with turns
    bool stopped;                                                       // engine_stop was called
    bool ends_lost; // its process has ended, and engine_poll must still end its turns
    const struct clock *clock;

    struct queue commands; // owner -> engine's thread
    struct queue events;   // engine's thread -> owner
    pthread_t thread;
    bool has_thread;
    struct engine_core core;          // the engine's thread, or the test that calls engine_round
    struct core_load *load, own_load; // the instance's; of a process, shared with it
};

// Where an engine process publishes its load, and what takes its events; all may be NULL.
struct engine_outlets {
    struct core_load *load;
    void (*sink)(void *ctx, struct engine_event *events, size_t n); // as in struct core_options
    void *sink_ctx;
};
// engine_open_manual of an engine process.
int engine_open_inside(struct engine **out, const struct engine_options *o,
                       const struct engine_outlets *at, struct err *err);
// engine_open of an engine whose model is in a process of its own.
int engine_open_outside(struct engine **out, const struct engine_options *o, struct err *err);
// The parts of opening that both have: tokenizer and chat template, before the weights, which then take the memory that
// reading a vocabulary needed; prompt tables, which e->config describes; the end-of-answer tokens; what engine_info says
// of texts.
int engine_open_texts(struct engine *e, const struct engine_options *o, struct err *err);
int engine_open_tasks(struct engine *e, const struct engine_options *o, struct err *err);
void engine_describe_texts(struct engine *e);
int engine_open_grammars(struct engine *e, struct err *err); // after engine_describe_texts
// Weights that cannot fit the device are refused before they are loaded, which may take minutes. After the
// backend and the ranks are open. E_NOMEM says what would fit.
int engine_check_weights(const struct engine *e, const struct engine_options *o,
                         const struct model_config *mc, struct err *err);
// After loading: o->max_sequences where it is 0. o has no prefill_chunk_tokens of 0.
int engine_size_places(const struct engine *e, struct engine_options *o, struct err *err);
// Once e->maker is known: e->info.kv_windows.
void engine_note_windows(struct engine *e);
// Then: the sizes of sessions and the cache in *io and e->info. E_INVAL, E_NOMEM: *err says which setting helps.
int engine_size_cache(struct engine *e, const struct engine_options *o, struct core_options *io,
                      struct err *err);

// Whether the turn can run here at all. E_INVAL, E_UNSUPPORTED, E_FULL: *err names the field.
int engine_turn_check(const struct engine *e, const struct engine_turn *t, struct err *err);

// engine_open without the thread: the caller calls engine_round. Tests only.
int engine_open_manual(struct engine **out, const struct engine_options *o,
                       const struct clock *clock, struct err *err);
// The turn's grammar (engine_turn.compiled, else compiled before or now), and the model's thinking, as far
// as the turn needs them. E_INVAL also: no answer fits the turn.
int engine_grammar_take(const struct engine *e, struct live_turn *t, struct err *err);
// Adds a snapshot to the owner's view.
void engine_note_snapshot(struct engine *e, struct hash128 name, const char *id);
// One round of the loop that the thread would run; does not wait. False once stopped. Between
// rounds the caller polls.
bool engine_round(struct engine *e);
