// See ft_checkpoint.h. ft_read.c reads the files and merges the ranks' pieces.
#include "engine/model/ft_checkpoint.h"
#include "base/log.h"
#include "engine/dist/split.h"
#include "engine/model/ft_files.h"
#include "engine/model/ft_folder.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Rows past the vocabulary are a padding, not another vocabulary: Megatron pads to a multiple of
// 128 for each of its ranks.
#define MAX_PADDING_ROWS 8192

// --- how many ranks ---

static bool has_rank(const struct ft_files *f, int32_t rank) {
    char path[PATH_MAX];
    const struct ft_array qkv = {
        .split = true, .role = FT_QKV, .name = "model.layers.0.attention.query_key_value.weight"};
    return ft_files_path(f, path, &qkv, rank, NULL) == 0 && access(path, F_OK) == 0;
}

static int find_ranks(struct ft_checkpoint *c, struct err *err) {
    int32_t said = c->config.n_ranks, named = ft_folder_ranks(c->files.dir), n = 0;
    if (said && named && said != named)
        return err_set(err, E_FORMAT,
                       "%s/config.ini: 'tensor_para_size' is %d in a folder called %d-gpu",
                       c->files.dir, said, named);
    n = said ? said : named;
    while (n == 0 || (!said && !named && n < FT_MAX_RANKS && has_rank(&c->files, n))) n++;
    if (has_rank(&c->files, n))
        return err_set(err, E_FORMAT,
                       "%s holds files of more than %d ranks: rank %d of layer 0 is there too",
                       c->files.dir, n, n);
    // FasterTransformer's ranks each add their biases, and converters divide them by the number of ranks, some for
    // layers that add theirs only once: the values that are meant cannot be told.
    if (n > 1 && strcmp(c->config.model.family, "gpt_neox") == 0)
        return err_set(err, E_UNSUPPORTED,
                       "%s: GPT-NeoX of %d ranks is not read, because its biases are divided among "
                       "them; convert the model for one",
                       c->files.dir, n);
    c->files.n_ranks = n;
    const struct model_config *m = &c->config.model;
    const struct split ranks = {.tp_size = n, .pp_size = 1};
    struct err why = {0};
    int rc = split_check(&ranks, m->n_layers, m->kinds[0].attention.n_heads,
                         m->kinds[0].attention.n_kv_heads, m->kinds[0].feed.width, &why);
    return rc < 0 ? err_set(err, E_FORMAT, "%s: %s", c->files.dir, why.text) : 0;
}

// --- the files ---

static bool is_padded(const struct ft_array *a, int64_t has, int64_t wants, size_t value_bytes) {
    int64_t row = a->shape[1] * (int64_t)value_bytes, rows = row ? (has - wants) / row : 0;
    if ((a->role != FT_EMBED && a->role != FT_HEAD) || a->bias) return false;
    return has > wants && (has - wants) % row == 0 && rows < MAX_PADDING_ROWS && rows < a->shape[0];
}

static int check_size(const struct ft_checkpoint *c, const char *path, const struct ft_array *a,
                      int64_t has, struct err *err) {
    const struct ft_config *config = &c->config;
    size_t size = dtype_size(config->model.dtype);
    int64_t wants = ft_files_piece(&c->files, a) * a->lines * (int64_t)size;
    bool may_pad = !(a->role == FT_HEAD && config->head_transposed);
    if (has == wants || (may_pad && is_padded(a, has, wants, size))) return 0;
    char shape[64];
    snprintf(shape, sizeof shape, a->n_dims == 2 ? "%lld x %lld" : "%lld", (long long)a->shape[0],
             (long long)a->shape[1]);
    return err_set(err, E_FORMAT, "%s has %lld bytes; by config.ini it must have %lld (%s of %s%s)",
                   path, (long long)has, (long long)wants, shape,
                   ft_dtype_name(config->model.dtype),
                   a->split && c->files.n_ranks > 1 ? ", a rank's part" : "");
}

static int add_array(void *ctx, const struct ft_array *a, struct err *err) {
    struct ft_checkpoint *c = ctx;
    if (c->n == c->cap) {
        size_t cap = c->cap ? 2 * c->cap : 64;
        struct ft_entry *grown = realloc(c->entries, cap * sizeof *grown);
        if (!grown) return err_set(err, E_NOMEM, "%s: no memory for its files", c->files.dir);
        c->entries = grown;
        c->cap = cap;
    }
    struct ft_entry *e = &c->entries[c->n];
    int32_t n = a->split ? c->files.n_ranks : 1;
    *e = (struct ft_entry){.array = *a, .first_file = c->files.n};
    e->tensor = (struct tensor){.dtype = c->config.model.dtype, .n_dims = a->n_dims};
    e->tensor.bytes = (size_t)(a->lines * a->width) * dtype_size(e->tensor.dtype);
    for (int d = 0; d < a->n_dims; d++) e->tensor.shape[d] = a->shape[d];
    for (int32_t rank = 0; rank < n; rank++) {
        char path[PATH_MAX];
        int64_t size;
        TRY(ft_files_path(&c->files, path, a, rank, err));
        TRY(ft_files_add(&c->files, path, &size, err));
        TRY(check_size(c, path, a, size, err));
    }
    c->n++;
    return 0;
}

