// See choice.h.
#include "ws/hub/choice.h"
#include "base/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SINGLE "model.safetensors"
#define TAIL 20        // "-00001-of-00003.gguf"
#define SAID_BYTES 300 // of the names in a sentence
#define MAX_PARTS 2000 // of a model's weights
#define TEMPLATES "additional_chat_templates/"

// What Parley and Python's tools read beside the weights, in the root.
static const char *const text_files[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "20B_tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "sentencepiece.bpe.model",
    "spiece.model",
    "vocab.json",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "quantize_config.json",
    "quant_config.json",
    "hf_quant_config.json",
    "modules.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
    "suggestions.json",
};

static const struct json_limits index_limits = {HUB_INDEX_BYTES, 4, 1000000};

void hub_choice_release(struct hub_choice *c) {
    free(c->files);
    *c = (struct hub_choice){0};
}

static int choose(struct hub_choice *c, const struct hub_file *f, struct err *err) {
    if (c->n == MAX_PARTS)
        return err_set(err, E_LIMIT, "the model has more than %d files", MAX_PARTS);
    const struct hub_file **more = realloc(c->files, (c->n + 1) * sizeof *more);
    if (!more) return err_set(err, E_NOMEM, "no memory for a list of files");
    c->files = more;
    c->files[c->n++] = f;
    return 0;
}

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcasecmp(s + n - m, end) == 0;
}

// --- GGUF ---

// Whether the name ends as that of a part does.
static bool split_of(const char *path, int *part, int *parts) {
    char tail[32];
    size_t n = strlen(path);
    if (n <= TAIL || sscanf(path + n - TAIL, "-%5d-of-%5d.", part, parts) != 2) return false;
    if (*part < 1 || *parts < *part || *parts > MAX_PARTS) return false;
    snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", *part, *parts);
    return strcasecmp(tail, path + n - TAIL) == 0;
}

int hub_gguf_parts(const char *path) {
    int part, parts;
    if (!split_of(path, &part, &parts)) return 1;
    return part == 1 ? parts : 0;
}

void hub_gguf_part(const char *first, int part, int parts, char out[HUB_PATH_BYTES]) {
    size_t stem = strlen(first) - TAIL;
    snprintf(out, HUB_PATH_BYTES, "%.*s-%05d-of-%05d%s", (int)stem, first, part, parts,
             first + strlen(first) - 5);
}

// The name without folders, number of the part and suffix. False: no GGUF file of weights that one opens.
static bool stem_of(const char *path, char out[HUB_PATH_BYTES]) {
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    int part = 1, parts;
    bool split = split_of(base, &part, &parts);
    if (!ends_in(base, ".gguf") || part != 1) return false;
    if (strncasecmp(base, "mmproj", 6) == 0 || strcasestr(base, "imatrix")) return false;
    size_t n = strlen(base) - (split ? TAIL : 5);
    if (n == 0 || n >= HUB_PATH_BYTES) return false;
    memcpy(out, base, n);
    out[n] = '\0';
    return true;
}

// Where the name of a number format begins at the end of a stem: Q4_K_M, IQ4_XS, UD-Q4_K_XL, BF16, F16, MXFP4, Q8_0.
static const char *tag_in(const char *stem) {
    const char *at = NULL;
    for (const char *p = stem; *p; p++) {
        if (p > stem && !strchr("-._", p[-1])) continue;
        const char *q = p;
        if (strncasecmp(q, "UD-", 3) == 0) q += 3;
        bool quant = strncasecmp(q, "IQ", 2) == 0 || strncasecmp(q, "TQ", 2) == 0;
        quant = quant ? strchr("0123456789", q[2]) && q[2]
                      : (*q == 'q' || *q == 'Q') && q[1] && strchr("0123456789", q[1]);
        bool whole = strncasecmp(q, "F16", 3) == 0 || strncasecmp(q, "F32", 3) == 0 ||
                     strncasecmp(q, "BF16", 4) == 0 || strncasecmp(q, "MXFP4", 5) == 0 ||
                     strncasecmp(q, "NVFP4", 5) == 0;
        if ((quant || whole) && !at) at = p;
    }
    return at;
}

