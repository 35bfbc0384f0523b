// Random checkpoints: lists the shape's tensors, assigns them to shards, and writes their values while
// drawing them. See synth.h.
#include "engine/model/synth.h"
#include "base/json.h"
#include "base/path.h"
#include "engine/model/synth_shapes.h"
#include "engine/model/synth_tensors.h"
#include "engine/model/synth_values.h"
#include "engine/model/text_files.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifndef SYNTH_SHARD_BYTES // tests use small shards
#define SYNTH_SHARD_BYTES ((int64_t)4 << 30)
#endif
#define BLOCK_BYTES ((size_t)1 << 20)
#define MAX_SHARDS 99999

struct plan {
    const struct synth_options *options;
    struct model_config config;
    struct buf config_json;
    enum dtype dtype;
    struct synth_tensors all;
    int *shards; // of each tensor, rising
    int n_shards;
    int64_t done;
    void *block; // (BLOCK_BYTES)
};

// A shard takes tensors until the next one would make it too large.
static int deal_shards(struct plan *p, struct err *err) {
    int64_t filled = 0;
    p->shards = calloc(p->all.n, sizeof *p->shards);
    p->block = malloc(BLOCK_BYTES);
    if (!p->shards || !p->block) return err_set(err, E_NOMEM, "no memory for the list of shards");
    p->n_shards = 1;
    for (size_t i = 0; i < p->all.n; i++) {
        if (filled > 0 && filled + (int64_t)p->all.tensors[i].bytes > SYNTH_SHARD_BYTES) {
            p->n_shards++;
            filled = 0;
        }
        p->shards[i] = p->n_shards - 1;
        filled += (int64_t)p->all.tensors[i].bytes;
    }
    return p->n_shards <= MAX_SHARDS ? 0 : err_set(err, E_LIMIT, "%d shards", p->n_shards);
}

// --- the configuration ---

static const char *torch_name(enum dtype dtype) {
    return dtype == DTYPE_F32 ? "float32" : dtype == DTYPE_F16 ? "float16" : "bfloat16";
}

static int choose_dtype(enum dtype *dtype, const char *wanted, struct err *err) {
    if (!wanted) return 0;
    if (dtype_parse(wanted, dtype) < 0 ||
        (*dtype != DTYPE_F32 && *dtype != DTYPE_F16 && *dtype != DTYPE_BF16))
        return err_set(err, E_INVAL, "dtype '%.40s' must be f32, f16 or bf16", wanted);
    return 0;
}

static int read_named(struct plan *p, struct err *err) {
    const struct synth_shape *s = synth_shape_find(p->options->like);
    if (!s)
        return err_set(err, E_NOTFOUND, "no shape is called '%.60s'; known are %s",
                       p->options->like, synth_names());
    p->dtype = DTYPE_BF16;
    TRY(choose_dtype(&p->dtype, p->options->dtype, err));
    synth_shape_config(s, torch_name(p->dtype), &p->config_json);
    return 0;
}

// The text of config_path with another dtype in it.
static int read_given(struct plan *p, struct err *err) {
    struct err why = {0};
    TRY(model_config_load_file(&p->config, p->options->config_path, err));
    p->dtype = p->config.dtype;
    TRY(choose_dtype(&p->dtype, p->options->dtype, err));
    cJSON *json = json_parse_file(p->options->config_path, &json_limits_message, &why);
    if (!json) return err_set(err, why.code, "%s", why.text);
    cJSON_DeleteItemFromObjectCaseSensitive(json, "dtype");
    cJSON_DeleteItemFromObjectCaseSensitive(json, "torch_dtype");
    cJSON_AddStringToObject(json, "torch_dtype", torch_name(p->dtype));
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    if (!text) return err_set(err, E_NOMEM, "no memory for a configuration");
    buf_addz(&p->config_json, text);
    cJSON_free(text);
    return 0;
}

