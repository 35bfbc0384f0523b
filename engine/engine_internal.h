// The engine behind engine.h, for engine/*.c and for tests that drive it without a thread.
#pragma once
#include "engine/engine.h"
#include "engine/run/instance.h"
#include "engine/text/chat_template.h"
#include "engine/turnover.h"
#include <pthread.h>

// What the owner's thread knows of a sequence without asking: is a turn under way, may there be a
// cache.
struct owned {
    uint64_t sequence, turn; // turn: the one under way, if any
    bool active, cancel_sent, release_sent, park_sent;
    int64_t warmed_us; // when it was last hinted at; 0: never
    UT_hash_handle hh;
};

// A snapshot that there is, as the owner's thread knows it.
struct known_snapshot {
    struct hash128 name;
    char id[KV_SNAPSHOT_ID_MAX + 1]; // of those that were there at opening
    bool forget;                     // the command had no room yet
    uint64_t sequence;
    UT_hash_handle hh;
};

struct engine {
    // Constant after opening.
    struct engine_info info;
    char model_name[256], backend_name[128], template_error[512];
    struct backend *backend;
    struct model *model;
    struct tokenizer *tokenizer; // NULL: ids only
    struct chat_template *chat;  // NULL: no chat turns
    int32_t eos_ids[MODEL_MAX_EOS + 1];
    int32_t n_eos, max_queued, max_known;

    // The owner's thread.
    struct owned *owned;          // uthash
    struct known_snapshot *known; // uthash
    int32_t n_forget;             // of them, with forget
    bool saves_at_stop;           // engine_save_at_stop was called
    bool has_snapshots;           // constant
    int32_t n_active;
    struct turnover turnover; // of the places of those
    bool stopped;             // told to
    const struct clock *clock;

    struct queue commands; // owner -> engine's thread
    struct queue events;   // engine's thread -> owner
    pthread_t thread;
    bool has_thread;
    struct instance instance; // the engine's thread, or the test that calls engine_round
};

// engine_open without the thread: the caller calls engine_round. Tests only.
int engine_open_manual(struct engine **out, const struct engine_options *o,
                       const struct clock *clock, struct err *err);
// The owner's thread knows of a file. Of no other use than to the engine's own files.
void engine_note_snapshot(struct engine *e, struct hash128 name, const char *id);
// One round of the loop that the thread would run; does not wait. False once stopped. Between
// rounds the caller polls.
bool engine_round(struct engine *e);