bool hub_gguf_tag(const char *path, char out[HUB_PATH_BYTES]) {
    char stem[HUB_PATH_BYTES];
    if (!stem_of(path, stem)) return false;
    const char *tag = tag_in(stem);
    snprintf(out, HUB_PATH_BYTES, "%s", tag ? tag : stem);
    return true;
}

// Whether the quant names the file: its path, its name, its stem or what ends the stem.
static bool matches(const char *path, const char *quant) {
    char stem[HUB_PATH_BYTES];
    if (!stem_of(path, stem)) return false;
    const char *slash = strrchr(path, '/');
    if (strcasecmp(path, quant) == 0 || strcasecmp(slash ? slash + 1 : path, quant) == 0)
        return true;
    size_t n = strlen(stem), m = strlen(quant);
    if (n < m || strcasecmp(stem + n - m, quant) != 0) return false;
    return n == m || strchr("-._", stem[n - m - 1]);
}

// "Q4_K_M, Q8_0, ...": the GGUF models that are there, or those that match. Where two have one tag, their names.
static void say_gguf(const struct hub_listing *l, const char *quant, char out[SAID_BYTES]) {
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < l->n; i++) {
        char tag[HUB_PATH_BYTES];
        const char *path = l->files[i].path;
        if (!hub_gguf_tag(path, tag) || (quant && !matches(path, quant))) continue;
        const char *said = quant ? path : tag;
        if (at + strlen(said) + 8 > SAID_BYTES) {
            snprintf(out + at, SAID_BYTES - at, ", ...");
            return;
        }
        at += (size_t)snprintf(out + at, SAID_BYTES - at, "%s%s", at ? ", " : "", said);
    }
}

static int choose_gguf(struct hub_choice *out, const struct hub_name *name,
                       const struct hub_listing *l, struct err *err) {
    const struct hub_file *found = NULL;
    char repo[HUB_NAME_BYTES], there[SAID_BYTES];
    int n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (matches(l->files[i].path, name->quant)) found = &l->files[i], n++;
    hub_name_repo(name, repo);
    if (n == 0) {
        say_gguf(l, NULL, there);
        return there[0] ? err_set(err, E_NOTFOUND, "%s has no GGUF file '%.60s'; it has %s", repo,
                                  name->quant, there)
                        : err_set(err, E_NOTFOUND, "%s has no GGUF files", repo);
    }
    if (n > 1) {
        say_gguf(l, name->quant, there);
        return err_set(err, E_INVAL, "%s has %d GGUF files for '%.60s': name one of %s", repo, n,
                       name->quant, there);
    }
    int parts = hub_gguf_parts(found->path);
    if (parts == 1) return choose(out, found, err);
    for (int i = 1; i <= parts; i++) {
        char path[HUB_PATH_BYTES];
        hub_gguf_part(found->path, i, parts, path);
        const struct hub_file *part = hub_listing_find(l, path);
        if (!part)
            return err_set(err, E_CORRUPT, "%s has no %.300s, a part of its model", repo, path);
        TRY(choose(out, part, err));
    }
    return 0;
}

// --- safetensors ---

static bool is_text_file(const char *path) {
    for (size_t i = 0; i < sizeof text_files / sizeof *text_files; i++)
        if (strcmp(path, text_files[i]) == 0) return true;
    return strncmp(path, TEMPLATES, sizeof TEMPLATES - 1) == 0 && ends_in(path, ".jinja") &&
           !strchr(path + sizeof TEMPLATES - 1, '/');
}

static bool has_tokenizer(const struct hub_listing *l) {
    return hub_listing_find(l, "tokenizer.json") || hub_listing_find(l, "tokenizer.model") ||
           hub_listing_find(l, "20B_tokenizer.json") || hub_listing_find(l, "spiece.model") ||
           hub_listing_find(l, "sentencepiece.bpe.model") ||
           (hub_listing_find(l, "vocab.json") && hub_listing_find(l, "merges.txt"));
}

