// See body.h.
#include "ws/openai/body.h"
#include "base/json_raw.h"
#include "ws/service.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

// OpenAI's seed is a whole number of 64 bits with a sign. A tree of doubles has lost its last digits, so
// the tree gets it as a parameter of parley.v1 (a string of digits, without a sign) from the text.
static bool keep_seed(cJSON *json, const char *body) {
    char digits[24];
    size_t len = 0;
    char *end;
    const cJSON *v = json_member(json, "seed");
    const char *text = cJSON_IsNumber(v) ? json_raw_value(body, "seed", &len) : NULL;
    if (!text) return true;
    errno = 0;
    uint64_t seed = *text == '-' ? (uint64_t)strtoll(text, &end, 10) : strtoull(text, &end, 10);
    if (errno || end != text + len) return true; // the reader of parameters refuses it
    snprintf(digits, sizeof digits, "%" PRIu64, seed);
    return json_set(json, "seed", cJSON_CreateString(digits));
}

cJSON *openai_body_read(const char *body, size_t len, struct completion_failure *f) {
    struct json_limits limits = json_limits_message;
    struct err err = {0};
    limits.max_bytes = len;
    cJSON *json = json_parse(body, len, &limits, &err);
    bool kept = !cJSON_IsObject(json) || keep_seed(json, body);
    if (cJSON_IsObject(json) && kept) return json;
    if (!kept)
        openai_no_memory(f);
    else if (json)
        openai_fail(f, 400, "invalid_value", NULL, "the body must be an object");
    else if (err.code == E_NOMEM)
        openai_no_memory(f);
    else
        openai_fail(f, 400, "invalid_json", NULL, len ? err.text : "the body is empty");
    cJSON_Delete(json);
    return NULL;
}

const struct served_model *openai_body_model(const struct service *s, const cJSON *body,
                                             struct completion_failure *f) {
    const cJSON *v = json_member(body, "model");
    const char *name = cJSON_GetStringValue(v);
    struct err err = {0};
    if (v && !name && !cJSON_IsNull(v)) openai_bad(f, "model", "must be a string");
    if (f->status) return NULL;
    const struct served_model *m = service_hold_asked_model(s, name, &err);
    if (!m && err.code == E_NOTFOUND)
        openai_fail_model(f, name);
    else if (!m)
        openai_bad(f, "model", err.text);
    return m;
}

static int read_rows(struct turn_sampling *out, const cJSON *body, int32_t n_vocab,
                     struct completion_failure *f) {
    struct err err = {0};
    if (sampling_json_read_openai(out, body, n_vocab, &err) == 0) return 0;
    if (err.code == E_NOMEM) return openai_no_memory(f);
    return openai_fail(f, 400, "invalid_value", sampling_json_refused(body, n_vocab), err.text);
}

static bool is_number(const cJSON *v, double n) {
    return cJSON_IsNumber(v) && v->valuedouble == n;
}

// OpenAI's top_p may be 0, which leaves the most likely token, as top_k 1 does. The row's is above 0. Other servers'
// top_k may be -1 for all tokens, where the row has 0.
int openai_sampling_read(struct turn_sampling *out, const cJSON *body, int32_t n_vocab,
                         struct completion_failure *f) {
    cJSON *top_p = json_member(body, "top_p"), *top_k = json_member(body, "top_k");
    bool zero = is_number(top_p, 0), all = is_number(top_k, -1);
    struct err err = {0};
    if (zero) cJSON_SetNumberValue(top_p, 1);
    if (all) cJSON_SetNumberValue(top_k, 0);
    int rc = read_rows(out, body, n_vocab, f);
    if (zero) cJSON_SetNumberValue(top_p, 0); // a response repeats it
    if (rc < 0 || !zero) return rc;
    return sampling_json_apply(out, "{\"top_k\":1}", n_vocab, &err) < 0 ? openai_no_memory(f) : 0;
}
