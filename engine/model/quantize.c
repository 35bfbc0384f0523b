// A checkpoint in 8 or 4 bits. See quantize.h.
#include "engine/model/quantize.h"
#include "base/buf.h"
#include "base/json.h"
#include "base/path.h"
#include "engine/gguf/gguf_folder.h"
#include "engine/model/fingerprint.h"
#include "engine/model/ft_folder.h"
#include "engine/model/model.h"
#include "engine/model/packed_tensors.h"
#include "engine/model/text_files.h"
#include "engine/model/tied_head.h"
#include "kernels/fp8.h"
#include "kernels/int4.h"
#include "kernels/int8.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#ifndef QUANTIZE_BLOCK_BYTES // tests take less, so that a small tensor is several blocks
#define QUANTIZE_BLOCK_BYTES ((size_t)8 << 20)
#endif

struct job {
    const struct quantize_options *o;
    struct model_config config;
    struct checkpoint *cp;
    struct buf config_json;
    uint8_t *roles;                 // (tensors of cp)
    struct tensor *tensors;         // (n) as written; names of scales are owned
    size_t *order;                  // the used ones, in the model's order
    const struct tensor **from;     // (n) the tensor of cp; NULL: the next matrix's scales, or with
    const struct tensor **shape_of; // (n) one here, the shape of that matrix
    size_t n;
    struct safetensors_writer *writer;
    struct quantize_result result;
    int64_t done;
    char dir[PATH_MAX]; // out_dir.partial
    char *in;           // a block as read
    uint8_t *q;         // a row as integers, or a block as e4m3
    uint8_t *panel;     // of integers
    float *work;        // a row in F32
    float *scales;      // (n_scales) of all matrices, the first n_quantized are made
    size_t n_scales, n_quantized;
    struct int4_inputs inputs; // of the present matrix
};

// --- files ---

static bool ends_with(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

static int write_file(const struct job *j, const char *name, const void *bytes, size_t n,
                      struct err *err) {
    char path[PATH_MAX];
    TRY(path_join(path, j->dir, name, err));
    FILE *f = fopen(path, "wb");
    if (!f) return err_errno(err, "cannot create %s", path);
    bool ok = fwrite(bytes, 1, n, f) == n;
    if (fclose(f) != 0 || !ok) return err_errno(err, "cannot write %s", path);
    return 0;
}

static int copy_files(const struct job *j, struct err *err) {
    static const char suggestions[] = "generation_config.json";
    char path[PATH_MAX];
    struct buf bytes;
    TRY(text_files_copy(j->o->model_dir, j->dir, NULL, err));
    TRY(path_join(path, j->o->model_dir, suggestions, err));
    if (access(path, F_OK) < 0) return 0;
    int rc = buf_read_file(&bytes, path, (size_t)4 << 20, err);
    if (rc == 0) rc = write_file(j, suggestions, bytes.data, bytes.len, err);
    buf_release(&bytes);
    return rc;
}

// The fingerprints of the source loaded in 8 bits, and of the written weights' file.
static int compute_fingerprints(const struct job *j, char of[FINGERPRINT_LEN + 1],
                                char own[FINGERPRINT_LEN + 1], struct err *err) {
    struct model_config c = j->config;
    struct checkpoint *written = NULL;
    c.int8 = j->o->weights == WEIGHTS_INT8;
    c.fp8 = j->o->weights == WEIGHTS_FP8;
    TRY(fingerprint_compute(of, &c, j->cp, err));
    TRY(checkpoint_open(&written, j->dir, err));
    int rc = fingerprint_compute(own, &c, written, err);
    checkpoint_close(written);
    return rc;
}

// Two keys with a fingerprint each.
#define FINGERPRINTS(indent)                                                                       \
    indent "\"" MODEL_QUANTIZED_OF "\": \"%s\",\n" indent "\"" MODEL_QUANTIZED_OWN "\": \"%s\""
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)

