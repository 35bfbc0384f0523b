// See gguf_tensors.h.
#include "engine/model/gguf_tensors.h"
#include "base/json.h"
#include "base/parallel.h"
#include "engine/gguf/block_groups.h"
#include "engine/gguf/gguf_arch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 256
#define LAYER_PREFIX "blk."
// Tensors that are read otherwise (the switches of positions).
static const char *const not_weights[] = {"rope_freqs.weight", "rope_factors_long.weight",
                                          "rope_factors_short.weight"};
#define TENSORS_MAX (1 << 21) // those of experts counted one by one

struct source { // of the tensor with the same index
    const struct gguf_tensor *from;
    const struct gguf_tensor *keys; // GGUF_LATENT_VALUES
    enum gguf_change change;
    int64_t head_rows; // GGUF_PAIRED_ROWS
    int64_t first_row; // an expert's, in the tensor of all; of a vector: the first value
    float value;       // from NULL: the only one, from the metadata
    float factor;      // of all values; 1 where the file has no ".scale"
};

struct gguf_tensors {
    struct gguf *g;
    struct tensor *tensors; // (n)
    struct source *sources; // (n)
    size_t n, room;
};

// --- names ---

// Splits "STEM.weight", "STEM.bias" and "STEM.scale"; the suffix keeps its point.
static bool split_suffix(const char *name, size_t *stem_len, const char **suffix) {
    *suffix = strrchr(name, '.');
    if (!*suffix) return false;
    *stem_len = (size_t)(*suffix - name);
    return strcmp(*suffix, ".weight") == 0 || strcmp(*suffix, ".bias") == 0 ||
           strcmp(*suffix, ".scale") == 0;
}

static const struct gguf_tensor_name *find_name(const struct gguf_tensor_name *names,
                                                const char *stem, size_t len) {
    for (; names->gguf && len > 0; names++)
        if (strcmp(names->gguf, stem) == 0 ||
            (strlen(names->gguf) == len && memcmp(names->gguf, stem, len) == 0 &&
             strcmp(stem + len, ".scale") != 0))
            return names;
    return NULL;
}

// Where a name belongs.
struct place {
    const struct gguf_tensor_name *row; // NULL: no tensor of this architecture
    long layer;                         // -1: of none
    const char *suffix;                 // "" if the row has the whole name
};

static struct place find_place(const struct gguf_arch *arch, const char *name) {
    struct place p = {.layer = -1};
    const char *stem = name;
    size_t len;
    if (!split_suffix(name, &len, &p.suffix)) return p;
    if (strncmp(name, LAYER_PREFIX, sizeof LAYER_PREFIX - 1) == 0) {
        char *end;
        p.layer = strtol(name + sizeof LAYER_PREFIX - 1, &end, 10);
        if (*end != '.' || p.layer < 0 || end >= p.suffix) return p;
        stem = end + 1;
        len = (size_t)(p.suffix - stem);
    }
    const struct gguf_tensor_name *outer = arch->outer ? arch->outer : gguf_outer_names;
    p.row = find_name(p.layer < 0 ? outer : arch->layer, stem, len);
    if (p.row && strlen(p.row->gguf) != len) p.suffix = "";
    return p;
}

// Hugging Face's name. expert: what '#' stands for. False: it is too long.
static bool write_name(char out[NAME_MAX_BYTES], const struct place *p, int64_t expert) {
    const char *hf = p->row->hf, *mark = strchr(hf, '#');
    const int before = (int)(mark ? mark - hf : (long)strlen(hf));
    char layer[48] = "", number[32] = "";
    if (p->layer >= 0) snprintf(layer, sizeof layer, "model.layers.%ld.", p->layer);
    if (mark) snprintf(number, sizeof number, "%lld", (long long)expert);
    const int n = snprintf(out, NAME_MAX_BYTES, "%s%.*s%s%s%s", layer, before, hf, number,
                           mark ? mark + 1 : "", p->suffix);
    return n > 0 && n < NAME_MAX_BYTES;
}

static bool is_weight(const char *name) {
    for (size_t i = 0; i < sizeof not_weights / sizeof *not_weights; i++)
        if (strcmp(name, not_weights[i]) == 0) return false;
    return true;
}

// --- the list ---

static enum dtype dtype_of(const struct block_type *type) {
    return strcmp(type->name, "F16") == 0    ? DTYPE_F16
           : strcmp(type->name, "BF16") == 0 ? DTYPE_BF16
                                             : DTYPE_F32;
}

