// From bodies to requests. See request.h.
#include "ws/kserve/http/request.h"
#include "base/json.h"
#include "base/json_raw.h"
#include "ws/kserve/http/number_data.h"
#include "ws/kserve/http/tensor_json.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct infer_request *r;
    const struct kserve_source *source;
    const cJSON *json;
    size_t json_len;
};

// --- parameters ---

// A number as it was written: a 64-bit one is not exact as a double.
static struct infer_value value_of(const cJSON *json, const char *raw, size_t len) {
    struct infer_value v = {.kind = VALUE_OTHER};
    char digits[24], *end = NULL;
    if (cJSON_IsBool(json)) {
        v.kind = VALUE_BOOL;
        v.flag = cJSON_IsTrue(json);
    } else if (cJSON_IsString(json)) {
        v.kind = VALUE_STRING;
        v.text = json->valuestring;
        v.len = strlen(json->valuestring);
    } else if (cJSON_IsNumber(json)) {
        v.kind = VALUE_NUMBER;
    }
    if (v.kind == VALUE_NUMBER && raw && len < 21 && strspn(raw, "0123456789") >= len) {
        memcpy(digits, raw, len);
        digits[len] = '\0';
        errno = 0;
        v.integer = strtoull(digits, &end, 10);
        if (errno == 0) v.kind = VALUE_INTEGER;
    }
    return v;
}

static bool is_parameter(const char *name) {
    const char *known;
    for (size_t i = 0; (known = infer_parameter(i)); i++)
        if (strcmp(known, name) == 0) return true;
    return false;
}

// Those of infer_parameter() in `object`, whose text is `text`; NULL: numbers are read as doubles.
static int read_known(const struct reading *g, const cJSON *object, const char *text,
                      struct err *err) {
    const char *name;
    size_t len = 0;
    for (size_t i = 0; (name = infer_parameter(i)); i++) {
        const cJSON *json = cJSON_GetObjectItemCaseSensitive(object, name);
        if (!json || cJSON_IsNull(json)) continue;
        const char *raw = text ? json_raw_value(text, name, &len) : NULL;
        struct infer_value v = value_of(json, raw, len);
        TRY(infer_request_set(g->r, name, &v, err));
    }
    return 0;
}

static int read_parameters(const struct reading *g, struct err *err) {
    const cJSON *parameters, *p;
    const char *id = NULL;
    size_t len;
    TRY(json_get_string(g->json, "id", &id, err));
    if (id && !(g->r->id = strdup(id))) return kserve_no_memory(err);
    // As in Triton, members of a generate request that are no inputs are parameters.
    if (g->source->form != FORM_TENSORS) TRY(read_known(g, g->json, g->source->body, err));
    int rc = json_get_object(g->json, "parameters", &parameters, err);
    if (rc != JSON_PRESENT) return rc;
    const char *text = json_raw_value(g->source->body, "parameters", &len);
    cJSON_ArrayForEach(p, parameters) {
        struct infer_value v = value_of(p, NULL, 0);
        bool known = is_parameter(p->string) && v.kind != VALUE_OTHER; // read_known
        if (!known && !cJSON_IsNull(p)) TRY(infer_request_set(g->r, p->string, &v, err));
    }
    return read_known(g, parameters, text, err);
}

// --- infer ---

