// See to_gguf.h.
#include "engine/convert/to_gguf.h"
#include "base/json.h"
#include "base/path.h"
#include "engine/convert/block_encode.h"
#include "engine/convert/gguf_plan.h"
#include "engine/convert/gguf_shape.h"
#include "engine/convert/gguf_vocab.h"
#include "engine/convert/probe_texts.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/ft_folder.h"
#include "engine/model/packed_tensors.h"
#include "engine/model/text_files.h"
#include "engine/model/tied_head.h"
#include "kernels/wide_row.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job {
    const struct to_gguf_options *o;
    struct model_config config;
    cJSON *json; // config.json
    struct checkpoint *cp;
    struct gguf_shape shape;
    struct gguf_plan plan;
    struct gguf_writer *writer;
    struct to_gguf_result *result;
    int64_t done;
    char *in;     // a row as read
    float *row;   // in F32
    char *matrix; // of an expert that the folder has turned round, as read
    const struct tensor *matrix_of;
    int64_t matrix_number;
    uint8_t *out; // as blocks
};

// --- what is written ---

// Rounding rounded weights again loses twice, so the source must have floats.
static int refuse_few_bits(const char *path, struct err *err) {
    struct gguf *g;
    TRY(gguf_open(&g, path, false, err));
    int rc = 0;
    for (size_t i = 0; i < gguf_count(g) && rc == 0; i++)
        if (gguf_at(g, i)->type->values > 1)
            rc = err_set(err, E_UNSUPPORTED,
                         "%s has weights in %s already; a file is written from floats", path,
                         gguf_at(g, i)->type->name);
    gguf_close(g);
    return rc;
}

// Families whose files have the name of another one, which differs in defaults and windows.
static const char *written_as(const char *family) {
    if (strcmp(family, "mistral") == 0) return "llama";
    return strcmp(family, "glm4_moe_lite") == 0 ? "deepseek_v3" : family;
}

static int read_config(struct job *j, struct err *err) {
    char path[PATH_MAX], names[512];
    bool is_ft;
    TRY(ft_folder_find(path, j->o->model_dir, &is_ft, err));
    if (is_ft)
        return err_set(err, E_UNSUPPORTED,
                       "%s is a FasterTransformer folder; GGUF files are written from those of "
                       "Hugging Face",
                       path);
    TRY(path_join(path, j->o->model_dir, "config.json", err));
    if (gguf_is(j->o->model_dir)) {
        TRY(refuse_few_bits(j->o->model_dir, err));
        TRY(gguf_folder_json(&j->json, j->o->model_dir, "config.json", err));
    } else {
        j->json = json_parse_file(path, &json_limits_file, err);
    }
    if (!j->json) return err ? err->code : E_FORMAT;
    TRY(model_config_load(&j->config, j->o->model_dir, err));
    const char *method = json_string(quantization_of(j->json), "quant_method");
    if (quantization_of(j->json) && !(method && strcmp(method, "mxfp4") == 0))
        return err_set(err, E_UNSUPPORTED, "%s has a quantization_config already", path);
    const cJSON *text = json_member(j->json, "text_config");
    const char *family = j->config.family;
    j->shape.arch = gguf_arch_written(written_as(family));
    j->shape.c = &j->config;
    j->shape.config = cJSON_IsObject(text) ? text : j->json;
    if (j->shape.arch) return 0;
    gguf_arch_written_names(names, sizeof names);
    return err_set(err, E_UNSUPPORTED,
                   "models of type '%.60s' are not written as GGUF files; those of %s are", family,
                   names);
}

static const char *base_name(const char *path, char *out, size_t size) {
    size_t len = strlen(path), from;
    while (len > 1 && path[len - 1] == '/') len--;
    for (from = len; from > 0 && path[from - 1] != '/'; from--) continue;
    snprintf(out, size, "%.*s", (int)(len - from), path + from);
    return out;
}

static int read_value(struct job *j, const char *name, float *out, struct err *err) {
    const struct tensor *t = checkpoint_find(j->cp, name);
    char bytes[sizeof(float)];
    float largest;
    if (!t || t->bytes != dtype_size(t->dtype) || t->bytes > sizeof bytes)
        return err_set(err, E_UNSUPPORTED, "the tensor '%s' is no single number", name);
    const struct tensor_view v = {bytes, t->dtype, 1, 1, 1, 1, NULL, 0};
    TRY(checkpoint_read(j->cp, t, 0, bytes, t->bytes, err));
    return wide_row(&v, 0, out, &largest);
}

// Values of layers that are tensors in the folder.
static int put_values(struct job *j, struct err *err) {
    char name[128];
    for (const struct gguf_layer_value *v = j->shape.arch->values; v && v->gguf; v++) {
        gguf_put_array(j->writer, v->gguf, GGUF_F32, (uint64_t)j->config.n_layers);
        for (int32_t i = 0; i < j->config.n_layers; i++) {
            float value = (float)v->constant;
            snprintf(name, sizeof name, "model.layers.%d.%s", i, v->hf ? v->hf : "");
            if (v->hf) TRY(read_value(j, name, &value, err));
            gguf_add_f32(j->writer, value);
        }
    }
    return 0;
}