static int64_t heads_of(const struct gguf_tensors *c, const struct gguf_arch *arch, bool kv) {
    char key[128];
    const cJSON *m = gguf_metadata(c->g), *value;
    snprintf(key, sizeof key, "%s.attention.head_count%s", arch->name, kv ? "_kv" : "");
    value = json_member(m, key);
    if (!value && kv) return heads_of(c, arch, false);
    if (cJSON_IsArray(value)) value = value->child;
    return cJSON_IsNumber(value) ? (int64_t)value->valuedouble : 0;
}

static int pair_rows(const struct gguf_tensors *c, const struct gguf_arch *arch, bool kv,
                     const struct tensor *t, struct source *s, struct err *err) {
    int64_t heads = heads_of(c, arch, kv);
    s->head_rows = heads > 0 ? t->shape[0] / heads : 0;
    if (heads > 0 && t->shape[0] % heads == 0 && s->head_rows % 2 == 0) return 0;
    return err_set(err, E_FORMAT,
                   "the tensor '%s' has %lld rows, which are not %lld heads of pairs",
                   s->from->name, (long long)t->shape[0], (long long)heads);
}

static int make_room(struct gguf_tensors *c, int64_t n, struct err *err) {
    if (n > TENSORS_MAX || c->n + (size_t)n > TENSORS_MAX)
        return err_set(err, E_LIMIT, "more than %d tensors", TENSORS_MAX);
    if (c->n + (size_t)n <= c->room) return 0;
    const size_t room = (c->n + (size_t)n) * 2;
    struct tensor *tensors = realloc(c->tensors, room * sizeof *tensors);
    if (tensors) c->tensors = tensors;
    struct source *sources = tensors ? realloc(c->sources, room * sizeof *sources) : NULL;
    if (sources) c->sources = sources;
    if (!tensors || !sources) return err_set(err, E_NOMEM, "no memory for %zu tensors", room);
    c->room = room;
    return 0;
}

// Queries, keys and values in one tensor: sets the rows of the one that the row names.
static int part_rows(const struct gguf_tensors *c, const struct gguf_arch *arch,
                     const struct place *p, struct tensor *t, struct source *s, struct err *err) {
    const bool values = strstr(p->row->hf, "v_proj") != NULL;
    const int64_t q = heads_of(c, arch, false), kv = heads_of(c, arch, true);
    const int64_t heads = q + 2 * kv, rows = t->shape[0];
    if (q < 1 || kv < 1 || heads > rows || rows % heads != 0)
        return err_set(err, E_FORMAT,
                       "the tensor '%s' has %lld rows, which are not %lld heads of queries and "
                       "%lld of keys and values",
                       s->from->name, (long long)rows, (long long)q, (long long)kv);
    const int64_t width = rows / heads;
    s->first_row = !p->row->by_kv_head ? 0 : (values ? q + kv : q) * width;
    t->shape[0] = (p->row->by_kv_head ? kv : q) * width;
    t->bytes = t->bytes / (size_t)rows * (size_t)t->shape[0];
    return 0;
}

// A matrix may have "STEM.scale" beside it, which all its values are to be multiplied by: one number or, of experts,
// one for each. Files with NVFP4 have it, and "STEM.input_scale" for activations, which stay as they are.
static const struct gguf_tensor *beside(const struct gguf_tensors *c, const char *name,
                                        const char *from, const char *to) {
    char other[NAME_MAX_BYTES];
    const size_t len = strlen(name), n = strlen(from);
    if (len <= n || strcmp(name + len - n, from) != 0) return NULL;
    const int written = snprintf(other, sizeof other, "%.*s%s", (int)(len - n), name, to);
    return written < (int)sizeof other ? gguf_find(c->g, other) : NULL;
}

// Whether `name` is the ".scale" or ".input_scale" of a matrix that read_factor reads.
static bool is_factor(const struct gguf_tensors *c, const struct gguf_arch *arch,
                      const char *name) {
    const struct gguf_tensor *weight = beside(c, name, ".scale", ".weight");
    if (!weight) weight = beside(c, name, ".input_scale", ".weight");
    const struct gguf_tensor_name *row = weight ? find_place(arch, weight->name).row : NULL;
    return row && weight->n_dims >= 2 && row->change != GGUF_LATENT_KEYS &&
           row->change != GGUF_LATENT_VALUES;
}

