// The body of POST /v1/embeddings: read and checked by openai_embeddings_decode. Any thread.
#pragma once
#include "ws/openai/prompts_request.h"

#define EMBEDDINGS_INPUTS_MAX 2048

struct embeddings_request {
    struct prompts_request in; // a prompt for each input
    bool base64;               // little-endian floats, instead of numbers
    int32_t dimensions;        // 1 .. the model's width
    bool unit_length;          // brings them to length 1
};