// compressed-tensors' keys. `ignore` has the modules that stay as they are, without the embeddings, which are no
// Linear.
static int add_int4_config(struct buf *out, const struct job *j) {
    TRY(buf_addf(
        out,
        ",\n  \"quantization_config\": {\n    \"quant_method\": \"compressed-tensors\",\n"
        "    \"format\": \"pack-quantized\",\n    \"quantization_status\": \"compressed\",\n"
        "    \"config_groups\": {\n      \"group_0\": {\n        \"targets\": [\"Linear\"],\n"
        "        \"weights\": {\"num_bits\": 4, \"type\": \"int\", \"strategy\": \"group\", "
        "\"group_size\": %d,\n                    \"symmetric\": true, \"dynamic\": false},\n"
        "        \"input_activations\": null,\n        \"output_activations\": null\n"
        "      }\n    },\n    \"ignore\": [",
        INT4_GROUP));
    const char *between = "";
    for (size_t i = 0; i < j->n; i++) {
        const struct tensor *t = j->from[i];
        if (!t || t->n_dims != 2 || j->tensors[i].name != t->name ||
            !ends_with(t->name, ".weight") || strstr(t->name, "embed"))
            continue;
        TRY(buf_addf(out, "%s\"%.*s\"", between, (int)(strlen(t->name) - strlen(".weight")),
                     t->name));
        between = ", ";
    }
    return buf_addf(out, "]\n  }\n}\n");
}

// Inserts the quantization's keys before the closing brace of the source's text, so that unknown
// keys are kept. The text has been parsed as an object before.
static int write_config(const struct job *j, struct err *err) {
    static const char int8[] =
        ",\n  \"quantization_config\": {\n    \"quant_method\": \"" MODEL_INT8_METHOD "\",\n"
        "    \"bits\": 8,\n    \"scales\": \"one for each output\",\n"
        "    \"layout\": \"" MODEL_INT8_LAYOUT "\",\n"
        "    \"layout_version\": " TEXT(MODEL_INT8_LAYOUT_VERSION) ",\n" FINGERPRINTS(
            "    ") "\n  }\n}\n";
    static const char fp8[] = ",\n  \"" MODEL_FP8_KEY "\": {\n" FINGERPRINTS(
        "    ") "\n  },\n  \"quantization_config\": {\n    \"quant_method\": \"" MODEL_FP8_METHOD
                "\",\n"
                "    \"format\": \"float-quantized\",\n    \"quantization_status\": "
                "\"compressed\",\n"
                "    \"config_groups\": {\n      \"group_0\": {\n        \"targets\": "
                "[\"Linear\"],\n"
                "        \"weights\": {\"num_bits\": 8, \"type\": \"float\", \"strategy\": "
                "\"channel\", "
                "\"symmetric\": true, \"dynamic\": false},\n"
                "        \"input_activations\": null,\n        \"output_activations\": null\n"
                "      }\n    },\n    \"ignore\": []\n  }\n}\n";
    char of[FINGERPRINT_LEN + 1], own[FINGERPRINT_LEN + 1];
    if (j->o->weights != WEIGHTS_INT4) TRY(compute_fingerprints(j, of, own, err));
    struct buf out;
    buf_init(&out, (size_t)8 << 20);
    size_t end = j->config_json.len;
    while (end > 0 && j->config_json.data[end - 1] != '}') end--;
    if (end > 0) end--;
    while (end > 0 && isspace((unsigned char)j->config_json.data[end - 1])) end--;
    int rc = buf_add(&out, j->config_json.data, end);
    if (rc == 0 && j->o->weights == WEIGHTS_INT4)
        rc = add_int4_config(&out, j);
    else if (rc == 0)
        rc = buf_addf(&out, j->o->weights == WEIGHTS_FP8 ? fp8 : int8, of, own);
    rc = rc < 0 ? err_set(err, rc, "config.json is too large")
                : write_file(j, "config.json", out.data, out.len, err);
    buf_release(&out);
    return rc;
}