static int put_metadata(struct job *j, struct err *err) {
    static const uint32_t file_types[] = {// llama.cpp's numbers
                                          [GGUF_Q8_0] = 7,
                                          [GGUF_Q4_0] = 2,
                                          [GGUF_F16] = 1,
                                          [GGUF_BF16] = 32};
    char name[256];
    struct gguf_writer *w = j->writer;
    gguf_put_string(w, "general.architecture", j->shape.arch->name);
    gguf_put_string(w, "general.type", "model");
    gguf_put_string(w, "general.name", base_name(j->o->model_dir, name, sizeof name));
    gguf_put_u32(w, "general.file_type", file_types[j->o->weights]);
    gguf_put_u32(w, "general.quantization_version", 2);
    TRY(gguf_shape_put(&j->shape, w, err));
    TRY(put_values(j, err));
    return gguf_vocab_put(w, j->o->model_dir, &j->config, err);
}

static int make_plan(struct job *j, struct err *err) {
    TRY(gguf_plan_make(&j->plan, j->shape.arch, &j->config, j->cp, j->o->weights, err));
    for (int i = 0; i < j->shape.n_factors; i++)
        TRY(gguf_plan_add_row(&j->plan, j->shape.factors[i].name, j->shape.factors[i].n, err));
    j->result->n_matrices = j->plan.n_matrices;
    j->result->bytes_before = j->plan.bytes_before;
    return 0;
}

// --- what is read back ---

// Factors are read with the shape, so their tensors, which are last, hold them already.
static int read_back(const struct job *j, struct err *err) {
    struct model_config read;
    struct err why = {0};
    const char *file = gguf_writer_partial(j->writer);
    int rc = model_config_load(&read, file, &why);
    if (rc == 0) rc = gguf_shape_compare(&j->config, &read, &why);
    if (rc == 0 && text_files_tokenizer(j->o->model_dir))
        rc = probe_texts_compare(j->o->model_dir, file, &why);
    return rc < 0 ? err_set(err, rc, "%.200s: %.300s", j->o->model_dir, why.text) : 0;
}

// --- the weights ---

static int step(struct job *j, size_t bytes, struct err *err) {
    j->done += (int64_t)bytes;
    if (j->o->progress) j->o->progress(j->o->progress_ctx, j->done, j->plan.bytes_before);
    if (j->o->stop && *j->o->stop) return err_set(err, E_CANCELLED, "interrupted");
    return 0;
}

// Where the row lies in the folder that the file has as row r.
static int64_t source_row(const struct gguf_source *s, int64_t r) {
    if (s->stack_rows > 0)
        return r / s->matrix_rows * s->stack_rows + s->first_row + r % s->matrix_rows * s->row_step;
    if (s->change != GGUF_PAIRED_ROWS) return r;
    const int64_t in_head = r % s->head_rows;
    return r - in_head + in_head % 2 * (s->head_rows / 2) + in_head / 2;
}

// A vector of paired rows is a column.
static void pair_values(struct job *j, const struct gguf_source *s, int64_t n) {
    float *to = (float *)(void *)j->in; // read already
    for (int64_t i = 0; i < n; i++) to[i] = j->row[source_row(s, i)];
    memcpy(j->row, to, (size_t)n * sizeof *to);
}

// The row r of matrices that the folder has turned round: a column, of an expert's matrix that is read whole.
static int read_turned(struct job *j, const struct gguf_source *s, const struct tensor *t,
                       int64_t r, struct err *err) {
    const int64_t rows = t->shape[1], cols = t->shape[2], row = source_row(s, r);
    const int64_t expert = row / cols;
    const size_t size = dtype_size(t->dtype), bytes = (size_t)(rows * cols) * size;
    if (j->matrix_of != t || j->matrix_number != expert) {
        free(j->matrix);
        j->matrix_of = NULL;
        j->matrix = malloc(bytes);
        if (!j->matrix) return err_set(err, E_NOMEM, "no memory for an expert of %zu bytes", bytes);
        TRY(checkpoint_read(j->cp, t, (size_t)expert * bytes, j->matrix, bytes, err));
        j->matrix_of = t;
        j->matrix_number = expert;
    }
    for (int64_t k = 0; k < rows; k++)
        memcpy(j->in + (size_t)k * size, j->matrix + (size_t)(k * cols + row % cols) * size, size);
    return 0;
}

