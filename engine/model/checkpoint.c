// The tensors of a folder, whether in one file or in the shards of an index. See checkpoint.h.
//
// The index is untrusted: a shard is a plain file name, and a symbolic link of that name must stay
// inside the folder. Exception: Hugging Face's download cache, whose folders REPO/snapshots/REVISION
// hold only links to REPO/blobs.
#include "engine/model/checkpoint.h"
#include "base/json.h"
#include "base/path.h"
#include "engine/gguf/gguf_file_type.h"
#include "engine/model/ft_checkpoint.h"
#include "engine/model/ft_folder.h"
#include "engine/model/gguf_tensors.h"
#include "engine/model/packed_tensors.h"
#include "engine/model/synth_tensors.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define SINGLE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"
#define MAX_SHARDS 1024
static const struct json_limits index_limits = {64 << 20, 4, 1000000};

struct checkpoint {
    char *dir;
    struct safetensors **files; // (n_files)
    char **file_names;          // (n_files), without the folder
    size_t n_files;
    struct ft_checkpoint *ft;      // instead of files
    struct gguf_tensors *gguf;     // likewise
    struct synth_tensors *random;  // likewise
    struct model_config config;    // of random
    struct packed_tensors *packed; // matrices of few bits among the files' tensors, or NULL
    char packed_name[PACKED_NAME]; // what people call their format
    bool mixes_fp8;                // of 8-bit floats beside them, scales are PACKED_FP8_END
    const struct tensor **stored;  // of packed: the files' tensors
    const struct tensor **tensors; // (n), sorted by name
    size_t n;
};

// --- which files ---

static int no_weights(const char *dir, struct err *err) {
    if (path_holds(dir, "pytorch_model.bin", F_OK) ||
        path_holds(dir, "pytorch_model.bin.index.json", F_OK))
        return err_set(
            err, E_UNSUPPORTED,
            "%s holds pytorch_model.bin, which is a program to run and is not read: convert it "
            "with transformers: AutoModelForCausalLM.from_pretrained(DIR)"
            ".save_pretrained(DIR, safe_serialization=True)",
            dir);
    return err_set(err, E_NOTFOUND, "%s holds neither " SINGLE_NAME " nor " INDEX_NAME, dir);
}

static bool plain_name(const char *name) {
    size_t len = strlen(name);
    return len > 0 && len <= NAME_MAX && name[0] != '.' && !strchr(name, '/') &&
           !strchr(name, '\\');
}

