// Headers of harmony's messages: <|start|>assistant<|channel|>NAME to=functions.TOOL<|constrain|>json<|message|>. Pure
// functions over bytes.
#pragma once
#include "engine/text/call_syntax.h"

// The marks that end a message. The last mark, HARMONY_START, begins the next message's header.
enum { HARMONY_ENDS = 4, HARMONY_START = HARMONY_ENDS - 1 };
extern const char *const harmony_ends[HARMONY_ENDS];

// Whether t begins like a header, or may do so when more bytes have come.
bool harmony_is_header(struct span t);
// The word behind `mark` in a header, borrowed. Its length; 0: there is none.
size_t harmony_word(struct span header, const char *mark, const char **word);
