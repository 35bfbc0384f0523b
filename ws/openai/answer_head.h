// What chat completions and completions write alike: the members that every part of one answer repeats,
// and the usage. Text only.
#pragma once
#include "base/json.h"
#include <stdbool.h>
#include <stdint.h>

struct answer_head { // strings borrowed
    const char *id, *model, *fingerprint;
    int64_t created_s;
    bool include_usage; // streamed: "usage" is null, or the usage, in each chunk
};

// Leaves the answer's object open. object: its type, "chat.completion" ...
void answer_head_open(struct json_writer *w, const struct answer_head *h, const char *object);
// Leaves "usage" open for further details.
void answer_usage_open(struct json_writer *w, int64_t prompt_tokens, int64_t cached_tokens,
                       int64_t completion_tokens);
