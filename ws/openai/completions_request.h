// The body of POST /v1/completions: read, checked, and turned into the inputs of turns. Any thread.
#pragma once
#include "ws/openai/body.h"

#define COMPLETIONS_CHOICES_MAX 128 // prompts times n
#define COMPLETIONS_MAX_TOKENS 16   // where the request names none, as OpenAI's

struct completions_request {
    struct completion_failure failure; // status 0: it can be served
    bool stream, include_usage, echo, logprobs;
    bool scores;  // the log-probabilities of the prompt's tokens are wanted: echo and logprobs
    bool nothing; // max_tokens 0: the prompt is computed, and no token of an answer is shown
    struct openai_prompt *prompts; // (n_prompts) with `echo`, ids have their text too
    size_t n_prompts, n;           // n: choices of each prompt
    struct turn_sampling sampling;
    const struct served_model *served; // held; NULL: refused
};

// NULL: no memory.
struct completions_request *completions_request_read(const struct service *s, const char *body,
                                                     size_t len);
void completions_request_free(struct completions_request *r); // NULL is fine
