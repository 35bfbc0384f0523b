// Tokens that are emitted while the device computes the next step. Engine thread only.
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct engine_core;
struct live_turn;

struct sampled;

// Counts a token that was drawn at this time.
void core_mark_token(struct engine_core *core, struct live_turn *t, int64_t time_us);
bool core_ends_turn(const struct engine_core *core, const struct live_turn *t, int32_t id);
// Puts the token into its turn's log; the next core_emit_pending emits its event. False: the
// token may end the turn, and has to be emitted now.
bool core_emit_later(struct engine_core *core, struct live_turn *t, const struct sampled *s);
// Emits the pending tokens. Called before any other event of a turn, and before the engine waits.
void core_emit_pending(struct engine_core *core);
