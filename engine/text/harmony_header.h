// Headers of harmony's messages: <|start|>assistant<|channel|>NAME to=functions.TOOL<|constrain|>json<|message|>. Pure
// functions over bytes.
#pragma once
#include "engine/text/call_syntax.h"

// What ends a message. The last one, HARMONY_START, is the beginning of the next message's header.
enum { HARMONY_ENDS = 4, HARMONY_START = HARMONY_ENDS - 1 };
extern const char *const harmony_ends[HARMONY_ENDS];

// Whether t may be a header: what it begins with, or could begin with once more has come.
bool harmony_is_header(struct span t);
// The word behind `mark` in a header, borrowed. Its length; 0: there is none.
size_t harmony_word(struct span header, const char *mark, const char **word);
