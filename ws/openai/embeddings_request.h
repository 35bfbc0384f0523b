// The body of POST /v1/embeddings: read and checked. Any thread.
#pragma once
#include "ws/openai/body.h"

#define EMBEDDINGS_INPUTS_MAX 2048

struct embeddings_request {
    struct completion_failure failure; // status 0: it can be served
    struct openai_prompt *inputs;      // (n_inputs)
    size_t n_inputs;
    bool base64;        // little-endian floats, instead of numbers
    int32_t dimensions; // 1 .. the model's width
    bool unit_length;   // brings them to length 1
    struct turn_sampling sampling;
    const struct served_model *served; // held; NULL: refused
};

// NULL: no memory.
struct embeddings_request *embeddings_request_read(const struct service *s, const char *body,
                                                   size_t len);
void embeddings_request_free(struct embeddings_request *r); // NULL is fine
