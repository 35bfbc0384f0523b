// quantization_config of folders whose matrices are packed. See packed_tensors.h.
#include "base/json.h"
#include "base/path.h"
#include "engine/model/packed_tensors.h"
#include <string.h>

static int refuse(const char *method, const char *what, const char *known, struct err *err) {
    return err_set(err, E_UNSUPPORTED, "'quantization_config' of %.40s has %.80s; known %s", method,
                   what, known);
}

static int read_awq(const cJSON *q, enum packed_format *out, struct err *err) {
    const char *version = "gemm";
    int64_t bits = 4;
    TRY(json_get_string(q, "version", &version, err));
    TRY(json_get_int(q, "w_bit", 0, 64, &bits, err));
    TRY(json_get_int(q, "bits", 0, 64, &bits, err));
    if (strcasecmp(version, "gemm") != 0) return refuse("awq", version, "is version gemm", err);
    if (bits != 4) return refuse("awq", "other than 4 bits", "are 4 bits", err);
    *out = PACKED_AWQ;
    return 0;
}

static int read_gptq(const cJSON *q, enum packed_format *out, struct err *err) {
    const char *format = NULL;
    int64_t bits = 4;
    TRY(json_get_string(q, "format", &format, err));
    TRY(json_get_string(q, "checkpoint_format", &format, err));
    TRY(json_get_int(q, "bits", 0, 64, &bits, err));
    if (bits != 4 && bits != 8) return refuse("gptq", "other than 4 or 8 bits", "are 4 and 8", err);
    if (format && strcmp(format, "gptq") != 0 && strcmp(format, "gptq_v2") != 0)
        return refuse("gptq", format, "are the formats gptq and gptq_v2", err);
    *out = format && strcmp(format, "gptq_v2") == 0 ? PACKED_GPTQ_V2 : PACKED_GPTQ;
    return 0;
}

// AutoRound's own method: what its matrices have in common with which other format. Its groups may differ in bits, which
// a matrix's own tensors show.
static int read_auto_round(const cJSON *q, enum packed_format *out, struct err *err) {
    static const struct {
        const char *name;
        enum packed_format format;
    } packings[] = {
        {"auto_round:auto_gptq", PACKED_GPTQ},
        {"auto_round:gptqmodel", PACKED_GPTQ_V2},
        {"auto_round", PACKED_GPTQ_V2},
        {"auto_round:auto_awq", PACKED_AWQ},
        {"auto_round:llm_compressor", PACKED_OTHER},
    };
    const char *name = packings[0].name, *type = "int";
    int64_t bits = 4;
    TRY(json_get_int(q, "bits", 0, 64, &bits, err));
    if (bits != 4 && bits != 8)
        return refuse("auto-round", "other than 4 or 8 bits", "are 4 and 8", err);
    TRY(json_get_string(q, "packing_format", &name, err));
    TRY(json_get_string(q, "data_type", &type, err));
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++) {
        if (strcmp(name, packings[i].name) != 0) continue;
        *out = packings[i].format;
        if (*out == PACKED_OTHER || strcmp(type, "int") == 0) return 0;
        return refuse("auto-round", type, "is the data_type int", err);
    }
    return refuse("auto-round", name,
                  "are the packings auto_round:auto_gptq, auto_round:auto_awq, "
                  "auto_round:gptqmodel and auto_round:llm_compressor",
                  err);
}

static int read_bitsandbytes(const cJSON *q, enum packed_format *out, struct err *err) {
    const char *type = "nf4";
    TRY(json_get_string(q, "bnb_4bit_quant_type", &type, err));
    if (strcmp(type, "nf4") != 0 && strcmp(type, "fp4") != 0)
        return refuse("bitsandbytes", type, "are the types nf4 and fp4", err);
    *out = PACKED_BNB;
    return 0;
}

static bool is_one_of(const char *name, const char *const *known, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, known[i]) == 0) return true;
    return false;
}
#define IS_ONE_OF(name, known) is_one_of(name, known, sizeof known / sizeof *known)

// Folders of one format of 8-bit floats are the loader's own.
static int read_compressed(const cJSON *q, enum packed_format *out, struct err *err) {
    static const char *const floats[] = {"float-quantized", "naive-quantized"};
    static const char *const packed[] = {
        "pack-quantized",  "int-quantized",   "nvfp4-pack-quantized", "mxfp4-pack-quantized",
        "mixed-precision", "float-quantized", "naive-quantized",      "mxfp8-quantized"};
    const char *format = NULL;
    const cJSON *groups = json_member(q, "config_groups"), *group;
    TRY(json_get_string(q, "format", &format, err));
    if (!format) return 0;
    if (IS_ONE_OF(format, floats) && cJSON_GetArraySize(groups) <= 1) return 0;
    if (!IS_ONE_OF(format, packed))
        return refuse("compressed-tensors", format,
                      "are pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized, "
                      "mxfp4-pack-quantized, mxfp8-quantized and mixed-precision",
                      err);
    cJSON_ArrayForEach(group, groups) {
        const char *own = json_string(group, "format");
        if (own && !IS_ONE_OF(own, packed))
            return refuse("compressed-tensors", own, "are the formats of its list", err);
    }
    *out = PACKED_OTHER;
    return 0;
}

