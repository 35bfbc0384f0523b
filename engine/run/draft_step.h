// Drafts in a step. Engine thread only.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct instance;
struct live_turn;

// Called before the plan: finds drafts for each decoding turn, and writes them after its log.
void instance_find_drafts(struct instance *in);
// Whether the turn's next token is drawn from this row: all drafts before the row were accepted.
bool instance_is_next(const struct instance *in, const struct live_turn *t, int32_t row);
// Called when the turn's next token is drawn from this position: commits the draft there to the cache.
void instance_keep_draft(struct live_turn *t, int64_t position);
// Compares a drawn token, which is not in the log yet, with the draft in its place.
void instance_compare_draft(struct live_turn *t, int32_t id);
// Called after the step's draws: removes the rejected drafts from the cache.
void instance_settle_drafts(struct instance *in, struct live_turn *t);
