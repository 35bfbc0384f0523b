// See prompt.h.
#include "engine/model/prompt.h"

#include "base/json.h"
#include "engine/model/safetensors.h"
#include <limits.h>
#include <math.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PROMPT_MAX_VALUES (1LL << 32)

const char *prompt_kind_name(enum prompt_kind kind) {
    return kind == PROMPT_PREFIX ? "prefix" : "rows";
}

bool prompt_name_valid(const char *name) {
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-. ");
    return n > 0 && n <= PROMPT_NAME_MAX && !name[n];
}

int64_t prompt_width(const struct model_config *c, enum prompt_kind kind) {
    if (kind == PROMPT_ROWS) return c->embed_width;
    return (int64_t)c->n_layers * 2 * c->kinds[0].attention.n_kv_heads *
           c->kinds[0].attention.head_dim;
}

// --- identity ------------------------------------------------------------------------------------

static void name_contents(struct prompt *p) {
    unsigned char sum[SHA256_DIGEST_LENGTH];
    int64_t shape[3] = {p->kind, p->n_rows, p->width};
    size_t n = (size_t)p->n_rows * (size_t)p->width * sizeof *p->data;
    // Two sums, of the contents and of that sum with the shape, need no copy of the contents.
    unsigned char both[sizeof shape + sizeof sum];
    SHA256((const unsigned char *)p->data, n, sum);
    memcpy(both, shape, sizeof shape);
    memcpy(both + sizeof shape, sum, sizeof sum);
    SHA256(both, sizeof both, sum);
    memcpy(&p->hash, sum, sizeof p->hash);
    p->hash.lo |= 1; // 0 means no prompt
    for (int i = 0; i < PROMPT_HASH_DIGITS / 2; i++)
        snprintf(p->digits + 2 * i, 3, "%02x", (unsigned)sum[i]);
}

static int check_values(const struct prompt *p, struct err *err) {
    for (int32_t r = 0; r < p->n_rows; r++)
        for (int64_t i = 0; i < p->width; i++)
            if (!isfinite(p->data[(int64_t)r * p->width + i]))
                return err_set(err, E_INVAL, "value %lld of virtual token %d is not finite",
                               (long long)i, r);
    return 0;
}

static struct prompt *make(enum prompt_kind kind, int64_t n_rows, int64_t width, struct err *err) {
    if (n_rows < 1 || n_rows > PROMPT_MAX_ROWS || width < 1 || width > PROMPT_MAX_VALUES / n_rows) {
        err_set(err, E_INVAL,
                "%lld virtual tokens of %lld values: not from 1 to %d tokens, %lld values in all",
                (long long)n_rows, (long long)width, PROMPT_MAX_ROWS, PROMPT_MAX_VALUES);
        return NULL;
    }
    struct prompt *p = calloc(1, sizeof *p);
    if (p) {
        *p = (struct prompt){
            .kind = kind, .n_rows = (int32_t)n_rows, .width = width, .n_holders = 1};
        p->data = malloc((size_t)n_rows * (size_t)width * sizeof *p->data);
    }
    if (p && p->data) return p;
    prompt_free(p);
    err_set(err, E_NOMEM, "no memory for %lld virtual tokens", (long long)n_rows);
    return NULL;
}

int prompt_new(struct prompt **out, enum prompt_kind kind, int64_t n_rows, int64_t width,
               const float *data, struct err *err) {
    struct prompt *p = make(kind, n_rows, width, err);
    *out = NULL;
    if (!p) return err->code;
    memcpy(p->data, data, (size_t)n_rows * (size_t)width * sizeof *data);
    int rc = check_values(p, err);
    if (rc < 0) {
        prompt_free(p);
        return rc;
    }
    name_contents(p);
    *out = p;
    return 0;
}

struct prompt *prompt_hold(const struct prompt *p) {
    struct prompt *held = (struct prompt *)(uintptr_t)p; // only the count changes
    if (held) held->n_holders++;
    return held;
}

void prompt_free(struct prompt *p) {
    if (!p || --p->n_holders > 0) return;
    free(p->data);
    free(p);
}

bool prompt_allows(const struct prompt *p, int64_t position, int32_t id) {
    if (!p || id < PROMPT_ID_FIRST || id - PROMPT_ID_FIRST >= p->n_rows) return false;
    return p->kind == PROMPT_ROWS || id - PROMPT_ID_FIRST == position;
}

const struct prompt_task *prompt_task_find(const struct prompt_task *list, size_t n,
                                           const char *name) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}

const struct prompt *prompt_task_table(const struct prompt_task *list, size_t n,
                                       const char *digits) {
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i].prompt->digits, digits) == 0) return list[i].prompt;
    return NULL;
}

// --- PEFT ----------------------------------------------------------------------------------------

#define CONFIG_FILE "adapter_config.json"
#define TENSORS_FILE "adapter_model.safetensors"

static int read_kind(const cJSON *config, const char *path, enum prompt_kind *kind,
                     struct err *err) {
    const char *type = NULL;
    struct err why = {0};
    int rc = json_get_string(config, "peft_type", &type, &why);
    if (rc < 0) return err_set(err, rc, "%s: %s", path, why.text);
    if (rc == JSON_ABSENT) return err_set(err, E_FORMAT, "%s: 'peft_type' is missing", path);
    *kind = strcmp(type, "PREFIX_TUNING") == 0 ? PROMPT_PREFIX : PROMPT_ROWS;
    if (*kind == PROMPT_PREFIX || strcmp(type, "PROMPT_TUNING") == 0 ||
        strcmp(type, "P_TUNING") == 0)
        return 0;
    return err_set(err, E_UNSUPPORTED,
                   "%s: 'peft_type' is '%.40s'; known are PROMPT_TUNING, P_TUNING, PREFIX_TUNING",
                   path, type);
}