static bool inside(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

// real_dir is REPO/snapshots/REVISION: writes REPO/blobs, else "".
static void hub_blobs(const char *real_dir, char out[PATH_MAX]) {
    out[0] = '\0';
    const char *revision = strrchr(real_dir, '/');
    const char *snapshots = revision ? memrchr(real_dir, '/', (size_t)(revision - real_dir)) : NULL;
    if (!snapshots || strncmp(snapshots, "/snapshots/", 11) != 0) return;
    snprintf(out, PATH_MAX, "%.*s/blobs", (int)(snapshots - real_dir), real_dir);
}

static int check_shard_place(const char *dir, const char *path, const char *name, struct err *err) {
    char real_dir[PATH_MAX], real[PATH_MAX], blobs[PATH_MAX];
    if (!realpath(dir, real_dir)) return err_errno(err, "cannot find %s", dir);
    if (!realpath(path, real))
        return err_errno(err, INDEX_NAME " names the shard '%s', cannot open %s", name, path);
    hub_blobs(real_dir, blobs);
    if (inside(real, real_dir) || (blobs[0] && inside(real, blobs))) return 0;
    return err_set(err, E_DENIED, "the shard %s is a link out of its folder", path);
}

// Opens DIR/name as the next file.
static int add_file(struct checkpoint *c, const char *name, bool is_shard, struct err *err) {
    char path[PATH_MAX];
    TRY(path_join(path, c->dir, name, err));
    if (is_shard) TRY(check_shard_place(c->dir, path, name, err));
    struct safetensors **files = realloc(c->files, (c->n_files + 1) * sizeof *files);
    if (files) c->files = files;
    char **names = realloc(c->file_names, (c->n_files + 1) * sizeof *names);
    if (names) c->file_names = names;
    char *copy = strdup(name);
    if (!files || !names || !copy) {
        free(copy);
        return err_set(err, E_NOMEM, "no memory to open %s", path);
    }
    int rc = safetensors_open(&c->files[c->n_files], path, err);
    if (rc < 0) {
        free(copy);
        return rc;
    }
    c->file_names[c->n_files++] = copy;
    return 0;
}

static bool have_file(const struct checkpoint *c, const char *name) {
    for (size_t i = c->n_files; i-- > 0;)
        if (strcmp(c->file_names[i], name) == 0) return true;
    return false;
}

// --- the table of tensors ---

static int compare_tensors(const void *a, const void *b) {
    return strcmp((*(const struct tensor *const *)a)->name,
                  (*(const struct tensor *const *)b)->name);
}

static int build_table(struct checkpoint *c, struct err *err) {
    size_t n = 0;
    for (size_t i = 0; i < c->n_files; i++) n += safetensors_count(c->files[i]);
    if (c->ft) n = ft_checkpoint_count(c->ft);
    if (c->gguf) n = gguf_tensors_count(c->gguf);
    if (c->random) n = c->random->n;
    c->tensors = calloc(n + 1, sizeof *c->tensors);
    if (!c->tensors) return err_set(err, E_NOMEM, "%s: no memory for %zu tensors", c->dir, n);
    for (size_t i = 0; i < c->n_files; i++)
        for (size_t k = 0; k < safetensors_count(c->files[i]); k++)
            c->tensors[c->n++] = safetensors_at(c->files[i], k);
    for (size_t i = 0; c->ft && i < n; i++) c->tensors[c->n++] = ft_checkpoint_at(c->ft, i);
    for (size_t i = 0; c->gguf && i < n; i++) c->tensors[c->n++] = gguf_tensors_at(c->gguf, i);
    for (size_t i = 0; c->random && i < n; i++) c->tensors[c->n++] = &c->random->tensors[i];
    qsort(c->tensors, c->n, sizeof *c->tensors, compare_tensors);
    for (size_t i = 1; i < c->n; i++)
        if (strcmp(c->tensors[i - 1]->name, c->tensors[i]->name) == 0)
            return err_set(err, E_FORMAT, "%s: the tensor '%s' is in two shards", c->dir,
                           c->tensors[i]->name);
    return 0;
}

static int read_stored(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                       struct err *err);

// Shows matrices of few bits as such, in place of their parts.
static int show_packed(struct checkpoint *c, struct err *err) {
    enum packed_format format;
    struct packed_reader reader = {read_stored, c};
    if (c->n_files == 0) return 0;
    TRY(packed_format_of(c->dir, &format, c->packed_name, err));
    c->mixes_fp8 = format != PACKED_NONE;
    if (format == PACKED_NONE) return 0;
    TRY(packed_tensors_open(&c->packed, format, c->tensors, c->n, reader, err));
    if (!c->packed) return 0;
    c->stored = c->tensors;
    c->n = packed_tensors_count(c->packed);
    c->tensors = calloc(c->n + 1, sizeof *c->tensors);
    if (!c->tensors) return err_set(err, E_NOMEM, "%s: no memory for %zu tensors", c->dir, c->n);
    for (size_t i = 0; i < c->n; i++) c->tensors[i] = packed_tensors_at(c->packed, i);
    qsort(c->tensors, c->n, sizeof *c->tensors, compare_tensors);
    return 0;
}

// --- the index ---

static int open_shards(struct checkpoint *c, const cJSON *map, struct err *err) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, map) {
        const char *name = entry->valuestring;
        if (!cJSON_IsString(entry) || !plain_name(name))
            return err_set(err, E_FORMAT,
                           "%s/" INDEX_NAME
                           ": the shard '%.100s' of '%.100s' is not a plain file name",
                           c->dir, cJSON_IsString(entry) ? name : "?", entry->string);
        if (have_file(c, name)) continue;
        if (c->n_files == MAX_SHARDS)
            return err_set(err, E_LIMIT, "%s/" INDEX_NAME " names more than %d shards", c->dir,
                           MAX_SHARDS);
        TRY(add_file(c, name, true, err));
    }
    return c->n_files > 0
               ? 0
               : err_set(err, E_FORMAT, "%s/" INDEX_NAME ": the weight_map is empty", c->dir);
}

