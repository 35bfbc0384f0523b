// See embeddings_request.h.
#include "ws/openai/embeddings_request.h"
#include "ws/service.h"
#include <stdlib.h>
#include <string.h>

static int read_format(struct embeddings_request *r, const cJSON *json) {
    const cJSON *v = json_member(json, "encoding_format");
    const char *format = v ? cJSON_GetStringValue(v) : "float";
    r->base64 = format && strcmp(format, "base64") == 0;
    if (r->base64 || (format && strcmp(format, "float") == 0)) return 0;
    return openai_bad(&r->failure, "encoding_format", "must be float or base64");
}

static int read_dimensions(struct embeddings_request *r, const cJSON *json) {
    struct err err = {0};
    int64_t n = r->served->info->width;
    int rc = json_get_int(json, "dimensions", 1, n, &n, &err);
    r->dimensions = (int32_t)n;
    if (rc >= 0) return 0;
    return openai_fail(&r->failure, 400, "invalid_value", "dimensions", err.text);
}

// A turn of one token, whose context output is the embedding.
static int read_pooling(struct embeddings_request *r, const cJSON *json) {
    static const char last_token[] =
        "{\"context_embedding\":true,\"context_pooling\":2,\"max_tokens\":1,\"temperature\":0}";
    static const char mean[] =
        "{\"context_embedding\":true,\"context_pooling\":1,\"max_tokens\":1,\"temperature\":0}";
    const cJSON *v = json_member(json, "pooling");
    const char *pooling = v ? cJSON_GetStringValue(v) : "mean";
    bool last = pooling && strcmp(pooling, "last") == 0;
    struct err err = {0};
    if (!last && !(pooling && strcmp(pooling, "mean") == 0))
        return openai_bad(&r->failure, "pooling", "must be mean or last");
    turn_sampling_init(&r->sampling);
    if (sampling_json_apply(&r->sampling, last ? last_token : mean, INT32_MAX, &err) == 0) return 0;
    return openai_no_memory(&r->failure);
}

static int read_all(struct embeddings_request *r, const struct service *s, const cJSON *json) {
    r->served = openai_body_model(s, json, &r->failure);
    if (!r->served) return E_INVAL;
    TRY(read_format(r, json));
    TRY(read_dimensions(r, json));
    TRY(read_pooling(r, json));
    return openai_prompts_read(&r->inputs, &r->n_inputs, json, "input", r->served->info->n_vocab,
                               EMBEDDINGS_INPUTS_MAX, "has more than 2048", &r->failure);
}

struct embeddings_request *embeddings_request_read(const struct service *s, const char *body,
                                                   size_t len) {
    struct embeddings_request *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    cJSON *json = openai_body_read(body, len, &r->failure);
    if (json) read_all(r, s, json);
    cJSON_Delete(json);
    return r;
}

void embeddings_request_free(struct embeddings_request *r) {
    if (!r) return;
    openai_prompts_free(r->inputs, r->n_inputs);
    turn_sampling_release(&r->sampling);
    placement_drop(r->served);
    free(r);
}