static int read_values(const struct gguf_tensors *c, const struct source *s, int64_t row,
                       int64_t row_values, int64_t first, int64_t n, float *out, struct err *err);

// Sets s->factor. expert: -1 of a matrix for all.
static int read_factor(const struct gguf_tensors *c, const struct gguf_arch *arch, int64_t expert,
                       struct source *s, struct err *err) {
    const struct gguf_tensor *factor = beside(c, s->from->name, ".weight", ".scale");
    const struct source from = {.from = factor};
    s->factor = 1;
    if (!factor || !is_factor(c, arch, factor->name) || find_place(arch, factor->name).row)
        return 0;
    const int64_t n = expert < 0 ? 1 : s->from->shape[0];
    if (factor->n_dims != 1 || factor->shape[0] != n || strcmp(factor->type->name, "F32") != 0)
        return err_set(err, E_FORMAT, "the tensor '%s' is not of %lld F32 values", factor->name,
                       (long long)n);
    TRY(read_values(c, &from, 0, n, expert < 0 ? 0 : expert, 1, &s->factor, err));
    if (isfinite(s->factor)) return 0;
    return err_set(err, E_FORMAT, "the tensor '%s' holds a value that is infinite or no number",
                   factor->name);
}

// One tensor of the model: all of a tensor of the file, or an expert's matrix in it.
static int add_one(struct gguf_tensors *c, const struct gguf_arch *arch,
                   const struct gguf_tensor *from, const struct place *p, int64_t expert,
                   struct err *err) {
    const bool experts = strchr(p->row->hf, '#') != NULL;
    char name[NAME_MAX_BYTES];
    struct tensor *t = &c->tensors[c->n];
    struct source *s = &c->sources[c->n];
    *t = (struct tensor){.dtype = dtype_of(from->type), .n_dims = from->n_dims - experts};
    *s = (struct source){.from = from, .change = p->row->change};
    const int64_t number = s->change == GGUF_GATE_UP ? expert / 2 : expert;
    TRY(read_factor(c, arch, experts ? number : -1, s, err));
    if (s->factor != 1 || s->change == GGUF_PLUS_ONE) t->dtype = DTYPE_F32;
    t->bytes = dtype_size(t->dtype);
    for (int i = 0; i < t->n_dims; i++) {
        t->shape[i] = from->shape[i + experts];
        t->bytes *= (size_t)t->shape[i]; // the file's number of values is below INT64_MAX / 8
    }
    if (s->change == GGUF_GATE_UP) {
        t->shape[0] /= 2;
        t->bytes /= 2;
    }
    if (s->change == GGUF_QKV) TRY(part_rows(c, arch, p, t, s, err));
    // Counted in matrices of that size: a fused tensor has two of them for each expert.
    if (experts) s->first_row = expert * t->shape[0];
    if (s->change == GGUF_ONE_ROW && t->n_dims == 1) {
        t->n_dims = 2;
        t->shape[1] = t->shape[0];
        t->shape[0] = 1;
    }
    if (!write_name(name, p, number))
        return err_set(err, E_LIMIT, "the name '%s' is too long", from->name);
    t->name = strdup(name);
    if (!t->name) return err_set(err, E_NOMEM, "no memory for the names of tensors");
    c->n++;
    return s->change == GGUF_PAIRED_ROWS ? pair_rows(c, arch, p->row->by_kv_head, t, s, err) : 0;
}

// Latent attention's matrix, from the tensor of values and the one of keys beside it.
static int add_latent(struct gguf_tensors *c, const struct gguf_arch *arch,
                      const struct gguf_tensor *values, struct err *err) {
    char name[NAME_MAX_BYTES];
    struct place p = {.layer = strtol(values->name + sizeof LAYER_PREFIX - 1, NULL, 10)};
    struct gguf_tensor_name row = {"", "self_attn.kv_b_proj", GGUF_LATENT_VALUES, false};
    snprintf(name, sizeof name, LAYER_PREFIX "%ld.attn_k_b.weight", p.layer);
    const struct gguf_tensor *keys = gguf_find(c->g, name);
    if (!keys || keys->n_dims != 3 || values->n_dims != 3 || keys->shape[0] != values->shape[0] ||
        keys->shape[1] != values->shape[2])
        return err_set(err, E_FORMAT, "the tensors '%s' and '%s' do not fit together", values->name,
                       name);
    TRY(make_room(c, 1, err));
    p.row = &row;
    p.suffix = ".weight";
    TRY(add_one(c, arch, values, &p, 0, err));
    struct tensor *t = &c->tensors[c->n - 1];
    t->dtype = DTYPE_F32;
    t->n_dims = 2;
    t->shape[0] = values->shape[0] * (keys->shape[2] + values->shape[1]);
    t->shape[1] = values->shape[2];
    t->bytes = (size_t)t->shape[0] * (size_t)t->shape[1] * dtype_size(DTYPE_F32);
    c->sources[c->n - 1].keys = keys;
    return 0;
}

