// The body of a request: JSON, and the model that it names. Any thread.
#pragma once
#include "ws/openai/failure.h"

struct service;

// The object that the body holds, for the caller to delete. NULL: *f says why.
cJSON *openai_body_read(const char *body, size_t len, size_t max_bytes, struct openai_failure *f);
// The model that the request names, held until placement_drop. NULL: *f says why.
const struct served_model *openai_body_model(const struct service *s, const cJSON *body,
                                             struct openai_failure *f);
