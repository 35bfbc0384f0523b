// Reads a folder's quantisation method. See quantization.h.
#include "engine/model/quantization.h"
#include "engine/model/packed_tensors.h"
#include "kernels/fp8.h"
#include <stdio.h>
#include <string.h>

// --- parley_int8 ---

static int read_fingerprint(const cJSON *q, const char *key, char out[FINGERPRINT_LEN + 1],
                            struct err *err) {
    const char *s = NULL;
    TRY(json_get_string(q, key, &s, err));
    if (!s) return 0;
    if (strlen(s) != FINGERPRINT_LEN || strspn(s, "0123456789abcdef") != FINGERPRINT_LEN)
        return err_set(err, E_FORMAT, "'%s' is not a fingerprint of %d digits", key,
                       FINGERPRINT_LEN);
    strcpy(out, s);
    return 0;
}

static int read_fingerprints(struct model_config *c, const cJSON *q, struct err *err) {
    TRY(read_fingerprint(q, MODEL_QUANTIZED_OF, c->quantized_of, err));
    TRY(read_fingerprint(q, MODEL_QUANTIZED_OWN, c->quantized_own, err));
    if (!c->quantized_of[0] == !c->quantized_own[0]) return 0;
    return err_set(err, E_FORMAT,
                   "config.json has one of '" MODEL_QUANTIZED_OF "' and '" MODEL_QUANTIZED_OWN
                   "' without the other");
}

static int read_layout(struct model_config *c, const cJSON *q, struct err *err) {
    const char *layout = NULL;
    int64_t version = 0;
    TRY(json_get_string(q, "layout", &layout, err));
    TRY(json_get_int(q, "layout_version", 0, INT32_MAX, &version, err));
    if (!layout && !version) return 0;
    if (!layout || strcmp(layout, MODEL_INT8_LAYOUT) != 0 || version != MODEL_INT8_LAYOUT_VERSION)
        return err_set(err, E_UNSUPPORTED,
                       "'quantization_config' has the layout '%.60s' of version %lld; known "
                       "is " MODEL_INT8_LAYOUT " of version %d",
                       layout ? layout : "", (long long)version, MODEL_INT8_LAYOUT_VERSION);
    c->int8_panels = true;
    return 0;
}

static int read_int8(struct model_config *c, const cJSON *q, struct err *err) {
    c->int8 = true;
    TRY(read_layout(c, q, err));
    return read_fingerprints(c, q, err);
}

// --- keys of both e4m3 methods ---

static int refuse(const char *key, const char *value, const char *known, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "'quantization_config' has '%s' %.60s; known %s", key, value,
                   known);
}

// A string that, where it is given, is one of two.
static int expect_string(const cJSON *obj, const char *key, const char *a, const char *b,
                         struct err *err) {
    const char *s = a;
    char known[80];
    TRY(json_get_string(obj, key, &s, err));
    if (strcmp(s, a) == 0 || strcmp(s, b) == 0) return 0;
    snprintf(known, sizeof known, "is %s%s%s", a, a == b ? "" : " or ", a == b ? "" : b);
    return refuse(key, s, known, err);
}

// An unsupported key: must be absent, null, false or empty.
static int expect_nothing(const cJSON *obj, const char *key, struct err *err) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(obj, key);
    bool empty = !item || cJSON_IsNull(item) || cJSON_IsFalse(item) ||
                 ((cJSON_IsObject(item) || cJSON_IsArray(item)) && !item->child);
    return empty ? 0 : refuse(key, "set", "is none", err);
}

static int expect_bool(const cJSON *obj, const char *key, bool wanted, struct err *err) {
    bool value = wanted;
    TRY(json_get_bool(obj, key, &value, err));
    return value == wanted
               ? 0
               : refuse(key, value ? "true" : "false", wanted ? "is true" : "is false", err);
}

// [128, 128]; nothing where the key is absent or null.
static int read_block_size(struct model_config *c, const cJSON *obj, const char *key,
                           struct err *err) {
    const cJSON *size = NULL;
    TRY(json_get_array(obj, key, &size, err));
    if (!size) return 0;
    for (int i = 0; i < 2; i++) {
        const cJSON *n = cJSON_GetArrayItem(size, i);
        if (cJSON_GetArraySize(size) != 2 || !cJSON_IsNumber(n) || n->valuedouble != FP8_BLOCK)
            return refuse(key, "of another shape", "is [128, 128]", err);
    }
    c->fp8_block_k = FP8_BLOCK;
    return 0;
}

// --- fp8 ---

static int read_fp8(struct model_config *c, const cJSON *q, struct err *err) {
    TRY(expect_string(q, "fmt", "e4m3", "float8_e4m3fn", err));
    TRY(expect_string(q, "scale_fmt", "float", "ue8m0", err)); // of activations
    TRY(read_block_size(c, q, "weight_block_size", err));
    c->fp8_scale = c->fp8_block_k ? "weight_scale_inv" : "weight_scale";
    return 0;
}