static int read_wanted(const struct reading *g, struct infer_wanted *wanted, size_t *n,
                       struct err *err) {
    const cJSON *list = NULL, *item;
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(g->json, "parameters");
    bool all_binary = false;
    if (json_get_array(g->json, "outputs", &list, err) < 0) return E_INVAL;
    TRY(json_get_bool(parameters, "binary_data_output", &all_binary, err));
    if (all_binary) g->r->binary = UINT_MAX;
    *n = 0;
    cJSON_ArrayForEach(item, list) {
        if (*n == TENSOR_MAX_INPUTS)
            return err_set(err, E_INVAL, "there are more than %d outputs", TENSOR_MAX_INPUTS);
        struct infer_wanted *w = &wanted[(*n)++];
        const cJSON *of_output = NULL, *p;
        *w = (struct infer_wanted){.binary = all_binary};
        if (!cJSON_IsObject(item))
            return err_set(err, E_INVAL, "outputs must be objects with a name");
        TRY(json_get_string(item, "name", &w->name, err));
        if (!w->name) return err_set(err, E_INVAL, "an output has no name");
        if (json_get_object(item, "parameters", &of_output, err) < 0) return E_INVAL;
        cJSON_ArrayForEach(p, of_output) if (p->string)
            TRY(tensor_check_parameter(w->name, p->string, err));
        TRY(json_get_bool(of_output, "binary_data", &w->binary, err));
    }
    return 0;
}

static int read_infer(const struct reading *g, struct err *err) {
    const struct kserve_source *s = g->source;
    struct infer_wanted wanted[TENSOR_MAX_INPUTS];
    struct tensors inputs = {0};
    size_t n = 0;
    int rc = read_wanted(g, wanted, &n, err);
    if (rc == 0)
        rc = tensors_read(&inputs, g->json, s->body, s->body + g->json_len, s->len - g->json_len,
                          err);
    if (rc == 0) rc = infer_request_tensors(g->r, &inputs, wanted, n, err);
    tensors_release(&inputs);
    return rc;
}

// --- generate ---

static int read_text_parameters(const struct reading *g, const cJSON *json, struct err *err) {
    TRY(json_get_int(json, "session_len", 1, INT32_MAX, &g->r->session_len, err));
    TRY(json_get_int(json, "memory_len", 1, INT32_MAX, &g->r->memory_len, err));
    return sampling_json_read(&g->r->rows->sampling, json, g->r->served->info->n_vocab, err);
}

// {"text_input":"...","parameters":{...}}: parameters have the names of parley.v1, and may also be members of
// the request itself.
static int read_generate(const struct reading *g, struct err *err) {
    const char *text = NULL;
    const cJSON *parameters = cJSON_GetObjectItemCaseSensitive(g->json, "parameters");
    TRY(json_get_string(g->json, "text_input", &text, err));
    if (!text || !*text) return err_set(err, E_INVAL, "text_input is missing or empty");
    TRY(infer_request_text(g->r, text, err));
    TRY(read_text_parameters(g, g->json, err));
    return cJSON_IsObject(parameters) ? read_text_parameters(g, parameters, err) : 0;
}

// --- the whole ---

static int split_body(const struct kserve_source *source, size_t *json_len, struct err *err) {
    const char *text = source->header_len;
    char *end = NULL;
    *json_len = source->len;
    if (!*text) return 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || n > source->len)
        return err_set(err, E_INVAL,
                       "Inference-Header-Content-Length must be a number of at most %zu",
                       source->len);
    *json_len = (size_t)n;
    return 0;
}

static int read_all(struct reading *g, struct err *err) {
    struct json_limits limits = json_limits_message;
    TRY(split_body(g->source, &g->json_len, err));
    limits.max_bytes = g->json_len; // the route limits the body
    char *text = number_data_hollow(g->source->body, g->json_len, NUMBER_DATA_LONG);
    if (!text) return kserve_no_memory(err);
    cJSON *json = json_parse(text, g->json_len, &limits, err);
    free(text);
    if (!json) return err->code;
    g->json = json;
    int rc = cJSON_IsObject(json) ? read_parameters(g, err)
                                  : err_set(err, E_INVAL, "the request must be a JSON object");
    if (rc == 0) rc = g->source->form == FORM_TENSORS ? read_infer(g, err) : read_generate(g, err);
    cJSON_Delete(json);
    return rc;
}

struct infer_request *kserve_request_read(const struct kserve_source *source) {
    struct infer_request *r =
        infer_request_new(source->form, source->model, source->name, source->served);
    struct reading g = {.r = r, .source = source};
    if (r && read_all(&g, &r->err) < 0) r->code = kserve_code_of_err(&r->err);
    return r;
}