static int write_row(struct job *j, const struct gguf_out_tensor *to, const struct gguf_source *s,
                     const struct tensor *t, int64_t r, struct err *err) {
    const bool column = t->n_dims == 1 && s->change == GGUF_PAIRED_ROWS;
    const int64_t read = t->shape[s->turned ? 1 : t->n_dims - 1], cols = to->shape[to->n_dims - 1];
    const size_t bytes = (size_t)read * dtype_size(t->dtype);
    const struct tensor_view v = {j->in, t->dtype, 1, read, read, 1, NULL, 0};
    float largest;
    if (s->turned)
        TRY(read_turned(j, s, t, r, err));
    else
        TRY(checkpoint_read(j->cp, t, (size_t)(column ? r : source_row(s, r)) * bytes, j->in, bytes,
                            err));
    int rc = wide_row(&v, 0, j->row, &largest);
    if (column) pair_values(j, s, cols);
    for (int64_t k = 0; k < cols && s->col_step > 0; k++)
        j->row[k] = j->row[s->first_col + k * s->col_step];
    for (int64_t k = 0; k < cols && s->change == GGUF_PLUS_ONE; k++) j->row[k] += 1;
    if (rc == 0) rc = block_encode_row(to->type, j->row, cols, j->out);
    if (rc < 0)
        return err_set(err, E_UNSUPPORTED,
                       "the tensor '%s' holds a value that %s cannot say: infinite, no number or "
                       "too large",
                       t->name, to->type->name);
    TRY(gguf_writer_write(j->writer, j->out, (size_t)(cols / to->type->values * to->type->bytes),
                          err));
    return step(j, bytes, err);
}

static int write_tensor(struct job *j, size_t i, struct err *err) {
    const struct gguf_source *s = &j->plan.sources[i];
    for (int32_t e = 0; e < s->n_from; e++) {
        const struct tensor *t = s->from[e];
        int64_t rows = 1;
        for (int d = 0; d < t->n_dims - 1; d++) rows *= t->shape[d];
        if (s->stack_rows > 0) rows = t->shape[0] * s->matrix_rows;
        for (int64_t r = 0; r < rows; r++) TRY(write_row(j, &j->plan.tensors[i], s, t, r, err));
    }
    return gguf_writer_end_tensor(j->writer, err);
}

static int make_buffers(struct job *j, struct err *err) {
    int64_t cols = 1;
    for (size_t i = 0; i < j->plan.n; i++) {
        const struct gguf_out_tensor *t = &j->plan.tensors[i];
        const struct gguf_source *s = &j->plan.sources[i];
        const int64_t wide = t->shape[t->n_dims - 1];
        const int64_t read = s->from ? s->from[0]->shape[s->from[0]->n_dims - 1] : 0;
        if (wide > cols) cols = wide;
        if (read > cols) cols = read;
    }
    j->in = malloc((size_t)cols * sizeof(float));
    j->row = malloc((size_t)cols * sizeof *j->row);
    j->out = malloc((size_t)cols * sizeof(float)); // no type takes more
    if (j->in && j->row && j->out) return 0;
    return err_set(err, E_NOMEM, "no memory for a row of %lld values", (long long)cols);
}

static int write_file(struct job *j, struct err *err) {
    TRY(gguf_writer_begin(j->writer, j->plan.tensors, j->plan.n, err));
    for (size_t i = 0; i < j->plan.n; i++)
        j->result->bytes_after += (int64_t)j->plan.tensors[i].bytes;
    const size_t first_factor = j->plan.n - (size_t)j->shape.n_factors;
    for (int i = 0; i < j->shape.n_factors; i++)
        TRY(gguf_writer_put_at(j->writer, j->plan.tensors, first_factor + (size_t)i,
                               j->shape.factors[i].values, err));
    TRY(read_back(j, err));
    for (size_t i = 0; i < first_factor; i++) TRY(write_tensor(j, i, err));
    TRY(checkpoint_check_unchanged(j->cp, err));
    return gguf_writer_finish(j->writer, err);
}

static int run(struct job *j, struct err *err) {
    TRY(gguf_writer_new(&j->writer, j->o->out, err));
    TRY(read_config(j, err));
    TRY(checkpoint_open(&j->cp, j->o->model_dir, err));
    TRY(tied_head_settle(&j->config, j->cp, err));
    TRY(put_metadata(j, err));
    TRY(make_plan(j, err));
    TRY(make_buffers(j, err));
    return write_file(j, err);
}

int to_gguf_write(const struct to_gguf_options *o, struct to_gguf_result *out, struct err *err) {
    struct job *j = calloc(1, sizeof *j);
    *out = (struct to_gguf_result){0};
    if (!j) return err_set(err, E_NOMEM, "no memory to write %s", o->out);
    j->o = o;
    j->result = out;
    const int rc = run(j, err);
    gguf_writer_free(j->writer);
    gguf_plan_release(&j->plan);
    checkpoint_close(j->cp);
    cJSON_Delete(j->json);
    free(j->in);
    free(j->row);
    free(j->out);
    free(j->matrix);
    free(j);
    return rc;
}
