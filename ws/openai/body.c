// See body.h.
#include "ws/openai/body.h"
#include "base/json_raw.h"
#include "ws/service.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
    cJSON *kept = cJSON_CreateString(digits);
    if (kept && cJSON_ReplaceItemInObjectCaseSensitive(json, "seed", kept)) return true;
    cJSON_Delete(kept);
    return false;
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
    if (!v) openai_bad(f, "model", "is missing");
    if (v && !cJSON_IsString(v)) openai_bad(f, "model", "must be a string");
    if (f->status) return NULL;
    const struct served_model *m = service_hold_model(s, v->valuestring);
    if (!m) openai_fail_model(f, v->valuestring);
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

// --- prompts ---

struct turn_input openai_prompt_input(const struct openai_prompt *p) {
    if (p->ids) return (struct turn_input){.kind = INPUT_IDS, .ids = p->ids, .n_ids = p->n_ids};
    return (struct turn_input){.kind = INPUT_TEXT, .text = p->text, .text_len = p->len};
}

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
int openai_prompts_read(struct openai_prompt **out, size_t *n, const cJSON *body, const char *name,
                        int32_t n_vocab, size_t max, const char *too_many,
                        struct completion_failure *f) {
    const cJSON *v = json_member(body, name), *item;
    bool many = cJSON_IsArray(v) && v->child && !cJSON_IsNumber(v->child);
    size_t n_items = many ? (size_t)cJSON_GetArraySize(v) : 1;
    if (!v) return openai_bad(f, name, "is missing");
    if (n_items > max) return openai_bad(f, name, too_many);
    *out = calloc(n_items, sizeof **out);
    if (!*out) return openai_no_memory(f);
    *n = n_items;
    if (!many) return read_prompt(*out, v, name, n_vocab, f);
    struct openai_prompt *p = *out;
    cJSON_ArrayForEach(item, v) TRY(read_prompt(p++, item, name, n_vocab, f));
    return 0;
}

void openai_prompts_free(struct openai_prompt *prompts, size_t n) {
    for (size_t i = 0; i < n; i++) {
        free(prompts[i].text);
        free(prompts[i].ids);
    }
    free(prompts);
}