// config.json, or what a GGUF file has in its place.
static int read_config_text(struct job *j, const char *path, struct err *err) {
    cJSON *json;
    buf_release(&j->config_json);
    if (!gguf_is(j->o->model_dir)) {
        if (access(path, F_OK) < 0) return err_errno(err, "cannot read %s", path);
        return buf_read_file(&j->config_json, path, (size_t)4 << 20, err);
    }
    buf_init(&j->config_json, (size_t)4 << 20);
    TRY(gguf_folder_json(&json, j->o->model_dir, "config.json", err));
    char *text = cJSON_Print(json);
    cJSON_Delete(json);
    int rc = text ? buf_addz(&j->config_json, text) : E_NOMEM;
    free(text);
    return rc < 0 ? err_set(err, rc, "no memory for %s", path) : 0;
}

static int read_config(struct job *j, struct err *err) {
    char path[PATH_MAX];
    bool is_ft;
    TRY(ft_folder_find(path, j->o->model_dir, &is_ft, err));
    if (is_ft)
        return err_set(err, E_UNSUPPORTED,
                       "%s is a FasterTransformer folder; quantize takes those of Hugging Face. It "
                       "can be served in 8 bits all the same, by weight_dtype",
                       path);
    TRY(path_join(path, j->o->model_dir, "config.json", err));
    TRY(read_config_text(j, path, err));
    TRY(model_config_load(&j->config, j->o->model_dir, err));
    cJSON *json = json_parse(buf_z(&j->config_json), j->config_json.len, &json_limits_file, err);
    if (!json) return err ? err->code : E_FORMAT;
    bool has = quantization_of(json) != NULL;
    cJSON_Delete(json);
    if (!has) return 0;
    return err_set(err, E_UNSUPPORTED, "%s has a quantization_config already", path);
}

// --- which tensors ---

// Of 4 bits: whole groups, under the name that the format changes, and neither embedding nor head.
static bool has_int4(const struct job *j, const struct tensor *t) {
    return t->n_dims == 2 && t->shape[1] % INT4_GROUP == 0 && t->shape[0] != j->config.vocab_size &&
           ends_with(t->name, ".weight");
}

static bool is_matrix(const struct job *j, const struct tensor *t) {
    uint8_t role = j->roles[checkpoint_index(j->cp, t)];
    if (j->o->weights == WEIGHTS_INT4) return role == TENSOR_MATRIX && has_int4(j, t);
    return role == TENSOR_MATRIX || role == TENSOR_TRANSPOSED;
}

static bool is_turned(const struct job *j, const struct tensor *t) {
    return j->roles[checkpoint_index(j->cp, t)] == TENSOR_TRANSPOSED;
}

static void add(struct job *j, const struct tensor *from, const struct tensor *to, size_t bytes) {
    j->from[j->n] = from;
    j->tensors[j->n] = *to;
    j->tensors[j->n++].bytes = bytes;
    j->result.bytes_after += (int64_t)bytes;
}

static int64_t scales_of_row(const struct job *j, const struct tensor *t) {
    return j->o->weights == WEIGHTS_INT4 ? t->shape[1] / INT4_GROUP : 1;
}

// A tensor's name with more at its end, for j->tensors.
static int longer_name(char **out, const struct tensor *t, const char *more, struct err *err) {
    if (asprintf(out, "%s%s", t->name, more) < 0)
        return err_set(err, E_NOMEM, "no memory for a tensor's name");
    return 0;
}

static int add_int4(struct job *j, const struct tensor *t, struct err *err) {
    char *name;
    TRY(longer_name(&name, t, "_packed", err));
    add(j, t,
        &(struct tensor){
            .name = name, .dtype = DTYPE_I32, .n_dims = 2, .shape = {t->shape[0], t->shape[1] / 8}},
        (size_t)(t->shape[0] * t->shape[1] / 2));
    return 0;
}

