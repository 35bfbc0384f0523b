// Fills in and pushes the events of turns. Long text is cut into pieces between characters. Engine
// thread only.
#pragma once
#include "engine/events.h"
#include "engine/run/live_turn.h"
#include "engine/run/sampler.h"

// The arguments are fields of struct engine_event, where they are described.
void emit_started(struct emitter *e, const struct live_turn *t, enum engine_cache_source source,
                  int64_t n_total, int32_t blocks);
void emit_progress(struct emitter *e, const struct live_turn *t, int64_t n_done, int64_t n_total);
// text may be longer than an event holds: continuations follow.
void emit_token(struct emitter *e, const struct live_turn *t, int32_t branch,
                const struct sampled *s, const char *text, size_t len);
// Emits text of a branch without a token, as continuations. Emits nothing if the text is empty.
void emit_text(struct emitter *e, const struct live_turn *t, int32_t branch, const char *text,
               size_t len);
// why: with FINISH_ERROR, its code and sentence; otherwise ignored.
void emit_done(struct emitter *e, struct live_turn *t, enum engine_finish finish,
               const struct err *why, const char *text, size_t len, int32_t blocks, bool parked);
