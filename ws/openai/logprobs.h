// Log-probabilities as chat completions and responses have them. Pure functions, any thread.
#pragma once
#include "base/json.h"
#include "ws/completion/completion.h"

// Elements of an array that is open:
//   {"token","logprob","bytes":[..],"top_logprobs":[{"token","logprob","bytes"}]}
void openai_put_logprobs(struct json_writer *w, const struct completion_token *tokens, size_t n);
