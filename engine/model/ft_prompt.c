// See ft_prompt.h.
#include "engine/model/ft_prompt.h"

#include "base/buf.h"
#include "engine/model/ft_folder.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct table_file {
    char path[PATH_MAX];
    struct buf bytes;
    enum dtype dtype;
};

static int name_file(struct table_file *f, const char *dir, const struct ft_task *task,
                     int32_t rank, struct err *err) {
    int n = task->type == FT_PROMPT_PREFIX
                ? snprintf(f->path, sizeof f->path, "%s/model.prefix_prompt.%s.weight.%d.bin", dir,
                           task->name, rank)
                : snprintf(f->path, sizeof f->path, "%s/model.prompt_table.%s.weight.bin", dir,
                           task->name);
    if (n < (int)sizeof f->path) return 0;
    return err_set(err, E_LIMIT, "the path %.300s... is too long", dir);
}

static int read_file(struct table_file *f, int64_t n_values, struct err *err) {
    size_t want = (size_t)n_values * dtype_size(f->dtype);
    int rc = buf_read_file(&f->bytes, f->path, want, err);
    if (rc == E_LIMIT || (rc == 0 && f->bytes.len != want))
        return err_set(err, E_FORMAT, "%s: by config.ini it must have %zu bytes (%lld of %s)%s",
                       f->path, want, (long long)n_values, ft_dtype_name(f->dtype),
                       rc == 0 ? ", and is shorter" : ", and is longer");
    return rc;
}

static float value_at(const struct table_file *f, int64_t i) {
    uint16_t half;
    float v;
    if (f->dtype == DTYPE_F32) {
        memcpy(&v, f->bytes.data + i * 4, sizeof v);
        return v;
    }
    memcpy(&half, f->bytes.data + i * 2, sizeof half);
    return f->dtype == DTYPE_F16 ? f16_to_f32(half) : bf16_to_f32(half);
}

static int read_rows(struct table_file *f, const char *dir, const struct ft_task *task,
                     int64_t width, float *out, struct err *err) {
    int64_t n = width * task->length;
    TRY(name_file(f, dir, task, 0, err));
    int rc = read_file(f, n, err);
    for (int64_t i = 0; rc == 0 && i < n; i++) out[i] = value_at(f, i);
    buf_release(&f->bytes);
    return rc;
}

// (layers, 2, heads, rows, head_dim) of a rank into (rows, layers, 2, all heads, head_dim).
static void place_rank(const struct table_file *f, const struct model_config *m,
                       const struct ft_task *task, int32_t rank, int64_t n_heads, float *out) {
    int64_t at = 0, row_width = (int64_t)m->n_layers * 2 * m->kinds[0].attention.n_kv_heads *
                                m->kinds[0].attention.head_dim;
    for (int64_t part = 0; part < (int64_t)m->n_layers * 2; part++)
        for (int64_t h = 0; h < n_heads; h++)
            for (int64_t r = 0; r < task->length; r++) {
                float *to = out + r * row_width +
                            (part * m->kinds[0].attention.n_kv_heads + rank * n_heads + h) *
                                m->kinds[0].attention.head_dim;
                for (int64_t i = 0; i < m->kinds[0].attention.head_dim; i++)
                    to[i] = value_at(f, at++);
            }
}

static int32_t count_ranks(struct table_file *f, const struct ft_config *c, const char *dir,
                           const struct ft_task *task) {
    int32_t n = c->n_ranks ? c->n_ranks : ft_folder_ranks(dir);
    while (n == 0 || (!c->n_ranks && !ft_folder_ranks(dir) && n < FT_MAX_RANKS &&
                      name_file(f, dir, task, n, NULL) == 0 && access(f->path, F_OK) == 0))
        n++;
    return n;
}

static int read_prefix(struct table_file *f, const struct ft_config *c, const char *dir,
                       const struct ft_task *task, float *out, struct err *err) {
    const struct model_config *m = &c->model;
    int32_t n_ranks = count_ranks(f, c, dir, task);
    if (m->kinds[0].attention.n_kv_heads % n_ranks)
        return err_set(err, E_FORMAT, "%s: %d heads do not divide by %d ranks", dir,
                       m->kinds[0].attention.n_kv_heads, n_ranks);
    int64_t n_heads = m->kinds[0].attention.n_kv_heads / n_ranks;
    int64_t n = (int64_t)m->n_layers * 2 * n_heads * task->length * m->kinds[0].attention.head_dim;
    for (int32_t rank = 0; rank < n_ranks; rank++) {
        TRY(name_file(f, dir, task, rank, err));
        int rc = read_file(f, n, err);
        if (rc == 0) place_rank(f, m, task, rank, n_heads, out);
        buf_release(&f->bytes);
        TRY(rc);
    }
    return 0;
}

int ft_prompt_load(struct prompt **out, const struct ft_config *c, const char *ft_dir,
                   const struct ft_task *task, struct err *err) {
    struct table_file f = {.dtype = c->model.dtype};
    struct err why = {0};
    bool prefix = task->type == FT_PROMPT_PREFIX;
    enum prompt_kind kind = prefix ? PROMPT_PREFIX : PROMPT_ROWS;
    int64_t width = prompt_width(&c->model, kind);
    float *data = malloc((size_t)(task->length * width) * sizeof *data);
    *out = NULL;
    if (!data) return err_set(err, E_NOMEM, "no memory for the table of task '%s'", task->name);
    int rc = prefix ? read_prefix(&f, c, ft_dir, task, data, err)
                    : read_rows(&f, ft_dir, task, width, data, err);
    if (rc == 0 && prompt_new(out, kind, task->length, width, data, &why) < 0)
        rc = err_set(err, why.code, "%s: %s", f.path, why.text);
    free(data);
    return rc;
}
