// Tokens that are emitted while the device computes the next step. Engine thread only.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct instance;
struct live_turn;

struct sampled;

// Counts a token that was drawn at this time.
void instance_mark_token(struct instance *in, struct live_turn *t, int64_t time_us);
bool instance_ends_turn(const struct instance *in, const struct live_turn *t, int32_t id);
// Puts the token into its turn's log; the next instance_emit_pending emits its event. False: the
// token may end the turn, and has to be emitted now.
bool instance_emit_later(struct instance *in, struct live_turn *t, const struct sampled *s);
// Emits the pending tokens. Called before any other event of a turn, and before the engine waits.
void instance_emit_pending(struct instance *in);