const cJSON *quantization_of(const cJSON *config) {
    const cJSON *q = json_member(config, "quantization_config");
    return q && !cJSON_IsNull(q) ? q : json_member(config, "compression_config");
}

int packed_format_read(const cJSON *config, enum packed_format *out, struct err *err) {
    const cJSON *q = quantization_of(config);
    const char *method = json_string(q, "quant_method"), *algo = json_string(q, "quant_algo");
    *out = PACKED_NONE;
    if (!method && (json_member(q, "load_in_4bit") || json_member(q, "load_in_8bit")))
        method = "bitsandbytes"; // whose first configurations did not name it
    if (!method) return 0;
    if (strcmp(method, "bitsandbytes") == 0) return read_bitsandbytes(q, out, err);
    if (strcmp(method, "awq") == 0) return read_awq(q, out, err);
    if (strcmp(method, "gptq") == 0) return read_gptq(q, out, err);
    if (strcmp(method, "auto-round") == 0 || strcmp(method, "intel/auto-round") == 0)
        return read_auto_round(q, out, err);
    if (strcmp(method, "compressed-tensors") == 0) return read_compressed(q, out, err);
    if (strcmp(method, "mxfp4") == 0) {
        *out = PACKED_OTHER;
        return 0;
    }
    if (strcmp(method, "modelopt") != 0) return 0;
    if (!algo || (strcmp(algo, "NVFP4") != 0 && strcmp(algo, "FP8") != 0))
        return refuse("modelopt", algo ? algo : "no quant_algo", "are NVFP4 and FP8", err);
    *out = PACKED_OTHER;
    return 0;
}

// Where older folders have it: a file, the object in it (NULL: the whole), and the method that it need not name.
static const struct own_file {
    const char *name, *object, *method;
} own_files[] = {
    {"quantize_config.json", NULL, "gptq"},
    {"quant_config.json", NULL, "awq"},
    {"hf_quant_config.json", "quantization", "modelopt"},
};
#define N_OWN_FILES (sizeof own_files / sizeof *own_files)

static int no_memory(const char *dir, struct err *err) {
    return err_set(err, E_NOMEM, "no memory for the quantisation of %s", dir);
}

// *q stays NULL if there is no such file, or not that object in it.
static int read_own_file(const char *dir, const struct own_file *f, cJSON **q, struct err *err) {
    char path[PATH_MAX];
    struct err why = {0};
    *q = NULL;
    TRY(path_join(path, dir, f->name, err));
    cJSON *all = json_parse_file(path, &json_limits_file, &why);
    if (!all) return why.code == E_NOTFOUND ? 0 : err_set(err, why.code, "%s", why.text);
    *q = all;
    if (f->object) {
        *q = cJSON_DetachItemFromObjectCaseSensitive(all, f->object);
        cJSON_Delete(all);
        if (*q && !json_string(*q, "quant_algo")) { // the cache alone is in few bits
            cJSON_Delete(*q);
            *q = NULL;
        }
    }
    if (!cJSON_IsObject(*q) || json_string(*q, "quant_method") ||
        cJSON_AddStringToObject(*q, "quant_method", f->method))
        return 0;
    cJSON_Delete(*q);
    *q = NULL;
    return no_memory(dir, err);
}

// As config.json's quantization_config. *out stays NULL if the folder has no such file.
static int read_own_files(const char *dir, cJSON **out, struct err *err) {
    cJSON *q = NULL, *root;
    *out = NULL;
    for (size_t i = 0; i < N_OWN_FILES && !q; i++) TRY(read_own_file(dir, &own_files[i], &q, err));
    if (!q) return 0;
    root = cJSON_CreateObject();
    if (root && cJSON_AddItemToObject(root, "quantization_config", q)) {
        *out = root;
        return 0;
    }
    cJSON_Delete(q);
    cJSON_Delete(root);
    return no_memory(dir, err);
}

int packed_format_of(const char *model_dir, enum packed_format *out, char name[PACKED_NAME],
                     struct err *err) {
    char path[PATH_MAX];
    struct err why = {0};
    *out = PACKED_NONE;
    name[0] = '\0';
    TRY(path_join(path, model_dir, "config.json", err));
    cJSON *config = json_parse_file(path, &json_limits_file, &why), *own = NULL;
    if (!config) return why.code == E_NOTFOUND ? 0 : err_set(err, why.code, "%s", why.text);
    int rc = quantization_of(config) ? 0 : read_own_files(model_dir, &own, err);
    if (rc == 0) rc = packed_format_read(own ? own : config, out, err);
    packed_name_of(name, quantization_of(own ? own : config));
    cJSON_Delete(own);
    cJSON_Delete(config);
    return rc;
}
