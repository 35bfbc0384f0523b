// Collects the engine's whole answer to one turn, for tools and replays, which need it when it has
// ended. (A session keeps its own in struct turn.)
#pragma once
#include "base/buf.h"
#include "engine/engine.h"

struct answer {
    int32_t *ids;    // (n)
    float *logprobs; // (n)
    size_t n, cap;
    int32_t branch;                 // which of the turn's answers: set before the turn; 0: its own
    int32_t n_top;                  // kept with each token: set before the turn; 0: none
    struct engine_alternative *top; // (n, n_top); id -1: there were fewer
    struct buf text;
    enum engine_finish finish;
    char error[ENGINE_EVENT_TEXT + 1]; // FINISH_ERROR: the sentence
    bool failed;                       // memory ran out: tokens are missing
};
// n_top alternatives are kept with each token, of as many as the turn asks for.
void answer_init(struct answer *a, int32_t n_top);
// branch and n_top stay; a second call does nothing.
void answer_release(struct answer *a);
void answer_reset(struct answer *a); // empty, for the next turn
// Adds an event of the turn. True: it was the turn's end.
bool answer_take(struct answer *a, const struct engine_event *e);
