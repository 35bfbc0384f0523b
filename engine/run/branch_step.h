// Turns with branches in a step. Engine thread only.
#pragma once
#include "engine/engine.h"

struct instance;
struct live_turn;

struct sampled;

// Adds the turn's rows to the batch; n_tokens: its share. TURN_WAITS: adds none in this step. Negative:
// the turn ends.
int instance_branch_rows(struct instance *in, struct live_turn *t, int32_t n_tokens);
// Whether the logits of this position draw the branch's next token.
bool instance_branch_draws(const struct live_turn *t, int32_t branch, int64_t position);
// How many draws use one row's logits: all samples draw their first token from the same row.
int32_t instance_branch_jobs(const struct live_turn *t);
void instance_branch_job(struct instance *in, int32_t seq, int32_t job, const float *logits);
// Adds a sample's drawn token. Negative: the turn ends with an error.
int instance_branch_accept(struct instance *in, struct live_turn *t, int32_t branch,
                           const struct sampled *s, int64_t time_us);
bool instance_branches_over(const struct live_turn *t);
// Makes the next step's beams, once all beams of this step are ranked. Negative: the turn ends with an error.
int instance_branches_advance(struct instance *in, struct live_turn *t);
// Called when the turn ends and still has its slot: emits the rest of its answer, and makes the result.
int instance_branches_settle(struct instance *in, struct live_turn *t, enum engine_finish finish,
                             bool ran);
