// From config.pbtxt to settings. See model_repository.h.
#include "ws/kserve/model_repository.h"
#include "base/buf.h"
#include "base/log.h"
#include "engine/engine.h"
#include "ws/kserve/pbtxt.h"
#include "ws/serve_config.h"
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CONFIG_MAX_BYTES (1 << 20)
#define PATH_BYTES 4096

struct repository {
    const char *dir;
    char path[PATH_BYTES]; // of config.pbtxt
    struct serve_config *config;
    struct err *err;
};

static int set(const struct repository *g, const struct pbtxt *at, const char *key,
               const char *value) {
    struct err err = {0};
    int rc = config_set(serve_config_table(), g->config, key, value, &err);
    if (rc < 0) return err_set(g->err, rc, "%s:%d: %s", g->path, at->line, err.text);
    return 0;
}

static int refuse(const struct repository *g, const struct pbtxt *at, const char *what) {
    return err_set(g->err, E_UNSUPPORTED, "%s:%d: %s '%s' %s", g->path, at->line, at->name,
                   at->value ? at->value : "", what);
}

static void ignored(const char *name, const char *value, const char *why) {
    char quoted[600];
    log_info("repository.ignored", "parameter=%s value=%s why=\"%s\"", name,
             log_quote(quoted, sizeof quoted, value ? value : ""), why);
}

// --- parameters ---

static bool is_folder(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

// Finds a checkpoint inside the repository: fastertransformer/1/N-gpu.
static bool find_checkpoint(const struct repository *g, char out[PATH_BYTES]) {
    char version[PATH_BYTES];
    snprintf(version, sizeof version, "%.4000s/fastertransformer/1", g->dir);
    DIR *d = opendir(version);
    struct dirent *e;
    bool found = false;
    while (d && !found && (e = readdir(d))) {
        size_t len = strlen(e->d_name);
        if (len < 5 || strcmp(e->d_name + len - 4, "-gpu") != 0) continue;
        found = snprintf(out, PATH_BYTES, "%.3800s/%.200s", version, e->d_name) > 0;
    }
    if (d) closedir(d);
    return found;
}

static int set_checkpoint(const struct repository *g, const struct pbtxt *at) {
    char inside[PATH_BYTES];
    if (at->value && is_folder(at->value)) return set(g, at, "model", at->value);
    if (find_checkpoint(g, inside)) return set(g, at, "model", inside);
    return err_set(g->err, E_NOTFOUND, "%s:%d: model_checkpoint_path '%s' is not a folder here",
                   g->path, at->line, at->value ? at->value : "");
}

// The tokenizer of the ensemble's preprocessing, for a checkpoint without one.
static int find_tokenizer(const struct repository *g, const struct pbtxt *at) {
    char beside[PATH_BYTES];
    snprintf(beside, sizeof beside, "%.4000s/preprocessing/1", g->dir);
    if (engine_has_tokenizer(g->config->model.model) || !engine_has_tokenizer(beside)) return 0;
    return set(g, at, "tokenizer", beside);
}

static int set_int8(const struct repository *g, const struct pbtxt *at) {
    const char *mode = at->value ? at->value : "";
    if (strcmp(mode, "0") == 0) return 0;
    if (strcmp(mode, "1") == 0) return set(g, at, "weight_dtype", "int8");
    return refuse(g, at, "is not served: int8_mode is 0 or 1 (8-bit weights)");
}

static int set_dtype(const struct repository *g, const struct pbtxt *at) {
    const char *type = at->value ? at->value : "";
    if (strcmp(type, "fp32") == 0) return set(g, at, "compute_dtype", "f32");
    if (strcmp(type, "fp16") != 0 && strcmp(type, "bf16") != 0)
        return refuse(g, at, "is unknown: fp32, fp16 or bf16");
    ignored("data_type", type, "compute_dtype stays auto: the checkpoint's own format");
    return 0;
}

static int check_ranks(const struct repository *g, const struct pbtxt *at) {
    if (at->value && strcmp(at->value, "1") != 0)
        ignored(at->name, at->value,
                "tensor_parallel and pipeline_parallel say how many ranks serve it");
    return 0;
}

static int check_type(const struct repository *g, const struct pbtxt *at) {
    static const char *const known[] = {"GPT",  "GPT-J",   "GPT-NeoX", "gpt",
                                        "gptj", "gptneox", "Gpt"};
    for (size_t i = 0; at->value && i < sizeof known / sizeof *known; i++)
        if (strcmp(at->value, known[i]) == 0) return 0;
    return refuse(g, at, "is not served: GPT, GPT-J or GPT-NeoX");
}

static const struct {
    const char *key;
    int (*apply)(const struct repository *g, const struct pbtxt *value);
} parameters[] = {
    {"model_checkpoint_path", set_checkpoint},
    {"int8_mode", set_int8},
    {"data_type", set_dtype},
    {"model_type", check_type},
    {"tensor_para_size", check_ranks},
    {"pipeline_para_size", check_ranks},
};

// parameters { key: "int8_mode" value: { string_value: "1" } }
static int apply_parameter(const struct repository *g, const struct pbtxt *p) {
    const struct pbtxt *key = pbtxt_find(p, "key"), *value = pbtxt_find(p, "value");
    const struct pbtxt *text = pbtxt_find(value, "string_value");
    if (!key || !key->value || !text || !text->value)
        return err_set(g->err, E_FORMAT, "%s:%d: parameters needs a key and a value.string_value",
                       g->path, p->line);
    struct pbtxt named = *text;
    named.name = key->value;
    for (size_t i = 0; i < sizeof parameters / sizeof *parameters; i++)
        if (strcmp(parameters[i].key, key->value) == 0) return parameters[i].apply(g, &named);
    ignored(key->value, text->value, "it has no meaning here");
    return 0;
}

// --- the file ---

// `decoupled` is off unless given, as in Triton.
static int apply_policy(const struct repository *g, const struct pbtxt *root) {
    static const char *const on[] = {"true", "True", "t", "1"}, *const off[] = {"false", "False",
                                                                                "f", "0"};
    const struct pbtxt *policy = pbtxt_find(root, "model_transaction_policy");
    const struct pbtxt *decoupled = pbtxt_find(policy, "decoupled");
    const char *value = decoupled && decoupled->value ? decoupled->value : "";
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        if (strcmp(on[i], value) == 0) return set(g, decoupled, "decoupled", "on");
        if (strcmp(off[i], value) == 0) return set(g, decoupled, "decoupled", "off");
    }
    if (decoupled) return refuse(g, decoupled, "must be True or False");
    return set(g, root, "decoupled", "off");
}

