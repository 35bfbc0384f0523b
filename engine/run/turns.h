// How turns begin and end. Engine thread only.
#pragma once
#include "engine/engine.h"

struct command;
struct engine_core;
struct live_turn;

// Carries out one command of the queue, and takes what it owns.
void core_command(struct engine_core *core, const struct command *c);
void core_expire(struct engine_core *core); // ends turns whose deadline has passed
void core_admit(struct engine_core *core);  // and pauses turns for others
// Lets turns whose resume has ended, with or without their cache, take part in steps.
void core_start_resumed(struct engine_core *core);
// A turn ends: emits the text that was held back and DONE; the sequence goes idle; frees the turn.
// why: with FINISH_ERROR. drop_cache: the cache's contents cannot be trusted.
void core_finish(struct engine_core *core, struct live_turn *t, enum engine_finish finish,
                 const struct err *why, bool drop_cache);
int32_t core_n_stepping(const struct engine_core *core); // running turns that do not wait
