// Finds a family's row, and reads the switches that several families have. See families.h, family_rows.h.
#include "engine/model/family_rows.h"
#include "base/json.h"
#include "engine/model/ft_layout.h"
#include <stdio.h>
#include <string.h>

// In the order in which `parley inspect --families` lists them.
static const struct family_list *const lists[] = {&families_llama, &families_gpt, &families_gemma,
                                                  &families_experts};
#define N_LISTS (sizeof lists / sizeof *lists)

const struct family *family_find(const char *model_type) {
    for (size_t k = 0; k < N_LISTS; k++)
        for (size_t i = 0; i < lists[k]->n; i++)
            if (strcmp(lists[k]->rows[i].model_type, model_type) == 0) return &lists[k]->rows[i];
    return NULL;
}

const struct family_tensors *family_tensors_of(const struct model_config *c) {
    return c->format == FORMAT_FASTERTRANSFORMER ? &ft_tensors : family_find(c->family)->tensors;
}

const char *family_name(size_t i) {
    for (size_t k = 0; k < N_LISTS; i -= lists[k++]->n)
        if (i < lists[k]->n) return lists[k]->rows[i].model_type;
    return NULL;
}

char *family_tensor_name(char out[TENSOR_NAME_MAX], const struct family_tensors *t, int32_t layer,
                         const char *stem, const char *suffix) {
    const char *dot = *suffix ? "." : "";
    if (layer < 0)
        snprintf(out, TENSOR_NAME_MAX, "%s%s%s", stem, dot, suffix);
    else
        snprintf(out, TENSOR_NAME_MAX, "%s.%d.%s%s%s", t->layers, layer, stem, dot, suffix);
    return out;
}

// --- windows ---

int family_read_window(const cJSON *json, int32_t fallback, int32_t *window, struct err *err) {
    bool there = cJSON_GetObjectItemCaseSensitive(json, "sliding_window") != NULL;
    int64_t v = there ? 0 : fallback;
    TRY(json_get_int(json, "sliding_window", 1, INT32_MAX, &v, err));
    *window = (int32_t)v;
    return 0;
}

int family_read_layer_types(const cJSON *json, int32_t n_layers, bool *windowed, struct err *err) {
    const cJSON *list = NULL, *item;
    int rc = json_get_array(json, "layer_types", &list, err);
    if (rc != JSON_PRESENT) return rc;
    int32_t n = 0;
    cJSON_ArrayForEach(item, list) {
        const char *type = cJSON_IsString(item) ? item->valuestring : "?";
        bool full = strcmp(type, "full_attention") == 0;
        if (!full && strcmp(type, "sliding_attention") != 0)
            return err_set(err, E_UNSUPPORTED, "'layer_types' asks for '%.60s' in layer %d", type,
                           n);
        if (n < n_layers) windowed[n] = !full;
        n++;
    }
    if (n != n_layers)
        return err_set(err, E_FORMAT, "'layer_types' lists %d layers of %d", n, n_layers);
    return JSON_PRESENT;
}

int family_read_pattern(const cJSON *json, int32_t n_layers, int64_t pattern, bool *windowed,
                        struct err *err) {
    int rc = family_read_layer_types(json, n_layers, windowed, err);
    for (int32_t i = 0; rc == JSON_ABSENT && i < n_layers; i++)
        windowed[i] = pattern > 0 && (i + 1) % pattern != 0;
    return rc < 0 ? rc : 0;
}

int family_set_layers(struct model_config *c, const bool *windowed, const struct layer_config *full,
                      const struct layer_config *sliding, struct err *err) {
    for (int32_t i = 0; i < c->n_layers; i++)
        TRY(model_config_set_layer(c, i, windowed[i] ? sliding : full, err));
    return 0;
}

// --- experts ---

int family_require_count(const cJSON *json, const char *key, int64_t max, int32_t *out,
                         struct err *err) {
    int64_t v;
    int rc = json_get_int(json, key, 1, max, &v, err);
    if (rc < 0) return rc;
    if (rc == JSON_ABSENT) return err_set(err, E_FORMAT, "'%s' is missing", key);
    *out = (int32_t)v;
    return 0;
}

int family_read_experts(struct experts_config *x, const cJSON *json,
                        const struct family_expert_keys *keys, struct err *err) {
    TRY(family_require_count(json, keys->count, ROUTE_MAX_EXPERTS, &x->n_experts, err));
    TRY(family_require_count(json, keys->chosen, INT32_MAX, &x->n_chosen, err));
    TRY(family_require_count(json, keys->width, MODEL_MAX_FFN / 2, &x->width, err));
    if (2 * (int64_t)x->n_experts * x->width > MODEL_MAX_QKV_ROWS)
        return err_set(err, E_LIMIT, "%d experts of %d are more than a layer may have",
                       x->n_experts, x->width);
    if (x->n_chosen > x->n_experts)
        return err_set(err, E_FORMAT, "'%s' is %d of %d experts", keys->chosen, x->n_chosen,
                       x->n_experts);
    return 0;
}

// --- other switches ---

int family_read_attention_bias(struct model_config *c, const cJSON *json, struct err *err) {
    struct attention_config *a = &c->kinds[0].attention;
    TRY(json_get_bool(json, "attention_bias", &a->qkv_bias, err));
    a->o_bias = a->qkv_bias;
    return 0;
}

int family_read_cap(const cJSON *json, const char *key, double fallback, float *cap,
                    struct err *err) {
    double v = cJSON_GetObjectItemCaseSensitive(json, key) ? 0 : fallback;
    TRY(json_get_double(json, key, 1e-3, 1e6, &v, err));
    *cap = (float)v;
    return 0;
}

int family_refuse(const cJSON *json, const char *const *keys, struct err *err) {
    for (; *keys; keys++) {
        const cJSON *v = cJSON_GetObjectItemCaseSensitive(json, *keys);
        bool plain = !v || cJSON_IsNull(v) || cJSON_IsFalse(v) ||
                     (cJSON_IsNumber(v) && (v->valuedouble == 0 || v->valuedouble == 1));
        if (!plain) return err_set(err, E_UNSUPPORTED, "'%s' is not supported", *keys);
    }
    return 0;
}
