// See prompts_request.h.
#include "ws/openai/prompts_request.h"
#include <stdlib.h>
#include <string.h>

static int read_text(struct openai_prompt *p, const cJSON *v, const char *name,
                     struct completion_failure *f) {
    p->text = strdup(v->valuestring);
    if (!p->text) return openai_no_memory(f);
    p->len = strlen(p->text);
    return p->len ? 0 : openai_bad(f, name, "must not be empty");
}

static int read_ids(struct openai_prompt *p, const cJSON *v, const char *name, int32_t n_vocab,
                    struct completion_failure *f) {
    struct err err = {0};
    int rc = json_copy_ids(v, name, &p->ids, &p->n_ids, &err);
    if (rc == E_NOMEM) return openai_no_memory(f);
    if (rc < 0) return openai_fail(f, 400, "invalid_value", name, err.text);
    if (p->n_ids == 0) return openai_bad(f, name, "must not be empty");
    for (size_t i = 0; i < p->n_ids; i++)
        if (p->ids[i] >= n_vocab) return openai_bad(f, name, "has an id outside of the vocabulary");
    return 0;
}

static int read_prompt(struct openai_prompt *p, const cJSON *v, const char *name, int32_t n_vocab,
                       struct completion_failure *f) {
    if (cJSON_IsString(v)) return read_text(p, v, name, f);
    if (cJSON_IsArray(v)) return read_ids(p, v, name, n_vocab, f);
    return openai_bad(f, name,
                      "must be a string, token ids, or an array of strings or of arrays of ids");
}

// An array of numbers is one prompt; in any other array each element is a prompt.
int prompts_read(struct prompts_request *r, const cJSON *body, const char *name, size_t max,
                 const char *too_many) {
    const cJSON *v = json_member(body, name), *item;
    bool many = cJSON_IsArray(v) && v->child && !cJSON_IsNumber(v->child);
    size_t n = many ? (size_t)cJSON_GetArraySize(v) : 1;
    int32_t n_vocab = r->served->info->n_vocab;
    if (!v) return openai_bad(&r->failure, name, "is missing");
    if (n > max) return openai_bad(&r->failure, name, too_many);
    r->prompts = calloc(n, sizeof *r->prompts);
    if (!r->prompts) return openai_no_memory(&r->failure);
    r->n = n;
    if (!many) return read_prompt(r->prompts, v, name, n_vocab, &r->failure);
    struct openai_prompt *p = r->prompts;
    cJSON_ArrayForEach(item, v) TRY(read_prompt(p++, item, name, n_vocab, &r->failure));
    return 0;
}

void *prompts_request_read(size_t bytes, const struct service *s, const struct http_payload *p,
                           int (*read)(void *request, cJSON *json)) {
    struct prompts_request *r = calloc(1, bytes);
    if (!r) return NULL;
    cJSON *json = openai_body_read(p->body, p->len, &r->failure);
    if (json) r->served = openai_body_model(s, json, &r->failure);
    if (r->served) read(r, json);
    cJSON_Delete(json);
    return r;
}

void prompts_request_free(void *request) {
    struct prompts_request *r = request;
    if (!r) return;
    for (size_t i = 0; i < r->n; i++) {
        free(r->prompts[i].text);
        free(r->prompts[i].ids);
    }
    free(r->prompts);
    turn_sampling_release(&r->sampling);
    placement_drop(r->served);
    free(r);
}
