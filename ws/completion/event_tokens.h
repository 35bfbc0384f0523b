// The tokens of an answer's events, with their log-probabilities, between a turn or its record and
// completion_event.tokens.
#pragma once
#include "ws/completion/completion.h"

struct event_tokens {                      // zeroed: empty
    struct completion_token *of;           // (n)
    struct completion_token *alternatives; // the same number for each token
    uint64_t *starts;                      // (n) where they begin in the text (drawn_text.h)
    size_t n;
};
void event_tokens_release(struct event_tokens *t); // a zeroed one is allowed
// Whether the token ends an answer: such a token is not part of the text.
bool event_tokens_is_end(const struct engine_info *info, int32_t id);
// Adds a token with its alternatives (n_alternatives, the same number each time); a token that ends an
// answer is left out. E_NOMEM.
int event_tokens_add(struct event_tokens *t, const struct served_model *m, int32_t id,
                     float logprob, uint64_t start, const struct engine_alternative *alternatives,
                     size_t n_alternatives);
// The event borrows those that begin before byte `end` of the text, until the next add, drop or release.
// Returns their number.
size_t event_tokens_put(struct event_tokens *t, uint64_t end, struct completion_event *out);
void event_tokens_drop(struct event_tokens *t, size_t n); // the first n