static int add_tensor(struct gguf_tensors *c, const struct gguf_arch *arch,
                      const struct gguf_tensor *from, struct err *err) {
    if (!is_weight(from->name)) return 0;
    const struct place p = find_place(arch, from->name);
    const int n_layers = gguf_n_layers(c->g, arch), n_blocks = gguf_n_blocks(c->g, arch);
    if (p.layer >= n_blocks && n_blocks > 0)
        return err_set(err, E_FORMAT, "the tensor '%s' is of layer %ld of %d", from->name, p.layer,
                       n_blocks);
    if (p.layer >= n_layers && n_layers > 0) return 0; // it predicts further tokens
    if (!p.row && is_factor(c, arch, from->name)) return 0;
    if (!p.row)
        return err_set(err, E_UNSUPPORTED, "the tensor '%s' is unknown in a model of %s",
                       from->name, arch->name);
    if (p.row->change == GGUF_LATENT_KEYS) return 0;
    if (p.row->change == GGUF_LATENT_VALUES) return add_latent(c, arch, from, err);
    const bool experts = strchr(p.row->hf, '#') != NULL;
    if (experts && from->n_dims != 3)
        return err_set(err, E_FORMAT, "the tensor '%s' has %d dimensions, not 3", from->name,
                       from->n_dims);
    const bool fused = p.row->change == GGUF_GATE_UP;
    if (fused && from->shape[1] % 2 != 0)
        return err_set(err, E_FORMAT, "the tensor '%s' has %lld rows, not gate and up", from->name,
                       (long long)from->shape[1]);
    const bool qkv = p.row->change == GGUF_QKV;
    const int64_t n = experts ? from->shape[0] * (fused ? 2 : 1) : qkv ? 3 : 1;
    TRY(make_room(c, n, err));
    for (int64_t i = 0; i < n; i++) {
        struct place part = p;
        if (fused) part.row += i % 2; // the up matrix
        if (qkv) part.row += i;
        TRY(add_one(c, arch, from, &part, i, err));
    }
    return 0;
}

// A value of one layer that the metadata have, as a number for all layers or in a list.
static int add_value(struct gguf_tensors *c, const struct gguf_layer_value *v, int layer,
                     struct err *err) {
    const cJSON *value = json_member(gguf_metadata(c->g), v->gguf);
    char name[NAME_MAX_BYTES];
    if (cJSON_IsArray(value)) value = cJSON_GetArrayItem(value, layer);
    if (!value && !v->hf) return 0;
    if (!cJSON_IsNumber(value) || !isfinite(value->valuedouble))
        return err_set(err, E_FORMAT, "the key '%s' has no number for layer %d", v->gguf, layer);
    const double off = value->valuedouble - v->constant;
    if (!v->hf && fabs(off) > fabs(v->constant) / 256)
        return err_set(err, E_UNSUPPORTED, "the key '%s' is %g for layer %d; known is %g", v->gguf,
                       value->valuedouble, layer, v->constant);
    if (!v->hf) return 0;
    TRY(make_room(c, 1, err));
    snprintf(name, sizeof name, "model.layers.%d.%s", layer, v->hf);
    struct tensor *t = &c->tensors[c->n];
    *t = (struct tensor){.dtype = DTYPE_F32, .n_dims = 1, .shape = {1}, .bytes = sizeof(float)};
    c->sources[c->n] = (struct source){.value = (float)value->valuedouble};
    t->name = strdup(name);
    if (!t->name) return err_set(err, E_NOMEM, "no memory for the names of tensors");
    c->n++;
    return 0;
}

