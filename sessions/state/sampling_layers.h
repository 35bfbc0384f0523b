// A turn's sampling: the values that the turn, the session and the server give. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Every value in force: those given (NULL: none) over the session's over the server's.
int layers_turn(struct session *s, const struct turn_sampling *given, struct turn_sampling *out,
                struct err *err);
// The values given (NULL: none) as text for a session's record; the caller frees it. NULL with *err.
char *layers_normal(const struct served_model *m, const struct turn_sampling *given,
                    struct err *err);
// The values of a recorded request without its seed, under the values given. *out is empty before.
int layers_again(const struct session *s, const char *request, const struct turn_sampling *given,
                 struct turn_sampling *out, struct err *err);
// The grammar of a turn with these values given; NULL: none, or the layers are invalid. Borrowed.
const struct grammar_text *layers_grammar(struct session *s, const struct turn_sampling *given);
void layers_changed(struct session *s); // after a change of rec.sampling