static int add_matrix(struct job *j, const struct tensor *t, struct err *err) {
    int64_t rows = t->shape[is_turned(j, t)], cols = t->shape[!is_turned(j, t)];
    int64_t quads = int8_panel_bytes(cols) / (4 * INT8_PANEL_ROWS);
    struct tensor fp8 = *t; // of the same shape, transposed or not
    fp8.dtype = DTYPE_F8_E4M3;
    j->n_scales += (size_t)(rows * scales_of_row(j, t));
    j->result.n_matrices++;
    if (j->o->weights == WEIGHTS_INT4) return add_int4(j, t, err);
    if (j->o->weights == WEIGHTS_FP8)
        add(j, t, &fp8, (size_t)(rows * cols));
    else
        add(j, t,
            &(struct tensor){.name = t->name,
                             .dtype = DTYPE_U8,
                             .n_dims = 4,
                             .shape = {int8_panels(rows), quads, INT8_PANEL_ROWS, 4}},
            (size_t)(int8_panels(rows) * int8_panel_bytes(cols)));
    return 0;
}

static int add_scales(struct job *j, const struct tensor *t, struct err *err) {
    char *name;
    TRY(longer_name(&name, t, "_scale", err));
    int64_t rows = t->shape[is_turned(j, t)], n = scales_of_row(j, t);
    // For e4m3 a column, as other programs expect.
    struct tensor scales = {.name = name, .dtype = DTYPE_F32, .n_dims = 1, .shape = {rows, n}};
    if (j->o->weights != WEIGHTS_INT8) scales.n_dims = 2;
    if (j->o->weights == WEIGHTS_INT4) scales.dtype = t->dtype;
    add(j, NULL, &scales, (size_t)(rows * n) * dtype_size(scales.dtype));
    if (j->o->weights != WEIGHTS_INT4) return 0;
    TRY(longer_name(&name, t, "_shape", err));
    j->shape_of[j->n] = t;
    add(j, NULL, &(struct tensor){.name = name, .dtype = DTYPE_I64, .n_dims = 1, .shape = {2}},
        2 * sizeof(int64_t));
    return 0;
}

// Matrices first, in the order in which the model stacks them: their panels follow each other from
// the front of the file on, where they are aligned, and a stack of them is one stretch of it.
static int plan(struct job *j, struct err *err) {
    size_t n = checkpoint_count(j->cp), n_used = 0;
    j->roles = calloc(n + 1, sizeof *j->roles);
    j->order = calloc(n + 1, sizeof *j->order);
    j->tensors = calloc(3 * n + 1, sizeof *j->tensors);
    j->from = calloc(3 * n + 1, sizeof *j->from);
    j->shape_of = calloc(3 * n + 1, sizeof *j->shape_of);
    if (!j->roles || !j->order || !j->tensors || !j->from || !j->shape_of)
        return err_set(err, E_NOMEM, "no memory for %zu tensors", n);
    TRY(model_tensor_roles(&j->config, j->cp, j->roles, j->order, err));
    for (size_t i = 0; i < n; i++) n_used += j->roles[i] != TENSOR_UNUSED;
    for (size_t i = 0; i < n_used; i++) {
        const struct tensor *t = checkpoint_at(j->cp, j->order[i]);
        if (t->n_dims == 3)
            return err_set(err, E_UNSUPPORTED,
                           "the tensor '%s' has all experts of a layer, which are not written in "
                           "few bits yet; weight_dtype converts them while loading",
                           t->name);
        j->result.bytes_before += (int64_t)t->bytes;
        if (is_matrix(j, t)) TRY(add_matrix(j, t, err));
    }
    if (j->o->weights == WEIGHTS_INT4 && j->result.n_matrices == 0)
        return err_set(err, E_UNSUPPORTED,
                       "%s has no matrix of outputs by inputs whose inputs %d divides, as groups "
                       "of 4 bits need them; 8 bits have no such limit",
                       j->o->model_dir, INT4_GROUP);
    for (size_t i = 0; i < n_used; i++) {
        const struct tensor *t = checkpoint_at(j->cp, j->order[i]);
        if (is_matrix(j, t))
            TRY(add_scales(j, t, err));
        else
            add(j, t, t, t->bytes);
    }
    return 0;
}

