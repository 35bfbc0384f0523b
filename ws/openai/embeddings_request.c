// See embeddings_request.h.
#include "ws/openai/embeddings_request.h"
#include "ws/openai/openai.h"
#include <string.h>

static int read_format(struct embeddings_request *r, const cJSON *json) {
    const cJSON *v = json_member(json, "encoding_format");
    const char *format = v ? cJSON_GetStringValue(v) : "float";
    r->base64 = format && strcmp(format, "base64") == 0;
    if (r->base64 || (format && strcmp(format, "float") == 0)) return 0;
    return openai_bad(&r->in.failure, "encoding_format", "must be float or base64");
}

static int read_dimensions(struct embeddings_request *r, const cJSON *json) {
    struct err err = {0};
    int64_t n = r->in.served->info->width;
    int rc = json_get_int(json, "dimensions", 1, n, &n, &err);
    r->dimensions = (int32_t)n;
    if (rc >= 0) return 0;
    return openai_fail(&r->in.failure, 400, "invalid_value", "dimensions", err.text);
}

// A turn of one token, whose context output is the embedding.
static int read_pooling(struct embeddings_request *r, const cJSON *json) {
    static const struct {
        const char *name, *sampling;
    } known[] = {
#define TURN(number) "{\"context_embedding\":true,\"context_pooling\":" number REST
#define REST ",\"max_tokens\":1,\"temperature\":0}"
        [POOLING_MEAN] = {"mean", TURN("1")},
        [POOLING_LAST] = {"last", TURN("2")},
        [POOLING_FIRST] = {"first", TURN("3")},
    };
    const enum context_pooling by_files = r->in.served->info->pooling;
    const size_t own = by_files == POOLING_SUM ? POOLING_MEAN : (size_t)by_files;
    const cJSON *v = json_member(json, "pooling");
    const char *pooling = v ? cJSON_GetStringValue(v) : known[own].name;
    struct err err = {0};
    size_t i = POOLING_MEAN;
    while (i <= POOLING_FIRST && !(pooling && strcmp(pooling, known[i].name) == 0)) i++;
    if (i > POOLING_FIRST)
        return openai_bad(&r->in.failure, "pooling", "must be mean, last or first");
    r->unit_length = r->in.served->info->unit_length;
    turn_sampling_init(&r->in.sampling);
    if (sampling_json_apply(&r->in.sampling, known[i].sampling, INT32_MAX, &err) == 0) return 0;
    return openai_no_memory(&r->in.failure);
}

static int read_all(void *request, cJSON *json) {
    struct embeddings_request *r = request;
    TRY(read_format(r, json));
    TRY(read_dimensions(r, json));
    TRY(read_pooling(r, json));
    return prompts_read(&r->in, json, "input", EMBEDDINGS_INPUTS_MAX, "has more than 2048");
}

void *openai_embeddings_decode(void *service, const struct http_payload *p) {
    return prompts_request_read(sizeof(struct embeddings_request), service, p, read_all);
}