static int write_text(const char *dir, const char *name, const struct buf *text, struct err *err) {
    char path[PATH_MAX];
    TRY(path_join(path, dir, name, err));
    if (text->error < 0) return err_set(err, text->error, "no memory for %s", path);
    FILE *f = fopen(path, "wbe");
    if (!f) return err_errno(err, "cannot create %s", path);
    size_t put = fwrite(text->data, 1, text->len, f);
    if (fclose(f) != 0 || put != text->len) return err_errno(err, "cannot write %s", path);
    return 0;
}

// config.json is written first and read back, so that the listed tensors are those that a loader
// expects.
static int write_config(struct plan *p, struct err *err) {
    char path[PATH_MAX];
    const char *dir = p->options->out_dir;
    TRY(write_text(dir, "config.json", &p->config_json, err));
    TRY(path_join(path, dir, "config.json", err));
    TRY(model_config_load_file(&p->config, path, err));
    return synth_tensors_list(&p->all, &p->config, p->dtype, p->options->seed, err);
}

static int write_generation_config(const struct plan *p, struct err *err) {
    struct buf text;
    struct json_writer w;
    buf_init(&text, 4096);
    json_writer_init(&w, &text);
    json_open(&w, NULL, '{');
    if (p->config.bos_id >= 0) json_put_int(&w, "bos_token_id", p->config.bos_id);
    json_put_ids(&w, "eos_token_id", p->config.eos_ids, (size_t)p->config.n_eos);
    json_close(&w, '}');
    int rc = write_text(p->options->out_dir, "generation_config.json", &text, err);
    buf_release(&text);
    return rc;
}

// --- the folder ---

static int make_folder(const char *dir, struct err *err) {
    static const char *const taken[] = {"config.json", "model.safetensors",
                                        "model.safetensors.index.json", SYNTH_RECIPE_NAME};
    char path[PATH_MAX];
    if (mkdir(dir, 0777) < 0 && errno != EEXIST) return err_errno(err, "cannot create %s", dir);
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        TRY(path_join(path, dir, taken[i], err));
        if (access(path, F_OK) == 0)
            return err_set(err, E_EXISTS, "%s exists already and is not overwritten", path);
    }
    return 0;
}

static int check_space(const struct plan *p, struct err *err) {
    struct statvfs s;
    if (statvfs(p->options->out_dir, &s) < 0)
        return err_errno(err, "cannot examine %s", p->options->out_dir);
    uint64_t room = (uint64_t)s.f_bavail * s.f_frsize;
    if (room >= (uint64_t)p->all.total) return 0;
    return err_set(err, E_FULL, "%s has room for %llu MiB; the checkpoint takes %lld",
                   p->options->out_dir, (unsigned long long)(room >> 20),
                   (long long)(p->all.total >> 20) + 1);
}

static int copy_tokenizer(const char *from, const char *to, struct err *err) {
    int n;
    char dir[PATH_MAX];
    TRY(text_files_dir(dir, from, NULL, err));
    TRY(text_files_copy(dir, to, &n, err));
    return n > 0 ? 0 : err_set(err, E_NOTFOUND, "%s holds no tokenizer", from);
}

// --- the weights ---

static void shard_name(const struct plan *p, int shard, char out[64]) {
    if (p->n_shards == 1)
        snprintf(out, 64, "model.safetensors");
    else
        snprintf(out, 64, "model-%05d-of-%05d.safetensors", shard + 1, p->n_shards);
}

static int write_tensor(struct plan *p, struct safetensors_writer *w, size_t i, struct err *err) {
    const struct tensor *t = &p->all.tensors[i];
    struct synth_values v;
    size_t size = dtype_size(t->dtype), n = t->bytes / size, each = BLOCK_BYTES / size;
    synth_values_init(&v, p->options->seed, t->name, t->dtype, p->all.means[i],
                      p->all.deviations[i]);
    for (size_t first = 0; first < n; first += each) {
        size_t take = n - first < each ? n - first : each;
        synth_values_fill(&v, p->block, first, take);
        TRY(safetensors_write(w, p->block, take * size, err));
        p->done += (int64_t)(take * size);
        if (p->options->progress)
            p->options->progress(p->options->progress_ctx, p->done, p->all.total);
    }
    return 0;
}