static int check_shards(const struct checkpoint *c, const cJSON *map, struct err *err) {
    const cJSON *entry;
    cJSON_ArrayForEach(entry, map) {
        size_t i = 0;
        while (strcmp(c->file_names[i], entry->valuestring) != 0) i++;
        if (!safetensors_find(c->files[i], entry->string))
            return err_set(err, E_NOTFOUND,
                           "%s/%s does not hold the tensor '%.200s' that the index says", c->dir,
                           c->file_names[i], entry->string);
    }
    return 0;
}

static int open_index(struct checkpoint *c, struct err *err) {
    int rc;
    char path[PATH_MAX];
    const cJSON *map = NULL;
    int n = snprintf(path, sizeof path, "%s/" INDEX_NAME, c->dir);
    if (n < 0 || (size_t)n >= sizeof path) return err_set(err, E_LIMIT, "%.300s: too long", c->dir);
    struct err why = {0};
    cJSON *root = json_parse_file(path, &index_limits, &why);
    if (!root) return err_set(err, why.code, "%s", why.text);
    map = cJSON_GetObjectItemCaseSensitive(root, "weight_map");
    if (!cJSON_IsObject(map)) {
        rc = err_set(err, E_FORMAT, "%s has no weight_map", path);
        goto done;
    }
    TRY_GOTO(done, open_shards(c, map, err));
    rc = check_shards(c, map, err);
done:
    cJSON_Delete(root);
    return rc;
}

// --- random weights that are in no file ---

static int open_random(struct checkpoint *c, struct err *err) {
    static const struct json_limits limits = {1 << 16, 2, 16};
    char path[PATH_MAX];
    struct err why = {0};
    snprintf(path, sizeof path, "%s/" SYNTH_RECIPE_NAME, c->dir); // it exists, so it fits
    cJSON *root = json_parse_file(path, &limits, &why);
    if (!root) return err_set(err, why.code, "%s", why.text);
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(root, "seed");
    double value = cJSON_IsNumber(seed) ? seed->valuedouble : -1;
    cJSON_Delete(root);
    if (!(value >= 0 && value <= 9e15))
        return err_set(err, E_FORMAT, "%s: seed is not an integer from 0 to 9e15", path);
    snprintf(path, sizeof path, "%s/config.json", c->dir);
    TRY(model_config_load_file(&c->config, path, err));
    c->random = calloc(1, sizeof *c->random);
    if (!c->random) return err_set(err, E_NOMEM, "no memory to open %s", c->dir);
    return synth_tensors_list(c->random, &c->config, c->config.dtype, (uint64_t)value, err);
}

// --- public ---

