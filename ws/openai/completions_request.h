// The body of POST /v1/completions: read, checked, and turned into the inputs of turns by openai_completions_decode. Any
// thread.
#pragma once
#include "ws/openai/prompts_request.h"

#define COMPLETIONS_CHOICES_MAX 128 // prompts times n
#define COMPLETIONS_MAX_TOKENS 16   // where the request names none, as OpenAI's

struct completions_request {
    struct prompts_request in; // with `echo`, ids have their text too
    bool stream, include_usage, echo, logprobs;
    bool scores;  // the log-probabilities of the prompt's tokens are wanted: echo and logprobs
    bool nothing; // max_tokens 0: the prompt is computed, and no token of an answer is shown
    size_t n;     // choices of each prompt
};