static int write_shard(struct plan *p, int shard, size_t *next, struct err *err) {
    char name[64], path[PATH_MAX];
    struct safetensors_writer *w = NULL;
    size_t first = *next, last = first;
    while (last < p->all.n && p->shards[last] == shard) last++;
    shard_name(p, shard, name);
    TRY(path_join(path, p->options->out_dir, name, err));
    TRY(safetensors_create(&w, path, p->all.tensors + first, last - first, err));
    for (size_t i = first; i < last; i++) {
        int rc = write_tensor(p, w, i, err);
        if (rc == 0) continue;
        safetensors_abort(w);
        return rc;
    }
    *next = last;
    return safetensors_finish(w, err);
}

static int write_index(const struct plan *p, struct err *err) {
    struct buf text;
    struct json_writer w;
    char name[64];
    buf_init(&text, (size_t)64 << 20);
    json_writer_init(&w, &text);
    json_open(&w, NULL, '{');
    json_open(&w, "metadata", '{');
    json_put_int(&w, "total_size", p->all.total);
    json_close(&w, '}');
    json_open(&w, "weight_map", '{');
    for (size_t i = 0; i < p->all.n; i++) {
        shard_name(p, p->shards[i], name);
        json_put_string(&w, p->all.tensors[i].name, name);
    }
    json_close(&w, '}');
    json_close(&w, '}');
    int rc = write_text(p->options->out_dir, "model.safetensors.index.json", &text, err);
    buf_release(&text);
    return rc;
}

static int write_weights(struct plan *p, struct err *err) {
    size_t next = 0;
    TRY(deal_shards(p, err));
    TRY(check_space(p, err));
    for (int shard = 0; shard < p->n_shards; shard++) TRY(write_shard(p, shard, &next, err));
    return p->n_shards > 1 ? write_index(p, err) : 0;
}

// Loaders make the values themselves (checkpoint.c).
static int write_recipe(const struct plan *p, struct err *err) {
    struct buf text;
    buf_init(&text, 64);
    buf_addf(&text, "{\"seed\":%llu}\n", (unsigned long long)p->options->seed);
    int rc = write_text(p->options->out_dir, SYNTH_RECIPE_NAME, &text, err);
    buf_release(&text);
    return rc;
}

void synth_remove(const char *out_dir) {
    char path[PATH_MAX];
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "model.safetensors.index.json", SYNTH_RECIPE_NAME};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (path_join(path, out_dir, names[i], NULL) == 0) unlink(path);
}

// Removes an incomplete checkpoint, which a reader could take for a complete one.
static void remove_files(const struct plan *p) {
    char name[64], path[PATH_MAX];
    for (int shard = 0; shard < p->n_shards; shard++) {
        shard_name(p, shard, name);
        if (path_join(path, p->options->out_dir, name, NULL) == 0) unlink(path);
    }
    synth_remove(p->options->out_dir);
}

static int write_all(struct plan *p, struct err *err) {
    TRY(write_config(p, err));
    TRY(write_generation_config(p, err));
    if (p->options->tokenizer_from)
        TRY(copy_tokenizer(p->options->tokenizer_from, p->options->out_dir, err));
    return p->options->no_weights ? write_recipe(p, err) : write_weights(p, err);
}

int synth_write(const struct synth_options *o, struct err *err) {
    if (!o->like == !o->config_path)
        return err_set(err, E_INVAL, "give either a named shape or a configuration");
    struct plan p = {.options = o};
    buf_init(&p.config_json, (size_t)8 << 20);
    int rc = o->like ? read_named(&p, err) : read_given(&p, err);
    if (rc == 0) rc = make_folder(o->out_dir, err);
    if (rc == 0) {
        rc = write_all(&p, err);
        if (rc < 0) remove_files(&p);
    }
    synth_tensors_free(&p.all);
    free(p.shards);
    free(p.block);
    buf_release(&p.config_json);
    return rc;
}
