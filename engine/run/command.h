// What other threads ask of the engine's thread: entries of engine_core.commands.
#pragma once
#include "base/siphash.h"

struct live_turn;
struct packed_cache;
struct snapshot_job;

enum command_kind {
    COMMAND_SUBMIT,
    COMMAND_CANCEL,
    COMMAND_YIELD,
    COMMAND_RELEASE,
    COMMAND_PARK,
    COMMAND_WARM,
    COMMAND_PREPARE,
    COMMAND_FORK,
    COMMAND_EXPORT,
    COMMAND_IMPORT,
    COMMAND_FORGET,
    COMMAND_SNAPSHOT,
    COMMAND_SAVE,
    COMMAND_STOP,
    COMMAND_BELL, // these two are for an engine process's supervisor alone (engine/process)
    COMMAND_TAKEN_UP
};
struct command {
    enum command_kind kind;
    uint64_t sequence, turn_id;
    struct live_turn *turn; // SUBMIT, PREPARE: passes to the core
    uint64_t from;          // FORK: `sequence` begins with the first n_tokens of this one
    int64_t n_tokens;
    struct packed_cache *cache; // IMPORT: passes to the core
    struct hash128 name;        // FORGET: of the snapshot
    struct snapshot_job *job;   // SNAPSHOT: a thread of the snapshot folder has finished it
};
