// See completions_request.h.
#include "ws/openai/completions_request.h"
#include "ws/openai/openai.h"

#define TEXT_MAX_BYTES (64 << 20)

// The text that `echo` repeats.
static int add_text(struct completions_request *r, struct openai_prompt *p) {
    struct buf text;
    struct err err = {0};
    buf_init(&text, TEXT_MAX_BYTES);
    int rc = engine_detokenize(r->in.served->engine, p->ids, p->n_ids, false, &text, &err);
    buf_addz(&text, "");
    p->text = rc == 0 ? buf_take(&text, &p->len) : NULL;
    buf_release(&text);
    if (p->text) return 0;
    if (rc == 0 || rc == E_NOMEM) return openai_no_memory(&r->in.failure);
    return openai_fail(&r->in.failure, 400, "invalid_value", "prompt", err.text);
}

static int read_prompts(struct completions_request *r, const cJSON *json) {
    TRY(prompts_read(&r->in, json, "prompt", COMPLETIONS_CHOICES_MAX / r->n,
                     "times n is more than 128 choices"));
    for (size_t i = 0; r->echo && i < r->in.n; i++)
        if (r->in.prompts[i].ids) TRY(add_text(r, &r->in.prompts[i]));
    return 0;
}

// --- the other members ---

static int read_int(struct completions_request *r, const cJSON *json, const char *key, int64_t min,
                    int64_t max, int64_t *out) {
    struct err err = {0};
    if (json_get_int(json, key, min, max, out, &err) >= 0) return 0;
    return openai_fail(&r->in.failure, 400, "invalid_value", key, err.text);
}

static int read_bool(struct completions_request *r, const cJSON *json, const char *key, bool *out) {
    struct err err = {0};
    if (json_get_bool(json, key, out, &err) >= 0) return 0;
    return openai_fail(&r->in.failure, 400, "invalid_value", key, err.text);
}

static int read_form(struct completions_request *r, const cJSON *json) {
    const cJSON *suffix = json_member(json, "suffix");
    int64_t n = 1, best_of = -1;
    TRY(read_bool(r, json, "stream", &r->stream));
    TRY(read_bool(r, json, "echo", &r->echo));
    TRY(read_int(r, json, "n", 1, COMPLETIONS_CHOICES_MAX, &n));
    TRY(read_int(r, json, "best_of", 1, COMPLETIONS_CHOICES_MAX, &best_of));
    if (best_of > 0 && best_of != n)
        return openai_bad(&r->in.failure, "best_of", "other than n is not served here");
    if (suffix && !(cJSON_IsString(suffix) && !*suffix->valuestring))
        return openai_bad(&r->in.failure, "suffix", "is not served here");
    r->n = (size_t)n;
    r->include_usage =
        cJSON_IsTrue(json_member(json_member(json, "stream_options"), "include_usage"));
    return 0;
}

// `logprobs` of completions is the number of alternatives.
static int read_logprobs(struct completions_request *r, const cJSON *json, cJSON *own) {
    int64_t n = -1;
    TRY(read_int(r, json, "logprobs", 0, SAMPLING_MAX_TOP_LOGPROBS, &n));
    r->logprobs = n >= 0;
    r->scores = r->logprobs && r->echo;
    if (!r->logprobs) return 0;
    bool ok = json_set(own, "logprobs", cJSON_CreateTrue()) &&
              json_set(own, "top_logprobs", cJSON_CreateNumber((double)n));
    return ok ? 0 : openai_no_memory(&r->in.failure);
}

// 0 would mean no limit to the engine.
static int read_max_tokens(struct completions_request *r, const cJSON *json, cJSON *own) {
    int64_t n = COMPLETIONS_MAX_TOKENS;
    TRY(read_int(r, json, "max_tokens", 0, INT32_MAX, &n));
    r->nothing = n == 0;
    if (cJSON_AddNumberToObject(own, "max_tokens", n ? (double)n : 1)) return 0;
    return openai_no_memory(&r->in.failure);
}

// Puts the members whose meaning differs from chat completions into `own`, under the engine's names.
static int read_own(struct completions_request *r, cJSON *json, cJSON *own) {
    static const char *const keys[] = {"n", "logprobs", "top_logprobs", "max_tokens"};
    struct err err = {0};
    TRY(read_logprobs(r, json, own));
    TRY(read_max_tokens(r, json, own));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(json, keys[i]);
    cJSON *bias = cJSON_DetachItemFromObjectCaseSensitive(json, "logit_bias");
    if (bias) cJSON_AddItemToObject(own, "logit_bias", bias);
    if (sampling_json_read(&r->in.sampling, own, r->in.served->info->n_vocab, &err) == 0) return 0;
    return openai_fail(&r->in.failure, 400, "invalid_value", bias ? "logit_bias" : NULL, err.text);
}

static int read_sampling(struct completions_request *r, cJSON *json) {
    cJSON *own = cJSON_CreateObject();
    if (!own) return openai_no_memory(&r->in.failure);
    turn_sampling_init(&r->in.sampling);
    int rc = read_own(r, json, own);
    cJSON_Delete(own);
    TRY(rc);
    return openai_sampling_read(&r->in.sampling, json, r->in.served->info->n_vocab, &r->in.failure);
}

static int read_all(void *request, cJSON *json) {
    struct completions_request *r = request;
    TRY(read_form(r, json));
    TRY(read_prompts(r, json));
    return read_sampling(r, json);
}

void *openai_completions_decode(void *service, const struct http_payload *p) {
    return prompts_request_read(sizeof(struct completions_request), service, p, read_all);
}
