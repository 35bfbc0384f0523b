// How turns begin and end. Engine thread only.
#pragma once
#include "engine/engine.h"

struct command;
struct instance;
struct live_turn;

// Carries out one command of the queue, and takes what it owns.
void instance_command(struct instance *in, const struct command *c);
void instance_expire(struct instance *in); // ends turns whose deadline has passed
void instance_admit(struct instance *in);  // and pauses turns for others
// Lets turns whose resume has ended, with or without their cache, take part in steps.
void instance_start_resumed(struct instance *in);
// A turn ends: emits the text that was held back and DONE; the sequence goes idle; frees the turn.
// why: with FINISH_ERROR. drop_cache: the cache's contents cannot be trusted.
void instance_finish(struct instance *in, struct live_turn *t, enum engine_finish finish,
                     const struct err *why, bool drop_cache);
int32_t instance_n_stepping(const struct instance *in); // running turns that do not wait
