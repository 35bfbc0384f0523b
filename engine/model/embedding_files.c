// See embedding_files.h.
#include "engine/model/embedding_files.h"
#include "base/path.h"
#include "engine/gguf/gguf_config.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool ends_with(const char *s, const char *end) {
    const size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

// *out stays NULL if there is no such file.
static int read_file(const char *dir, const char *name, cJSON **out, struct err *err) {
    char path[PATH_MAX];
    struct err why = {0};
    TRY(path_join(path, dir, name, err));
    *out = json_parse_file(path, &json_limits_file, &why);
    if (*out || why.code == E_NOTFOUND) return 0;
    return err_set(err, why.code, "%s", why.text);
}

// --- 1_Pooling/config.json ---

static const struct {
    const char *key, *name; // of the older and of the newer form
    enum embedding_pooling pooling;
} poolings[] = {
    {"pooling_mode_mean_tokens", "mean", EMBEDDING_MEAN},
    {"pooling_mode_lasttoken", "lasttoken", EMBEDDING_LAST},
    {"pooling_mode_cls_token", "cls", EMBEDDING_FIRST},
};
#define N_POOLINGS (sizeof poolings / sizeof *poolings)

static int unknown_pooling(const char *name, struct err *err) {
    return err_set(err, E_UNSUPPORTED,
                   "the pooling '%.60s' is not supported; known are lasttoken, mean and cls", name);
}

static int named_pooling(const char *name, enum embedding_pooling *out, struct err *err) {
    for (size_t i = 0; i < N_POOLINGS; i++)
        if (strcmp(name, poolings[i].name) == 0) {
            *out = poolings[i].pooling;
            return 0;
        }
    return unknown_pooling(name, err);
}

static int pooling_of(const cJSON *json, enum embedding_pooling *out, struct err *err) {
    const cJSON *item;
    const char *name = json_string(json, "pooling_mode");
    int n = 0;
    if (name) return named_pooling(name, out, err);
    cJSON_ArrayForEach(item, json) {
        if (!cJSON_IsTrue(item) || strncmp(item->string, "pooling_mode_", 13) != 0) continue;
        size_t i = 0;
        while (i < N_POOLINGS && strcmp(poolings[i].key, item->string) != 0) i++;
        if (i == N_POOLINGS) return unknown_pooling(item->string, err);
        *out = poolings[i].pooling;
        n++;
    }
    if (n == 1) return 0;
    return err_set(err, E_UNSUPPORTED, "its poolings are %d; known is one", n);
}

static int read_pooling(struct embedding_config *e, const char *dir, const char *folder,
                        struct err *err) {
    char path[PATH_MAX];
    cJSON *json = NULL;
    struct err why = {0};
    if (!folder || !*folder || strchr(folder, '/') || *folder == '.')
        return err_set(err, E_FORMAT, "modules.json: the pooling's 'path' is no folder's name");
    TRY(path_join(path, dir, folder, err));
    TRY(read_file(path, "config.json", &json, err));
    int rc = cJSON_IsObject(json) ? pooling_of(json, &e->pooling, &why)
                                  : err_set(&why, E_FORMAT, "it is missing or no JSON object");
    cJSON_Delete(json);
    return rc < 0 ? err_set(err, rc, "%s/config.json: %s", path, why.text) : 0;
}

// --- modules.json: a list of {"idx", "name", "path", "type"} ---

static int read_modules(struct embedding_config *e, const char *dir, const cJSON *modules,
                        struct err *err) {
    const cJSON *module;
    *e = (struct embedding_config){.pooling = EMBEDDING_MEAN, .unit_length = false};
    cJSON_ArrayForEach(module, modules) {
        const char *type = json_string(module, "type");
        if (!type) return err_set(err, E_FORMAT, "modules.json has a module without a 'type'");
        if (ends_with(type, ".Pooling"))
            TRY(read_pooling(e, dir, json_string(module, "path"), err));
        else if (ends_with(type, ".Normalize"))
            e->unit_length = true;
        else if (!ends_with(type, ".Transformer"))
            return err_set(err, E_UNSUPPORTED,
                           "modules.json has a module '%.100s'; known are Transformer, Pooling and "
                           "Normalize",
                           type);
    }
    return 0;
}

// "Qwen3Model", not "Qwen3ForCausalLM".
static bool has_no_head(const cJSON *config) {
    const char *name =
        cJSON_GetStringValue(cJSON_GetArrayItem(json_member(config, "architectures"), 0));
    return name && ends_with(name, "Model") && !strstr(name, "For") && !strstr(name, "LMHead");
}

int embedding_gguf_read(struct model_config *config, const cJSON *json, struct err *err) {
    enum { NONE, MEAN, CLS, LAST }; // llama.cpp's numbers
    static const enum embedding_pooling by_type[] = {
        [MEAN] = EMBEDDING_MEAN, [CLS] = EMBEDDING_FIRST, [LAST] = EMBEDDING_LAST};
    const cJSON *type = json_member(json, GGUF_POOLING);
    if (!type || type->valuedouble == NONE) return 0;
    if (type->valuedouble != MEAN && type->valuedouble != CLS && type->valuedouble != LAST)
        return err_set(err, E_UNSUPPORTED,
                       "its pooling_type is %g; known are 1 (mean), 2 (the first token) and 3 (the "
                       "last), not those of rerankers",
                       type->valuedouble);
    config->embeddings =
        (struct embedding_config){.pooling = by_type[type->valueint], .unit_length = true};
    config->no_head = true;
    return 0;
}

int embedding_files_read(struct model_config *config, const char *model_dir, struct err *err) {
    cJSON *modules = NULL, *json = NULL;
    TRY(read_file(model_dir, "modules.json", &modules, err));
    int rc = modules && !cJSON_IsArray(modules)
                 ? err_set(err, E_FORMAT, "%s/modules.json is no list", model_dir)
                 : read_file(model_dir, "config.json", &json, err);
    if (rc == 0 && modules) rc = read_modules(&config->embeddings, model_dir, modules, err);
    if (rc == 0) config->no_head = modules || has_no_head(json);
    cJSON_Delete(modules);
    cJSON_Delete(json);
    return rc;
}