int checkpoint_open(struct checkpoint **out, const char *model_dir, struct err *err) {
    int rc;
    char ft_dir[PATH_MAX];
    bool is_ft;
    struct checkpoint *c = calloc(1, sizeof *c);
    if (c) c->dir = strdup(model_dir);
    if (!c || !c->dir) {
        rc = err_set(err, E_NOMEM, "no memory to open %s", model_dir);
        goto fail;
    }
    TRY_GOTO(fail, ft_folder_find(ft_dir, model_dir, &is_ft, err));
    if (gguf_is(model_dir))
        TRY_GOTO(fail, gguf_tensors_open(&c->gguf, model_dir, err));
    else if (is_ft)
        TRY_GOTO(fail, ft_checkpoint_open(&c->ft, ft_dir, err));
    else if (path_holds(model_dir, SINGLE_NAME, F_OK))
        TRY_GOTO(fail, add_file(c, SINGLE_NAME, false, err));
    else if (path_holds(model_dir, INDEX_NAME, F_OK))
        TRY_GOTO(fail, open_index(c, err));
    else if (path_holds(model_dir, SYNTH_RECIPE_NAME, F_OK))
        TRY_GOTO(fail, open_random(c, err));
    else
        TRY_GOTO(fail, no_weights(model_dir, err));
    TRY_GOTO(fail, build_table(c, err));
    TRY_GOTO(fail, show_packed(c, err));
    *out = c;
    return 0;
fail:
    checkpoint_close(c);
    return rc;
}

void checkpoint_close(struct checkpoint *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n_files; i++) {
        safetensors_close(c->files[i]);
        free(c->file_names[i]);
    }
    ft_checkpoint_close(c->ft);
    gguf_tensors_close(c->gguf);
    packed_tensors_close(c->packed);
    free(c->stored);
    if (c->random) synth_tensors_free(c->random);
    free(c->random);
    free(c->files);
    free(c->file_names);
    free(c->tensors);
    free(c->dir);
    free(c);
}

static const struct tensor **find_slot(const struct checkpoint *c, const char *name) {
    struct tensor key = {.name = name};
    const struct tensor *p = &key;
    return bsearch(&p, c->tensors, c->n, sizeof *c->tensors, compare_tensors);
}

static const struct tensor *find_exact(const struct checkpoint *c, const char *name) {
    const struct tensor **slot = find_slot(c, name);
    return slot ? *slot : NULL;
}

const struct tensor *checkpoint_find(const struct checkpoint *c, const char *name) {
    static const char *const prefixes[] = {"model.", "transformer.", "gpt_neox."};
    // As models that also see name their text: "model." and these in place of it, the head behind them.
    static const char *const texts[] = {"model.language_model.", "language_model.model.",
                                        "language_model."};
    const struct tensor *t = find_exact(c, name);
    for (size_t i = 0; i < sizeof texts / sizeof *texts && !t; i++) {
        char nested[512];
        bool inner = strncmp(name, "model.", 6) == 0;
        if (inner == (i == 2)) continue;
        snprintf(nested, sizeof nested, "%s%s", texts[i], inner ? name + 6 : name);
        t = find_exact(c, nested);
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes && !t; i++) {
        size_t len = strlen(prefixes[i]);
        char longer[512];
        if (strncmp(name, prefixes[i], len) == 0) t = find_exact(c, name + len);
        if (!t &&
            (size_t)snprintf(longer, sizeof longer, "%s%s", prefixes[i], name) < sizeof longer)
            t = find_exact(c, longer);
    }
    return t;
}

size_t checkpoint_count(const struct checkpoint *c) {
    return c->n;
}

const struct tensor *checkpoint_at(const struct checkpoint *c, size_t i) {
    return c->tensors[i];
}

size_t checkpoint_index(const struct checkpoint *c, const struct tensor *t) {
    return (size_t)(find_slot(c, t->name) - c->tensors);
}

static const struct safetensors *file_of(const struct checkpoint *c, const struct tensor *t) {
    for (size_t i = 0; i < c->n_files; i++)
        if (safetensors_find(c->files[i], t->name) == t) return c->files[i];
    return NULL;
}

void checkpoint_forget(const struct checkpoint *c, const struct tensor *t) {
    const struct safetensors *f = file_of(c, t);
    if (f) safetensors_forget(f, t);
}

static int read_stored(const void *ctx, const struct tensor *t, size_t offset, void *out, size_t n,
                       struct err *err) {
    const struct safetensors *f = file_of(ctx, t);
    if (!f) return err_set(err, E_INTERNAL, "the tensor '%s' is not of this checkpoint", t->name);
    return safetensors_read(f, t, offset, out, n, err);
}

