// The body of a request: JSON, the model that it names, and prompts. Any thread.
#pragma once
#include "ws/openai/failure.h"

struct service;

// The object that the body holds, for the caller to delete. The route has bounded its length. NULL: *f says why.
cJSON *openai_body_read(const char *body, size_t len, struct completion_failure *f);
// The model that the request names, held until placement_drop. NULL: *f says why.
const struct served_model *openai_body_model(const struct service *s, const cJSON *body,
                                             struct completion_failure *f);
// The sampling parameters that have OpenAI's meaning. 0, or E_* with *f set.
int openai_sampling_read(struct turn_sampling *out, const cJSON *body, int32_t n_vocab,
                         struct completion_failure *f);

// What a turn is given as it is, without a chat template.
struct openai_prompt {
    char *text; // (len) with ids: their text, if somebody wants it, else NULL
    size_t len;
    int32_t *ids; // (n_ids) NULL: the text is the prompt
    size_t n_ids;
};
struct turn_input openai_prompt_input(const struct openai_prompt *p); // borrows
// The member `name`: a string, token ids below n_vocab, or an array of either. At most max, else the
// failure is "NAME TOO_MANY". The caller frees *out (n), also on failure. 0, or E_* with *f set.
int openai_prompts_read(struct openai_prompt **out, size_t *n, const cJSON *body, const char *name,
                        int32_t n_vocab, size_t max, const char *too_many,
                        struct completion_failure *f);
void openai_prompts_free(struct openai_prompt *prompts, size_t n);