static int read_config(const char *dir, enum prompt_kind *kind, int64_t *n_rows, struct err *err) {
    char path[PATH_MAX];
    struct err why = {0};
    int64_t parts = 1;
    if (strlen(dir) + sizeof TENSORS_FILE + 1 > sizeof path)
        return err_set(err, E_INVAL, "the path of the prompt's folder is too long");
    snprintf(path, sizeof path, "%s/" CONFIG_FILE, dir);
    cJSON *config = json_parse_file(path, &json_limits_message, err);
    if (!config) return err->code;
    int rc = read_kind(config, path, kind, err);
    int got = rc;
    if (rc == 0) {
        got = json_get_int(config, "num_virtual_tokens", 1, PROMPT_MAX_ROWS, n_rows, &why);
        if (got > 0) got = json_get_int(config, "num_transformer_submodules", 1, 2, &parts, &why);
        if (got < 0) rc = err_set(err, got, "%s: %s", path, why.text);
    }
    if (rc == 0 && *n_rows == 0)
        rc = err_set(err, E_FORMAT, "%s: 'num_virtual_tokens' is missing", path);
    if (rc == 0 && parts != 1)
        rc = err_set(err, E_UNSUPPORTED,
                     "%s: 'num_transformer_submodules' is 2: trained for an encoder and decoder",
                     path);
    cJSON_Delete(config);
    return rc;
}

static float value_at(const void *data, enum dtype dtype, size_t i) {
    uint16_t half;
    float f;
    if (dtype == DTYPE_F32) {
        memcpy(&f, (const char *)data + i * sizeof f, sizeof f);
        return f;
    }
    memcpy(&half, (const char *)data + i * sizeof half, sizeof half);
    return dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static int read_values(struct prompt *p, const struct safetensors *f, const struct tensor *t,
                       struct err *err) {
    void *raw = malloc(t->bytes);
    if (!raw) return err_set(err, E_NOMEM, "no memory for '%s'", t->name);
    int rc = safetensors_read(f, t, 0, raw, t->bytes, err);
    if (rc == 0)
        for (size_t i = 0; i < (size_t)p->n_rows * (size_t)p->width; i++)
            p->data[i] = value_at(raw, t->dtype, i);
    free(raw);
    return rc;
}

static int check_tensor(const struct tensor *t, const char *path, int64_t n_rows, int64_t width,
                        struct err *err) {
    if (!t) return err_set(err, E_NOTFOUND, "%s: tensor 'prompt_embeddings' is missing", path);
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return err_set(err, E_UNSUPPORTED, "%s: '%s' is %s; known are f32, f16, bf16", path,
                       t->name, dtype_name(t->dtype));
    if (t->n_dims == 2 && t->shape[0] == n_rows && t->shape[1] == width) return 0;
    return err_set(err, E_FORMAT,
                   "%s: '%s' is (%lld, %lld) of %d dimensions; this model needs (%lld, %lld)", path,
                   t->name, (long long)(t->n_dims > 0 ? t->shape[0] : 0),
                   (long long)(t->n_dims > 1 ? t->shape[1] : 0), t->n_dims, (long long)n_rows,
                   (long long)width);
}

// A prefix has one shape for all layers, each with its own keys and values.
static int check_prefix(const struct model_config *c, enum prompt_kind kind, struct err *err) {
    const struct attention_config *first = &c->kinds[0].attention;
    for (int32_t i = 0; kind == PROMPT_PREFIX && i < c->n_kinds; i++) {
        const struct attention_config *a = &c->kinds[i].attention;
        if (a->kv_rank || a->kv_from || a->n_kv_heads != first->n_kv_heads ||
            a->head_dim != first->head_dim)
            return err_set(err, E_UNSUPPORTED,
                           "prefix tuning of a model whose layers have not each keys and values of "
                           "one shape (%s)",
                           c->family);
    }
    return 0;
}

int prompt_load(struct prompt **out, const struct model_config *c, const char *dir,
                struct err *err) {
    char path[PATH_MAX];
    enum prompt_kind kind = PROMPT_ROWS;
    int64_t n_rows = 0;
    struct safetensors *f;
    struct prompt *p = NULL;
    struct err why = {0};
    *out = NULL;
    TRY(read_config(dir, &kind, &n_rows, err));
    TRY(check_prefix(c, kind, err));
    snprintf(path, sizeof path, "%s/" TENSORS_FILE, dir);
    TRY(safetensors_open(&f, path, err));
    const struct tensor *t = safetensors_find(f, "prompt_embeddings");
    int rc = check_tensor(t, path, n_rows, prompt_width(c, kind), err);
    if (rc == 0) {
        p = make(kind, n_rows, prompt_width(c, kind), err);
        rc = p ? read_values(p, f, t, err) : err->code;
    }
    if (rc == 0 && check_values(p, &why) < 0) rc = err_set(err, E_INVAL, "%s: %s", path, why.text);
    safetensors_close(f);
    if (rc < 0) {
        prompt_free(p);
        return rc;
    }
    name_contents(p);
    *out = p;
    return 0;
}