static int no_model(const struct hub_name *name, const struct hub_listing *l, struct err *err) {
    char repo[HUB_NAME_BYTES], there[SAID_BYTES];
    hub_name_repo(name, repo);
    say_gguf(l, NULL, there);
    if (there[0])
        return err_set(err, E_NOTFOUND, "%s has GGUF files: say which, as in %s:QUANT; it has %s",
                       repo, repo, there);
    if (!hub_listing_find(l, "config.json"))
        return err_set(err, E_NOTFOUND,
                       "%s has no config.json: it is no model in Hugging Face's layout", repo);
    return err_set(err, E_NOTFOUND, "%s has neither " SINGLE " nor " HUB_INDEX "%s", repo,
                   hub_listing_find(l, "pytorch_model.bin") ||
                           hub_listing_find(l, "pytorch_model.bin.index.json")
                       ? ", only weights of PyTorch's format, which Parley does not load"
                       : "");
}

int hub_choose(struct hub_choice *out, const struct hub_name *name, enum hub_want want,
               const struct hub_listing *l, struct err *err) {
    char repo[HUB_NAME_BYTES];
    *out = (struct hub_choice){0};
    if (want == HUB_MODEL && name->quant[0]) return choose_gguf(out, name, l, err);
    if (want == HUB_TOKENIZER && !has_tokenizer(l))
        return err_set(err, E_NOTFOUND, "%s has no tokenizer", hub_name_repo(name, repo));
    const struct hub_file *index = hub_listing_find(l, HUB_INDEX);
    if (want == HUB_MODEL &&
        (!hub_listing_find(l, "config.json") || (!index && !hub_listing_find(l, SINGLE))))
        return no_model(name, l, err);
    for (size_t i = 0; i < l->n; i++)
        if (is_text_file(l->files[i].path)) TRY(choose(out, &l->files[i], err));
    return want == HUB_MODEL && !hub_listing_find(l, SINGLE) ? choose(out, index, err) : 0;
}

bool hub_choice_has_index(const struct hub_choice *c) {
    return c->n > 0 && strcmp(c->files[c->n - 1]->path, HUB_INDEX) == 0;
}

static bool is_chosen(const struct hub_choice *c, const struct hub_file *f) {
    for (size_t i = c->n; i-- > 0;)
        if (c->files[i] == f) return true;
    return false;
}

static int choose_shards(struct hub_choice *out, const cJSON *root, const struct hub_listing *l,
                         struct err *err) {
    const cJSON *map, *one;
    if (json_get_object(root, "weight_map", &map, err) != JSON_PRESENT || !map->child)
        return err_set(err, E_FORMAT, HUB_INDEX " has no weight_map");
    cJSON_ArrayForEach(one, map) {
        const char *path = cJSON_GetStringValue(one);
        if (!path || !hub_path_is_safe(path) || strchr(path, '/') || !ends_in(path, ".safetensors"))
            return err_set(err, E_DENIED,
                           HUB_INDEX " names '%.120s', which is no plain file of weights",
                           path ? path : "");
        const struct hub_file *f = hub_listing_find(l, path);
        if (!f)
            return err_set(err, E_CORRUPT, "the file %.300s, which " HUB_INDEX " names, is missing",
                           path);
        if (!is_chosen(out, f)) TRY(choose(out, f, err));
    }
    return 0;
}

int hub_choose_weights(struct hub_choice *out, const struct hub_name *name,
                       const struct hub_listing *l, const char *index, size_t len,
                       struct err *err) {
    struct err why = {0};
    if (name->quant[0]) return 0;
    if (!index) {
        const struct hub_file *single = hub_listing_find(l, SINGLE);
        return single ? choose(out, single, err) : no_model(name, l, err);
    }
    cJSON *root = json_parse(index, len, &index_limits, &why);
    if (!root) return err_set(err, why.code, HUB_INDEX ": %.300s", why.text);
    int rc = choose_shards(out, root, l, err);
    cJSON_Delete(root);
    return rc;
}