static int check_space(const struct job *j, struct err *err) {
    struct statvfs s;
    if (statvfs(j->dir, &s) < 0) return err_errno(err, "cannot examine %s", j->dir);
    uint64_t room = (uint64_t)s.f_bavail * s.f_frsize;
    if (room >= (uint64_t)j->result.bytes_after) return 0;
    return err_set(err, E_FULL, "%s has room for %llu MiB; the weights take %lld", j->dir,
                   (unsigned long long)(room >> 20), (long long)(j->result.bytes_after >> 20) + 1);
}

// --- the weights ---

static int step(struct job *j, size_t bytes, struct err *err) {
    j->done += (int64_t)bytes;
    if (j->o->progress) j->o->progress(j->o->progress_ctx, j->done, j->result.bytes_before);
    if (j->o->stop && *j->o->stop) return err_set(err, E_CANCELLED, "interrupted");
    return 0;
}

static int copy_tensor(struct job *j, const struct tensor *t, struct err *err) {
    for (size_t at = 0, n; at < t->bytes; at += n) {
        n = t->bytes - at < QUANTIZE_BLOCK_BYTES ? t->bytes - at : QUANTIZE_BLOCK_BYTES;
        TRY(checkpoint_read(j->cp, t, at, j->in, n, err));
        TRY(safetensors_write(j->writer, j->in, n, err));
        TRY(step(j, n, err));
    }
    return 0;
}

// One output of a block of them: its 8 bits to q, its scale behind those before.
static int quantize_row(struct job *j, const struct tensor *t, const struct tensor_view *v,
                        int64_t row, uint8_t *q, int64_t q_stride, struct err *err) {
    float *scale = &j->scales[j->n_quantized];
    j->n_quantized += (size_t)scales_of_row(j, t);
    int rc = j->o->weights == WEIGHTS_FP8 ? fp8_quantize_row(v, row, q, q_stride, j->work, scale)
             : j->o->weights == WEIGHTS_INT8
                 ? int8_quantize_row(v, row, (int8_t *)q, q_stride, j->work, scale)
             : j->inputs.factors
                 ? int4_quantize_row_calibrated(v, row, v->dtype, j->inputs.factors,
                                                (uint32_t *)(void *)q, scale, j->work)
                 : int4_quantize_row(v, row, v->dtype, j->inputs.weights, (uint32_t *)(void *)q,
                                     scale, j->work);
    if (rc == 0) return 0;
    return err_set(err, E_UNSUPPORTED,
                   "the tensor '%s' holds a value that is infinite or no number; few bits with a "
                   "scale cannot say that",
                   t->name);
}

static int write_panels(struct job *j, const struct tensor *t, const struct tensor_view *v,
                        struct err *err) {
    int64_t bytes = int8_panel_bytes(v->cols);
    for (int64_t r = 0; r < v->rows; r += INT8_PANEL_ROWS) {
        for (int lane = 0; lane < INT8_PANEL_ROWS; lane++) {
            bool exists = r + lane < v->rows;
            if (exists) TRY(quantize_row(j, t, v, r + lane, j->q, 1, err));
            int8_panel_put(j->panel, lane, (const int8_t *)j->q, exists ? v->cols : 0,
                           bytes / INT8_PANEL_ROWS);
        }
        TRY(safetensors_write(j->writer, j->panel, (size_t)bytes, err));
    }
    return 0;
}

// As e4m3, in the order in which the values are stored.
static int write_fp8(struct job *j, const struct tensor *t, const struct tensor_view *v,
                     struct err *err) {
    for (int64_t r = 0; r < v->rows; r++)
        TRY(quantize_row(j, t, v, r, j->q + r * v->row_stride, v->col_stride, err));
    return safetensors_write(j->writer, j->q, (size_t)(v->rows * v->cols), err);
}

static int write_int4(struct job *j, const struct tensor *t, const struct tensor_view *v,
                      struct err *err) {
    const int64_t row_bytes = v->cols / 2;
    j->inputs = j->o->inputs ? j->o->inputs(j->o->inputs_ctx, t->name, v->cols)
                             : (struct int4_inputs){NULL, NULL};
    for (int64_t r = 0; r < v->rows; r++)
        TRY(quantize_row(j, t, v, r, j->q + r * row_bytes, 1, err));
    return safetensors_write(j->writer, j->q, (size_t)(v->rows * row_bytes), err);
}