static int open_folder(struct ft_checkpoint *c, struct err *err) {
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/config.ini", c->files.dir) >= sizeof path)
        return err_set(err, E_LIMIT, "the path %.300s... is too long", c->files.dir);
    TRY(ft_config_load(&c->config, path, err));
    TRY(find_ranks(c, err));
    // GPT-J's head is always a file of its own.
    struct ft_array head = {.role = FT_HEAD, .name = "model.lm_head.weight"};
    TRY(ft_files_path(&c->files, path, &head, 0, err));
    c->has_head = !c->config.model.tied_head || access(path, F_OK) == 0;
    TRY(ft_layout_walk(&c->config.model, c->has_head, add_array, c, err));
    for (size_t i = 0; i < c->n; i++) c->entries[i].tensor.name = c->entries[i].array.name;
    return 0;
}

int ft_checkpoint_open(struct ft_checkpoint **out, const char *ft_dir, struct err *err) {
    int rc;
    struct ft_checkpoint *c = calloc(1, sizeof *c);
    if (c) c->files.dir = strdup(ft_dir);
    if (!c || !c->files.dir) {
        rc = err_set(err, E_NOMEM, "no memory to open %s", ft_dir);
        goto fail;
    }
    TRY_GOTO(fail, open_folder(c, err));
    *out = c;
    return 0;
fail:
    ft_checkpoint_close(c);
    return rc;
}

void ft_checkpoint_close(struct ft_checkpoint *c) {
    if (!c) return;
    ft_files_release(&c->files);
    free(c->entries);
    free(c);
}

int32_t ft_checkpoint_ranks(const struct ft_checkpoint *c) {
    return c->files.n_ranks;
}

size_t ft_checkpoint_count(const struct ft_checkpoint *c) {
    return c->n;
}

const struct tensor *ft_checkpoint_at(const struct ft_checkpoint *c, size_t i) {
    return &c->entries[i].tensor;
}

int ft_checkpoint_check_unchanged(const struct ft_checkpoint *c, struct err *err) {
    char path[PATH_MAX];
    for (size_t i = 0; i < c->n; i++) {
        const struct ft_entry *e = &c->entries[i];
        for (int32_t rank = 0; rank < (e->array.split ? c->files.n_ranks : 1); rank++) {
            TRY(ft_files_path(&c->files, path, &e->array, rank, err));
            TRY(ft_files_check(&c->files, e->first_file + (size_t)rank, path, err));
        }
    }
    return 0;
}

// --- unused files ---

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// "model.layers.0.mlp.dense_4h_to_h.weight.1.bin" to the tensor's name. False: not an array's file.
// False for a file that is none, and for tables of prompt learning, which ft_prompt.c reads.
static bool tensor_of_file(char out[NAME_MAX + 16], const char *file) {
    static const char *const tables[] = {"model.prompt_table.", "model.prefix_prompt."};
    size_t len = strlen(file);
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (strncmp(file, tables[i], strlen(tables[i])) == 0) return false;
    if (len < 5 || strcmp(file + len - 4, ".bin") != 0) return false;
    snprintf(out, NAME_MAX + 16, "%.*s", (int)len - 4, file);
    char *dot = strrchr(out, '.');
    if (dot && dot[1] && strspn(dot + 1, "0123456789") == strlen(dot + 1)) *dot = '\0';
    dot = strrchr(out, '.');
    if (!dot || (strcmp(dot, ".weight") != 0 && strcmp(dot, ".bias") != 0)) strcat(out, ".weight");
    return true;
}

static void report_files(const struct ft_checkpoint *c) {
    size_t n = 0;
    char name[NAME_MAX + 16], first[NAME_MAX + 1] = "", quoted[TENSOR_NAME_MAX];
    const char *key = name;
    const char **names = calloc(c->n + 1, sizeof *names);
    DIR *d = names ? opendir(c->files.dir) : NULL;
    for (size_t i = 0; names && i < c->n; i++) names[i] = c->entries[i].array.name;
    const bool sums = c->config.model.kinds[0].parallel && !c->config.model.kinds[0].shared_norm;
    if (names) qsort(names, c->n, sizeof *names, compare_names);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!tensor_of_file(name, e->d_name)) continue;
        // The sum's own name, and the biases that the converter leaves beside it.
        if (sums &&
            (strstr(name, ".mlp.attention.bias.sum") || strstr(name, ".attention.dense.bias")))
            continue;
        if (bsearch(&key, names, c->n, sizeof *names, compare_names)) continue;
        if (n++ == 0 || strcmp(e->d_name, first) < 0) strcpy(first, e->d_name);
    }
    if (n > 0)
        log_warn("model.unused_files", "count=%zu first=%s", n,
                 log_quote(quoted, sizeof quoted, first));
    if (d) closedir(d);
    free(names);
}

static void report_unused(const struct ft_checkpoint *c) {
    char quoted[TENSOR_NAME_MAX];
    if (c->config.n_unused > 0)
        log_warn("model.unused_keys", "count=%zu first=%s", c->config.n_unused,
                 log_quote(quoted, sizeof quoted, c->config.unused));
    report_files(c);
}

int ft_model_config_load(struct model_config *out, const char *ft_dir, struct err *err) {
    struct ft_checkpoint *c = NULL;
    TRY(ft_checkpoint_open(&c, ft_dir, err));
    *out = c->config.model;
    int rc = ft_checkpoint_head_is_embed(c, &out->tied_head, err);
    if (rc == 0) report_unused(c);
    ft_checkpoint_close(c);
    return rc;
}