// Logs the other fields of the file, each once.
static void log_others(const struct pbtxt *root) {
    // why NULL: the field is read elsewhere, or true here anyway.
    static const struct {
        const char *name, *why;
    } fields[] = {{"name", NULL},
                  {"backend", NULL},
                  {"default_model_filename", NULL},
                  {"input", NULL},
                  {"output", NULL},
                  {"parameters", NULL},
                  {"sequence_batching", NULL},
                  {"model_transaction_policy", NULL},
                  {"max_batch_size", "max_sequences bounds what runs at once"},
                  {"dynamic_batching", "turns are batched step by step"},
                  {"batch_input", "turns are batched step by step"},
                  {"instance_group", "the settings say where the model runs"}};
    enum { N_FIELDS = sizeof fields / sizeof *fields };
    for (const struct pbtxt *p = root->children; p; p = p->next) {
        size_t i = 0;
        if (pbtxt_find(root, p->name) != p) continue; // a later one of the same name
        while (i < N_FIELDS && strcmp(fields[i].name, p->name) != 0) i++;
        if (i == N_FIELDS || fields[i].why)
            ignored(p->name, p->value, i < N_FIELDS ? fields[i].why : "it has no meaning here");
    }
}

static int apply_all(const struct repository *g, const struct pbtxt *root) {
    const struct pbtxt *batching = pbtxt_find(root, "sequence_batching");
    const struct pbtxt *idle = pbtxt_find(batching, "max_sequence_idle_microseconds");
    bool has_checkpoint = false;
    for (const struct pbtxt *p = root->children; p; p = p->next) {
        if (strcmp(p->name, "parameters") != 0) continue;
        const struct pbtxt *key = pbtxt_find(p, "key");
        has_checkpoint |= key && key->value && strcmp(key->value, "model_checkpoint_path") == 0;
        TRY(apply_parameter(g, p));
    }
    struct pbtxt missing = {.name = "model_checkpoint_path", .line = 1};
    if (!has_checkpoint) TRY(set_checkpoint(g, &missing));
    TRY(find_tokenizer(g, root));
    if (idle && idle->value) TRY(set(g, idle, "max_sequence_idle_microseconds", idle->value));
    TRY(apply_policy(g, root));
    log_others(root);
    return 0;
}

int model_repository_apply(const char *dir, struct serve_config *c, struct err *err) {
    struct repository g = {.dir = dir, .config = c, .err = err};
    struct buf text;
    struct pbtxt *root = NULL;
    snprintf(g.path, sizeof g.path, "%.4000s/fastertransformer/config.pbtxt", dir);
    int rc = buf_read_file(&text, g.path, CONFIG_MAX_BYTES, err);
    if (rc == 0) rc = pbtxt_parse(&root, buf_z(&text), g.path, err);
    if (rc == 0) rc = apply_all(&g, root);
    pbtxt_free(root);
    buf_release(&text);
    return rc;
}