// --- compressed-tensors ---

static int read_weights(struct model_config *c, const cJSON *w, struct err *err) {
    int64_t bits = 0;
    const char *type = "int", *strategy = NULL; // as that library takes them
    TRY(json_get_int(w, "num_bits", 0, 64, &bits, err));
    if (bits != 8) return refuse("num_bits", "of weights other than 8", "is 8", err);
    TRY(json_get_string(w, "type", &type, err));
    if (strcmp(type, "float") != 0) return refuse("type", type, "is float", err);
    TRY(expect_bool(w, "symmetric", true, err));
    TRY(expect_bool(w, "dynamic", false, err));
    TRY(expect_nothing(w, "actorder", err));
    TRY(json_get_string(w, "strategy", &strategy, err));
    if (strategy && strcmp(strategy, "block") == 0) {
        TRY(read_block_size(c, w, "block_structure", err));
        if (!c->fp8_block_k) return refuse("block_structure", "missing", "is [128, 128]", err);
    } else if (!strategy || (strcmp(strategy, "channel") != 0 && strcmp(strategy, "tensor") != 0)) {
        return refuse("strategy", strategy ? strategy : "missing", "are tensor, channel and block",
                      err);
    }
    c->fp8_scale = "weight_scale";
    return 0;
}

static int read_compressed_tensors(struct model_config *c, const cJSON *q, struct err *err) {
    const cJSON *groups = NULL, *weights = NULL, *sparsity = NULL;
    TRY(expect_string(q, "format", "float-quantized", "naive-quantized", err));
    TRY(expect_string(q, "quantization_status", "compressed", "frozen", err));
    // kv_cache_scheme is of the cache, which kv_dtype decides; its scales are reported as unused tensors.
    TRY(expect_nothing(q, "transform_config", err));
    TRY(json_get_object(q, "sparsity_config", &sparsity, err));
    if (sparsity && sparsity->child) TRY(expect_string(sparsity, "format", "dense", "dense", err));
    TRY(json_get_object(q, "config_groups", &groups, err));
    if (!groups || !groups->child) return refuse("config_groups", "missing", "is one", err);
    if (groups->child->next) return refuse("config_groups", "of several groups", "is one", err);
    if (!cJSON_IsObject(groups->child))
        return err_set(err, E_FORMAT, "'config_groups' contains a value that is not an object");
    TRY(expect_string(groups->child, "format", "float-quantized", "naive-quantized", err));
    TRY(json_get_object(groups->child, "weights", &weights, err));
    if (!weights) return refuse("weights", "missing", "are such of 8 bits", err);
    return read_weights(c, weights, err);
}

// --- all ---

int quantization_read(struct model_config *c, const cJSON *json, struct err *err) {
    const cJSON *q = quantization_of(json), *own = NULL;
    const char *method = NULL;
    int64_t bits = 8;
    enum packed_format packed;
    static const char known[] =
        MODEL_INT8_METHOD " (parley quantize), fp8, fbgemm_fp8, compressed-tensors, awq, gptq, "
                          "auto-round, bitsandbytes, mxfp4 and modelopt";
    if (!q || cJSON_IsNull(q) || cJSON_IsFalse(q)) return 0;
    if (!cJSON_IsObject(q)) return err_set(err, E_FORMAT, "'quantization_config' is not an object");
    TRY(packed_format_read(json, &packed, err));
    if (packed != PACKED_NONE) return 0; // the checkpoint shows its matrices as F32
    TRY(json_get_string(q, "quant_method", &method, err));
    TRY(json_get_int(q, "bits", 0, 64, &bits, err));
    if (!method)
        return err_set(err, E_UNSUPPORTED,
                       "'quantization_config' names no 'quant_method'; known are %s", known);
    bool is_fp8 = strcmp(method, "fp8") == 0 || strcmp(method, "fbgemm_fp8") == 0;
    bool is_ct = strcmp(method, MODEL_FP8_METHOD) == 0;
    if (strcmp(method, MODEL_INT8_METHOD) != 0 && !is_fp8 && !is_ct)
        return err_set(err, E_UNSUPPORTED, "'quantization_config' asks for '%.60s'; known are %s",
                       method, known);
    if (bits != 8)
        return err_set(err, E_UNSUPPORTED,
                       "'quantization_config' asks for '%.60s' with %d bits; known are 8", method,
                       (int)bits);
    if (!is_fp8 && !is_ct) return read_int8(c, q, err);
    c->fp8 = true;
    TRY(json_get_object(json, MODEL_FP8_KEY, &own, err));
    if (own) TRY(read_fingerprints(c, own, err));
    return is_fp8 ? read_fp8(c, q, err) : read_compressed_tensors(c, q, err);
}