int checkpoint_read(const struct checkpoint *c, const struct tensor *t, size_t offset, void *out,
                    size_t n, struct err *err) {
    if (c->ft) return ft_checkpoint_read(c->ft, t, offset, out, n, err);
    if (c->gguf) return gguf_tensors_read(c->gguf, t, offset, out, n, err);
    if (c->random) return synth_tensors_read(c->random, t, offset, out, n), 0;
    if (c->packed && packed_tensors_has(c->packed, t))
        return packed_tensors_read(c->packed, t, offset, out, n, err);
    return read_stored(c, t, offset, out, n, err);
}

// --- matrices of few bits as codes and scales ---

struct checkpoint_rows {
    const struct checkpoint *c;
    const struct tensor *t;
    struct packed_rows *packed; // or NULL: of the GGUF file
};

bool checkpoint_groups(const struct checkpoint *c, const struct tensor *t,
                       struct group_format *out) {
    if (c->gguf) return gguf_tensors_groups(c->gguf, t, out);
    return c->packed && packed_tensors_has(c->packed, t) &&
           packed_tensors_groups(c->packed, t, out);
}

int checkpoint_rows_open(struct checkpoint_rows **out, const struct checkpoint *c,
                         const struct tensor *t, int64_t first, int64_t count, struct err *err) {
    struct checkpoint_rows *rows = calloc(1, sizeof *rows);
    *out = rows;
    if (!rows) return err_set(err, E_NOMEM, "no memory to read '%s'", t->name);
    *rows = (struct checkpoint_rows){.c = c, .t = t};
    int rc = c->gguf ? 0 : packed_tensors_rows_open(&rows->packed, c->packed, t, first, count, err);
    if (rc == 0) return 0;
    free(rows);
    *out = NULL;
    return rc;
}

void checkpoint_rows_close(struct checkpoint_rows *rows) {
    if (!rows) return;
    packed_tensors_rows_close(rows->packed);
    free(rows);
}

int checkpoint_rows_read(const struct checkpoint_rows *rows, int64_t row, int64_t first, int64_t n,
                         struct group_row *out, struct err *err) {
    if (!rows->packed)
        return gguf_tensors_groups_row(rows->c->gguf, rows->t, row, first, n, out, err);
    packed_tensors_row(rows->packed, row, first, n, out);
    return 0;
}

int checkpoint_populate(const struct checkpoint *c, const struct tensor *t, size_t offset, size_t n,
                        struct err *err) {
    const struct safetensors *f = file_of(c, t);
    if (!f) return err_set(err, E_INTERNAL, "the tensor '%s' has no mapping", t->name);
    return safetensors_populate(f, t, offset, n, err);
}

int checkpoint_check_unchanged(const struct checkpoint *c, struct err *err) {
    if (c->ft) return ft_checkpoint_check_unchanged(c->ft, err);
    if (c->gguf) return gguf_check_unchanged(gguf_tensors_file(c->gguf), err);
    for (size_t i = 0; i < c->n_files; i++) TRY(safetensors_check_unchanged(c->files[i], err));
    return 0;
}

const char *checkpoint_fp8_scale(const struct checkpoint *c) {
    return c->mixes_fp8 ? "weight" PACKED_FP8_END : NULL;
}

const char *checkpoint_few_bits(const struct checkpoint *c) {
    struct group_format f;
    bool few = false;
    if (c->mixes_fp8) return c->packed_name[0] ? c->packed_name : NULL;
    for (size_t i = 0; c->gguf && i < c->n && !few; i++)
        few = checkpoint_groups(c, c->tensors[i], &f);
    return few ? gguf_file_type(gguf_tensors_file(c->gguf)) : NULL;
}

int32_t checkpoint_ft_ranks(const struct checkpoint *c) {
    return c->ft ? ft_checkpoint_ranks(c->ft) : 0;
}
