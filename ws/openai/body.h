// The body of a request: JSON, the model that it names, and sampling parameters. Any thread.
#pragma once
#include "ws/openai/failure.h"

struct service;

// The object that the body holds, for the caller to delete. The route has bounded its length. NULL: *f says why.
cJSON *openai_body_read(const char *body, size_t len, struct completion_failure *f);
// The model that the request names, or the server's only one; held until placement_drop. NULL: *f says why.
const struct served_model *openai_body_model(const struct service *s, const cJSON *body,
                                             struct completion_failure *f);
// The sampling parameters that have OpenAI's meaning. 0, or E_* with *f set.
int openai_sampling_read(struct turn_sampling *out, const cJSON *body, int32_t n_vocab,
                         struct completion_failure *f);
