// Turns with branches in a step. Engine thread only.
#pragma once
#include "engine/engine.h"

struct engine_core;
struct live_turn;

struct sampled;

// Adds the turn's rows to the batch; n_tokens: its share. TURN_WAITS: adds none in this step. Negative:
// the turn ends.
int core_branch_rows(struct engine_core *core, struct live_turn *t, int32_t n_tokens);
// Whether the logits of this position draw the branch's next token.
bool core_branch_draws(const struct live_turn *t, int32_t branch, int64_t position);
// How many draws use one row's logits: all samples draw their first token from the same row.
int32_t core_branch_jobs(const struct live_turn *t);
void core_branch_job(struct engine_core *core, int32_t seq, int32_t job, const float *logits);
// Adds a sample's drawn token. Negative: the turn ends with an error.
int core_branch_accept(struct engine_core *core, struct live_turn *t, int32_t branch,
                       const struct sampled *s, int64_t time_us);
bool core_branches_over(const struct live_turn *t);
// Makes the next step's beams, once all beams of this step are ranked. Negative: the turn ends with an error.
int core_branches_advance(struct engine_core *core, struct live_turn *t);
// Called when the turn ends and still has its slot: emits the rest of its answer, and makes the result.
int core_branches_settle(struct engine_core *core, struct live_turn *t, enum engine_finish finish,
                         bool ran);
