// Drafts in a step. Engine thread only.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct engine_core;
struct live_turn;

// Called before the plan: finds drafts for each decoding turn, and writes them after its log.
void core_find_drafts(struct engine_core *core);
// Whether the turn's next token is drawn from this row: all drafts before the row were accepted.
bool core_is_next(const struct engine_core *core, const struct live_turn *t, int32_t row);
// Called when the turn's next token is drawn from this position: commits the draft there to the cache.
void core_keep_draft(struct live_turn *t, int64_t position);
// Compares a drawn token, which is not in the log yet, with the draft in its place.
void core_compare_draft(struct live_turn *t, int32_t id);
// Called after the step's draws: removes the rejected drafts from the cache.
void core_settle_drafts(struct engine_core *core, struct live_turn *t);
