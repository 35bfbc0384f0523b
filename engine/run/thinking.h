// Whether an answer is inside the model's thinking, how many tokens it drew there, and which tokens close
// the thinking. The state follows from the log and the accepted tokens alone, so it is the same in
// replays, after pauses and on another engine. Plain data; part of a sampler.
//
//   MAY_BEGIN --opening mark--> OPEN --closing mark--> OVER
//        `------other text--------------------------------^
#pragma once
#include "engine/text/thinking_marks.h"

enum thinking_state {
    THINKING_UNWATCHED, // the turn needs no watching, or the model does not think
    THINKING_MAY_BEGIN, // only white space or a part of the opening mark was drawn yet
    THINKING_OPEN,
    THINKING_OVER,
};

struct thinking {
    const struct thinking_marks *marks; // borrowed
    enum thinking_state state;
    int32_t matched;            // bytes: of the opening mark (MAY_BEGIN), of the closing one (OPEN)
    bool in_line;               // OPEN: the text does not end with a newline
    int64_t n_drawn;            // tokens inside the thinking, except forced ones
    struct thinking_ids forced; // the next tokens, in order; n 0: none are forced
};

// Call before the first token of the answer that follows log (n_log). goes_on: the answer continues the
// log's text, so it does not begin with an opening mark.
void thinking_begin(struct thinking *t, const struct thinking_marks *marks, const int32_t *log,
                    int64_t n_log, bool goes_on);
void thinking_accept(struct thinking *t, int32_t id);
void thinking_close(struct thinking *t); // OPEN: forces the tokens that close it