static int write_quantized(struct job *j, const struct tensor *t, const struct tensor_view *v,
                           struct err *err) {
    return j->o->weights == WEIGHTS_FP8    ? write_fp8(j, t, v, err)
           : j->o->weights == WEIGHTS_INT4 ? write_int4(j, t, v, err)
                                           : write_panels(j, t, v, err);
}

// The scales of `to` from *scales on, which moves behind them.
static int write_scales(struct job *j, const struct tensor *to, const float **scales,
                        struct err *err) {
    const int64_t n = to->shape[0] * (to->n_dims > 1 ? to->shape[1] : 1);
    const float *from = *scales;
    *scales += n;
    if (to->dtype == DTYPE_F32) return safetensors_write(j->writer, from, to->bytes, err);
    for (int64_t at = 0, piece; at < n; at += piece) {
        uint16_t half[512];
        piece = n - at < 512 ? n - at : 512;
        for (int64_t i = 0; i < piece; i++)
            half[i] =
                to->dtype == DTYPE_F16 ? f16_from_f32(from[at + i]) : bf16_from_f32(from[at + i]);
        TRY(safetensors_write(j->writer, half, (size_t)piece * sizeof *half, err));
    }
    return 0;
}

// Whole panels, about as many as fit in a block.
static int64_t block_rows(size_t row_bytes) {
    int64_t n = (int64_t)(QUANTIZE_BLOCK_BYTES / row_bytes) / INT8_PANEL_ROWS;
    return (n > 0 ? n : 1) * INT8_PANEL_ROWS;
}

// Stored (outputs, inputs): rows go by in blocks.
static int quantize_matrix(struct job *j, const struct tensor *t, struct err *err) {
    int64_t cols = t->shape[1];
    size_t row = (size_t)cols * dtype_size(t->dtype);
    for (int64_t r = 0, n; r < t->shape[0]; r += n) {
        n = t->shape[0] - r < block_rows(row) ? t->shape[0] - r : block_rows(row);
        TRY(checkpoint_read(j->cp, t, (size_t)r * row, j->in, (size_t)n * row, err));
        struct tensor_view v = {j->in, t->dtype, n, cols, cols, 1, NULL, 0};
        TRY(write_quantized(j, t, &v, err));
        TRY(step(j, (size_t)n * row, err));
    }
    return 0;
}

// Stored (inputs, outputs): an output needs all of it.
static int quantize_turned(struct job *j, const struct tensor *t, struct err *err) {
    int64_t cols = t->shape[0], rows = t->shape[1];
    TRY(checkpoint_read(j->cp, t, 0, j->in, t->bytes, err));
    struct tensor_view v = {j->in, t->dtype, rows, cols, 1, rows, NULL, 0};
    TRY(write_quantized(j, t, &v, err));
    return step(j, t->bytes, err);
}

// Allocates for the largest tensor, and the scales of all tensors.
static int make_buffers(struct job *j, struct err *err) {
    size_t in = QUANTIZE_BLOCK_BYTES, cols = 1, values = 1; // values: of a block
    for (size_t i = 0; i < checkpoint_count(j->cp); i++) {
        const struct tensor *t = checkpoint_at(j->cp, i);
        if (!is_matrix(j, t)) continue;
        size_t n_in = (size_t)t->shape[!is_turned(j, t)], row = n_in * dtype_size(t->dtype);
        size_t block = is_turned(j, t) ? t->bytes : (size_t)block_rows(row) * row;
        if (block > in) in = block;
        if (block / dtype_size(t->dtype) > values) values = block / dtype_size(t->dtype);
        if (n_in > cols) cols = n_in;
    }
    j->in = malloc(in);
    j->q = malloc(j->o->weights == WEIGHTS_INT8 ? cols : values);
    j->panel = malloc((size_t)int8_panel_bytes((int64_t)cols));
    j->work = malloc(cols * sizeof *j->work);
    j->scales = malloc((j->n_scales + 1) * sizeof *j->scales);
    if (j->in && j->q && j->panel && j->work && j->scales) return 0;
    return err_set(err, E_NOMEM, "no memory for a block of %zu bytes", in);
}

