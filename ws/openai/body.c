// See body.h.
#include "ws/openai/body.h"
#include "ws/service.h"
#include <stdio.h>

cJSON *openai_body_read(const char *body, size_t len, size_t max_bytes, struct openai_failure *f) {
    struct json_limits limits = json_limits_message;
    struct err err = {0};
    limits.max_bytes = max_bytes;
    cJSON *json = json_parse(body, len, &limits, &err);
    if (cJSON_IsObject(json)) return json;
    if (json)
        openai_fail(f, 400, "invalid_json", NULL, "the body must be an object");
    else if (err.code == E_NOMEM)
        openai_no_memory(f);
    else
        openai_fail(f, 400, "invalid_json", NULL, err.text);
    cJSON_Delete(json);
    return NULL;
}

const struct served_model *openai_body_model(const struct service *s, const cJSON *body,
                                             struct openai_failure *f) {
    const char *name = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(body, "model"));
    const struct served_model *m = name ? service_hold_model(s, name) : NULL;
    if (m) return m;
    if (name)
        openai_fail_model(f, name);
    else
        openai_bad(f, "model", "is missing");
    return NULL;
}