static int list_tensors(struct gguf_tensors *c, struct err *err) {
    const struct gguf_arch *arch;
    const size_t n = gguf_count(c->g);
    TRY(gguf_arch_of(c->g, &arch, err));
    TRY(make_room(c, 1, err));
    for (size_t i = 0; i < n; i++) TRY(add_tensor(c, arch, gguf_at(c->g, i), err));
    for (const struct gguf_layer_value *v = arch->values; v && v->gguf; v++)
        for (int i = 0; i < gguf_n_layers(c->g, arch); i++) TRY(add_value(c, v, i, err));
    return 0;
}

int gguf_tensors_open(struct gguf_tensors **out, const char *path, struct err *err) {
    struct gguf_tensors *c = calloc(1, sizeof *c);
    struct err why = {0};
    *out = NULL;
    if (!c) return err_set(err, E_NOMEM, "no memory to open %s", path);
    int rc = gguf_open(&c->g, path, false, err);
    if (rc == 0 && (rc = list_tensors(c, &why)) < 0)
        err_set(err, rc, "%.200s: %.300s", path, why.text);
    if (rc < 0) {
        gguf_tensors_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

void gguf_tensors_close(struct gguf_tensors *c) {
    if (!c) return;
    for (size_t i = 0; i < c->n; i++) free((char *)(uintptr_t)c->tensors[i].name);
    free(c->tensors);
    free(c->sources);
    gguf_close(c->g);
    free(c);
}

size_t gguf_tensors_count(const struct gguf_tensors *c) {
    return c->n;
}

const struct tensor *gguf_tensors_at(const struct gguf_tensors *c, size_t i) {
    return &c->tensors[i];
}

const struct gguf *gguf_tensors_file(const struct gguf_tensors *c) {
    return c->g;
}

// --- reading ---

// Where row r of the model lies in the file.
static int64_t stored_row(const struct source *s, int64_t r) {
    if (s->change != GGUF_PAIRED_ROWS) return s->first_row + r;
    const int64_t in_head = r % s->head_rows, half = s->head_rows / 2;
    return r - in_head + in_head % half * 2 + in_head / half;
}

static int no_number(const struct source *s, struct err *err) {
    return err_set(err, E_FORMAT, "the tensor '%s' holds a value that is infinite or no number",
                   s->from->name);
}

// Values [first, first + n) of a stored row, which takes row_values, as F32.
static int read_values(const struct gguf_tensors *c, const struct source *s, int64_t row,
                       int64_t row_values, int64_t first, int64_t n, float *out, struct err *err) {
    const struct block_type *type = s->from->type;
    uint8_t stored[1 << 14];
    float part[BLOCK_MAX_VALUES];
    const int64_t most = (int64_t)sizeof stored / type->bytes,
                  row_blocks = row_values / type->values, end = first + n;
    for (int64_t b = first / type->values; b * type->values < end; b += most) {
        int64_t last = (end + type->values - 1) / type->values;
        int64_t blocks = last - b < most ? last - b : most;
        TRY(gguf_read(c->g, s->from, (uint64_t)(row * row_blocks + b) * (uint64_t)type->bytes,
                      stored, (size_t)(blocks * type->bytes), err));
        for (int64_t i = 0; i < blocks; i++) {
            const int64_t at = (b + i) * type->values;
            const int64_t from = at < first ? first - at : 0;
            const int64_t here = (at + type->values < end ? type->values : end - at) - from;
            float *values = here == type->values ? out + (at - first) : part;
            type->decode(values, stored + i * type->bytes);
            if (type->values > 1 &&
                !block_values_finite(values + (values == part ? from : 0), here))
                return no_number(s, err);
            if (values == part)
                memcpy(out + (at + from - first), part + from, (size_t)here * sizeof *out);
        }
    }
    return 0;
}

// A row of a tensor of any type, as F32; out (shape[n_dims - 1]).
static int read_row(const struct gguf_tensors *c, const struct gguf_tensor *from, int64_t row,
                    float *out, struct err *err) {
    const int64_t n = from->shape[from->n_dims - 1];
    return read_values(c, &(struct source){.from = from}, row, n, 0, n, out, err);
}

// Rows [first, first + n) of latent attention's matrix: of each head the keys' rows, then the values'.
static int read_latent(const struct gguf_tensors *c, const struct source *s, int64_t first,
                       int64_t n, float *out, struct err *err) {
    const struct gguf_tensor *k = s->keys, *v = s->from;
    const int64_t rank = v->shape[2], n_keys = k->shape[2], each = n_keys + v->shape[1];
    float *head = malloc((size_t)(rank * n_keys) * sizeof *head); // (rank, n_keys) of head `at`
    int64_t at = -1;
    int rc = head ? 0 : err_set(err, E_NOMEM, "no memory for a head of '%s'", k->name);
    for (int64_t i = first; rc == 0 && i < first + n; i++, out += rank) {
        const int64_t h = i / each, row = i % each;
        if (row >= n_keys) {
            rc = read_row(c, v, h * v->shape[1] + row - n_keys, out, err);
            continue;
        }
        for (int64_t r = 0; rc == 0 && at != h && r < rank; r++)
            rc = read_row(c, k, h * rank + r, head + r * n_keys, err);
        at = h;
        for (int64_t r = 0; rc == 0 && r < rank; r++) out[r] = head[r * n_keys + row];
    }
    free(head);
    return rc;
}

// Any bytes of that matrix, by whole rows.
static int read_latent_bytes(const struct gguf_tensors *c, const struct tensor *t,
                             const struct source *s, size_t offset, void *out, size_t n,
                             struct err *err) {
    const size_t row_bytes = (size_t)t->shape[1] * sizeof(float);
    const size_t first = offset / row_bytes, end = (offset + n + row_bytes - 1) / row_bytes;
    float *rows = n > 0 ? malloc((end - first) * row_bytes) : NULL;
    if (n == 0) return 0;
    if (!rows) return err_set(err, E_NOMEM, "no memory for rows of '%s'", t->name);
    int rc = read_latent(c, s, (int64_t)first, (int64_t)(end - first), rows, err);
    if (rc == 0) memcpy(out, (char *)rows + (offset - first * row_bytes), n);
    free(rows);
    return rc;
}

// A piece of one row. F16 and BF16 are copied as they are.
static int read_piece(const struct gguf_tensors *c, const struct tensor *t, const struct source *s,
                      int64_t row, size_t from, void *out, size_t n, struct err *err) {
    const int64_t row_values = t->shape[t->n_dims - 1];
    const size_t size = dtype_size(t->dtype);
    row = stored_row(s, row);
    if (t->dtype != DTYPE_F32)
        return gguf_read(c->g, s->from, (uint64_t)row * (uint64_t)row_values * size + from, out, n,
                         err);
    while (n > 0) { // by pieces that end with a value, since a read may begin within one
        float some[512];
        const bool whole = from % size == 0 && n >= size && (uintptr_t)out % sizeof *some == 0;
        float *values = whole ? out : some;
        const size_t skip = from % size, room = whole ? n / size * size : sizeof some - skip;
        const size_t here = n < room ? n : room;
        const int64_t n_values = (int64_t)((skip + here + size - 1) / size);
        TRY(read_values(c, s, row, row_values, (int64_t)(from / size), n_values, values, err));
        for (int64_t i = 0; i < n_values && s->change == GGUF_PLUS_ONE; i++) values[i] -= 1;
        for (int64_t i = 0; i < n_values && s->factor != 1; i++) values[i] *= s->factor;
        if (!whole) memcpy(out, (const char *)values + skip, here);
        out = (char *)out + here;
        from += here;
        n -= here;
    }
    return 0;
}

// Whole rows from `first` on, which several threads read, at least 1 MiB each.
struct rows_read {
    const struct gguf_tensors *c;
    const struct tensor *t;
    int64_t first;
    size_t row_bytes;
    char *out;
    int failed; // the first failure's code; err is its
    struct err *err;
};

static void read_some_rows(void *ctx, int64_t at, int64_t n) {
    struct rows_read *r = ctx;
    struct err why = {0};
    int none = 0;
    for (int64_t i = at; i < at + n && !__atomic_load_n(&r->failed, __ATOMIC_RELAXED); i++)
        if (read_piece(r->c, r->t, &r->c->sources[r->t - r->c->tensors], r->first + i, 0,
                       r->out + (size_t)i * r->row_bytes, r->row_bytes, &why) < 0 &&
            __atomic_compare_exchange_n(&r->failed, &none, why.code, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            err_set(r->err, why.code, "%s", why.text);
}

int gguf_tensors_read(const struct gguf_tensors *c, const struct tensor *t, size_t offset,
                      void *out, size_t n, struct err *err) {
    const struct source *s = &c->sources[t - c->tensors];
    struct source vector;
    // A vector is a column where its values are permuted as rows, else one row.
    const bool column = t->n_dims == 1 && s->change == GGUF_PAIRED_ROWS;
    const size_t size = dtype_size(t->dtype);
    const size_t row_bytes = column ? size : (size_t)t->shape[t->n_dims - 1] * size;
    char *to = out;
    if (offset > t->bytes || n > t->bytes - offset)
        return err_set(err, E_INTERNAL, "a read past the tensor '%s'", t->name);
    if (s->keys) return read_latent_bytes(c, t, s, offset, out, n, err);
    if (!s->from) return memcpy(out, (const char *)&s->value + offset, n), 0;
    if (t->n_dims == 1 && s->first_row > 0) {
        vector = *s;
        vector.first_row = 0;
        return read_piece(c, t, &vector, 0, (size_t)s->first_row * size + offset, out, n, err);
    }
    if (!column && offset % row_bytes == 0 && n % row_bytes == 0 && n > row_bytes) {
        struct rows_read r = {c, t, (int64_t)(offset / row_bytes), row_bytes, out, 0, err};
        parallel_ranges((int64_t)(n / row_bytes), (1 << 20) / (int64_t)row_bytes + 1,
                        read_some_rows, &r);
        return r.failed;
    }
    while (n > 0) {
        size_t row = offset / row_bytes, from = offset % row_bytes;
        size_t here = row_bytes - from < n ? row_bytes - from : n;
        if (column)
            TRY(read_piece(c, t, s, 0, (size_t)stored_row(s, (int64_t)row) * size, to, here, err));
        else
            TRY(read_piece(c, t, s, (int64_t)row, from, to, here, err));
        to += here;
        offset += here;
        n -= here;
    }
    return 0;
}

// --- as codes and scales ---

bool gguf_tensors_groups(const struct gguf_tensors *c, const struct tensor *t,
                         struct group_format *out) {
    const struct source *s = &c->sources[t - c->tensors];
    return t->n_dims >= 2 && s->change != GGUF_PLUS_ONE && !s->keys &&
           block_groups_format(s->from->type, out) &&
           (s->factor == 1 || out->scale == GROUP_SCALE_F32);
}

// Blocks with scales in F32 have several groups, so that a row's columns may begin or end within one.
static int read_within(const struct block_type *type, const struct group_format *f,
                       const uint8_t *stored, int64_t blocks, int64_t skip, int64_t n,
                       struct group_row *out) {
    struct group_row whole;
    void *memory = group_row_alloc(&whole, blocks * type->values);
    if (!memory) return E_NOMEM;
    int rc = block_groups_read(type, stored, blocks, &whole);
    memcpy(out->codes, whole.codes + skip, (size_t)n);
    memcpy(out->scales, (const float *)whole.scales + skip / f->group,
           (size_t)(n / f->group) * sizeof(float));
    free(memory);
    return rc;
}

int gguf_tensors_groups_row(const struct gguf_tensors *c, const struct tensor *t, int64_t row,
                            int64_t first, int64_t n, struct group_row *out, struct err *err) {
    const struct source *s = &c->sources[t - c->tensors];
    const struct block_type *type = s->from->type;
    const int64_t skip = first % type->values, row_blocks = t->shape[t->n_dims - 1] / type->values;
    const int64_t blocks = (skip + n + type->values - 1) / type->values;
    const uint64_t from = (uint64_t)(stored_row(s, row) * row_blocks + first / type->values);
    struct group_format f;
    uint8_t *stored = malloc((size_t)(blocks * type->bytes) + 1);
    if (!stored) return err_set(err, E_NOMEM, "no memory for a row of '%s'", t->name);
    int rc = gguf_read(c->g, s->from, from * (uint64_t)type->bytes, stored,
                       (size_t)(blocks * type->bytes), err);
    if (rc < 0) goto end;
    block_groups_format(type, &f);
    rc = blocks * type->values == n ? block_groups_read(type, stored, blocks, out)
                                    : read_within(type, &f, stored, blocks, skip, n, out);
    for (int64_t i = 0; rc == 0 && s->factor != 1 && i < n / f.group; i++) {
        ((float *)out->scales)[i] *= s->factor;
        if (!isfinite(((float *)out->scales)[i])) rc = E_FORMAT;
    }
    if (rc == E_NOMEM) err_set(err, rc, "no memory for a row of '%s'", t->name);
    if (rc == E_FORMAT) no_number(s, err);
end:
    free(stored);
    return rc;
}
