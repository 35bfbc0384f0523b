// Members by which requests steer thinking and the chat template, in the names of OpenAI, OpenRouter, GLM and llama.cpp:
// chat_template_kwargs, reasoning, thinking, reasoning_budget, thinking_budget_tokens, reasoning_effort, enable_thinking.
// Chat completions and /apply-template read them here, so that both render alike.
#pragma once
#include "ws/completion/completion.h"

// Sets thinking, thinking_budget and template_args of r, whose model is known, and takes chat_template_kwargs out of
// json. E_* with *f set.
int thinking_options_read(struct completion_request *r, cJSON *json, struct completion_failure *f);
// OpenAI's verbosity, low, medium or high, becomes a variable of the chat template. v NULL: none is given. E_* with *f
// set, whose param is `param`.
int verbosity_read(struct completion_request *r, const cJSON *v, const char *param,
                   struct completion_failure *f);
// Renames the thinking that a client sends back as `reasoning`, in every message. E_NOMEM with *f set.
int thinking_options_rename(struct completion_request *r, struct completion_failure *f);