static int write_weights(struct job *j, struct err *err) {
    char path[PATH_MAX];
    const float *scales;
    TRY(make_buffers(j, err));
    scales = j->scales;
    TRY(path_join(path, j->dir, "model.safetensors", err));
    TRY(safetensors_create(&j->writer, path, j->tensors, j->n, err));
    for (size_t i = 0; i < j->n; i++) {
        const struct tensor *t = j->from[i];
        if (j->shape_of[i]) {
            TRY(safetensors_write(j->writer, j->shape_of[i]->shape, 2 * sizeof(int64_t), err));
        } else if (!t) {
            TRY(write_scales(j, &j->tensors[i], &scales, err));
        } else {
            TRY(!is_matrix(j, t)  ? copy_tensor(j, t, err)
                : is_turned(j, t) ? quantize_turned(j, t, err)
                                  : quantize_matrix(j, t, err));
        }
    }
    struct safetensors_writer *w = j->writer;
    j->writer = NULL;
    TRY(safetensors_finish(w, err));
    return checkpoint_check_unchanged(j->cp, err);
}

// --- the folder ---

static int make_folder(struct job *j, struct err *err) {
    const char *out = j->o->out_dir;
    size_t len = strlen(out);
    while (len > 1 && out[len - 1] == '/') len--;
    if ((size_t)snprintf(j->dir, sizeof j->dir, "%.*s.partial", (int)len, out) >= sizeof j->dir)
        return err_set(err, E_LIMIT, "the path %.200s... is too long", out);
    if (access(out, F_OK) == 0)
        return err_set(err, E_EXISTS, "%s exists already and is not overwritten", out);
    if (mkdir(j->dir, 0777) == 0) return 0;
    int rc = errno == EEXIST
                 ? err_set(err, E_EXISTS, "%s exists, what a killed run left: remove it", j->dir)
                 : err_errno(err, "cannot create %s", j->dir);
    j->dir[0] = '\0';
    return rc;
}

void quantize_remove(const char *out_dir) {
    char path[PATH_MAX];
    DIR *d = opendir(out_dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.' && path_join(path, out_dir, e->d_name, NULL) == 0) unlink(path);
    if (d) closedir(d);
    rmdir(out_dir);
}

static int write_folder(struct job *j, struct err *err) {
    TRY(check_space(j, err));
    TRY(copy_files(j, err));
    TRY(write_weights(j, err));
    TRY(write_config(j, err));
    if (rename(j->dir, j->o->out_dir) < 0) return err_errno(err, "cannot name %s", j->o->out_dir);
    return 0;
}

static int run(struct job *j, struct err *err) {
    TRY(read_config(j, err));
    TRY(checkpoint_open(&j->cp, j->o->model_dir, err));
    TRY(tied_head_settle(&j->config, j->cp, err));
    TRY(plan(j, err));
    TRY(make_folder(j, err));
    int rc = write_folder(j, err);
    if (rc == 0) return 0;
    if (j->writer) safetensors_abort(j->writer);
    quantize_remove(j->dir);
    return rc;
}

int quantize_write(const struct quantize_options *o, struct quantize_result *out, struct err *err) {
    struct job *j = calloc(1, sizeof *j);
    if (!j) return err_set(err, E_NOMEM, "no memory to quantise %s", o->model_dir);
    j->o = o;
    buf_init(&j->config_json, 1);
    int rc = run(j, err);
    *out = j->result;
    for (size_t i = 0; i < j->n; i++)
        if (!j->from[i] || j->tensors[i].name != j->from[i]->name)
            free((char *)(uintptr_t)j->tensors[i].name);
    free(j->tensors);
    free(j->from);
    free(j->shape_of);
    free(j->roles);
    free(j->in);
    free(j->q);
    free(j->panel);
    free(j->order);
    free(j->work);
    free(j->scales);
    buf_release(&j->config_json);
    checkpoint_close(j->cp);
    free(j);
    return rc;
}
