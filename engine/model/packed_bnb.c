// See packed_bnb.h.
#include "engine/model/packed_bnb.h"
#include "base/json.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    STATE_MAX_BYTES = 4096, // of quant_state's JSON
    PIECE_VALUES = 1 << 16, // decoded at a time
    MAX_BLOCK = 1 << 16
};
static const struct json_limits state_limits = {STATE_MAX_BYTES, 4, 100};

struct bnb_matrix {
    struct bnb_parts parts;
    const char *name; // of the tensor as shown
    struct packed_reader reader;
    enum dtype dtype;
    int64_t n, block, n_blocks; // values; values of a scale; scales
    int64_t nested_block;       // scales that share one; 0: they are plain F32
    float offset;               // of nested scales
    float map[16], nested[256]; // what codes, and the codes of scales, stand for
    float *nested_absmax;       // (n_blocks / nested_block, rounded up) or NULL
};

// --- opening ---

static int misfit(const struct bnb_matrix *m, const char *what, struct err *err) {
    return err_set(err, E_FORMAT, "the matrix '%.200s': %s", m->name, what);
}

static int64_t blocks_of(int64_t n, int64_t block) {
    return n / block + (n % block != 0);
}

// The part's values as n finite F32 numbers.
static int read_floats(const struct bnb_matrix *m, const struct tensor *t, int64_t n, float *out,
                       const char *what, struct err *err) {
    if (!t || t->dtype != DTYPE_F32 || t->bytes != (size_t)n * sizeof *out)
        return misfit(m, what, err);
    TRY(m->reader.read(m->reader.ctx, t, 0, out, t->bytes, err));
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return err_set(err, E_FORMAT, "the tensor '%s' holds a number that is infinite or none",
                           t->name);
    return 0;
}

static int read_shape(struct bnb_matrix *m, const cJSON *state, struct tensor *shown,
                      struct err *err) {
    const cJSON *shape = json_member(state, "shape"), *size;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) != 2)
        return misfit(m, "its quant_state names no shape of two sizes", err);
    m->n = 1;
    cJSON_ArrayForEach(size, shape) {
        if (!cJSON_IsNumber(size) || !(size->valuedouble >= 1 && size->valuedouble <= INT32_MAX))
            return misfit(m, "its quant_state has an impossible shape", err);
        shown->shape[shown->n_dims++] = (int64_t)size->valuedouble;
        m->n *= (int64_t)size->valuedouble;
    }
    return 0;
}

static int read_dtype(struct bnb_matrix *m, const cJSON *state, struct err *err) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } known[] = {{"bfloat16", DTYPE_BF16}, {"float16", DTYPE_F16}, {"float32", DTYPE_F32}};
    const char *name = json_string(state, "dtype");
    for (size_t i = 0; name && i < sizeof known / sizeof *known; i++) {
        if (strcmp(name, known[i].name) != 0) continue;
        m->dtype = known[i].dtype;
        return 0;
    }
    return err_set(
        err, E_UNSUPPORTED,
        "the matrix '%.200s': its quant_state has the dtype '%.40s'; known are bfloat16, "
        "float16 and float32",
        m->name, name ? name : "");
}

static int read_block(const struct bnb_matrix *m, const cJSON *state, const char *key, int64_t *out,
                      struct err *err) {
    const cJSON *size = json_member(state, key);
    if (!cJSON_IsNumber(size) || !(size->valuedouble >= 2 && size->valuedouble <= MAX_BLOCK) ||
        size->valuedouble != floor(size->valuedouble))
        return misfit(m, "its quant_state has no size of blocks from 2 to 65536", err);
    *out = (int64_t)size->valuedouble;
    return 0;
}

static int read_nested(struct bnb_matrix *m, const cJSON *state, struct err *err) {
    const cJSON *offset = json_member(state, "nested_offset");
    TRY(read_block(m, state, "nested_blocksize", &m->nested_block, err));
    if (!cJSON_IsNumber(offset) || !isfinite((float)offset->valuedouble))
        return misfit(m, "its quant_state has no nested_offset", err);
    m->offset = (float)offset->valuedouble;
    const int64_t n = blocks_of(m->n_blocks, m->nested_block);
    TRY(read_floats(m, m->parts.nested_map, 256, m->nested,
                    "its nested_quant_map is not of 256 F32 numbers", err));
    if (!m->parts.nested_absmax || m->parts.nested_absmax->bytes != (size_t)n * sizeof(float))
        return misfit(m, "its nested_absmax has another shape or type", err);
    m->nested_absmax = malloc((size_t)n * sizeof(float));
    if (!m->nested_absmax) return err_set(err, E_NOMEM, "no memory for '%.200s'", m->name);
    return read_floats(m, m->parts.nested_absmax, n, m->nested_absmax,
                       "its nested_absmax has another shape or type", err);
}

static int read_state(struct bnb_matrix *m, const cJSON *state, struct tensor *shown,
                      struct err *err) {
    const struct bnb_parts *p = &m->parts;
    TRY(read_shape(m, state, shown, err));
    TRY(read_dtype(m, state, err));
    TRY(read_block(m, state, "blocksize", &m->block, err));
    m->n_blocks = blocks_of(m->n, m->block);
    if (p->codes->bytes != (size_t)(m->n / 2 + m->n % 2))
        return misfit(m, "its codes do not fill the shape of its quant_state", err);
    TRY(read_floats(m, p->map, 16, m->map, "its quant_map is not of 16 F32 numbers", err));
    const bool nested = p->absmax && p->absmax->dtype == DTYPE_U8;
    const size_t each = nested ? 1 : sizeof(float);
    if (!p->absmax || (!nested && p->absmax->dtype != DTYPE_F32) ||
        p->absmax->bytes != (size_t)m->n_blocks * each)
        return misfit(m, "its absmax has another shape or type", err);
    shown->dtype = m->dtype;
    shown->bytes = (size_t)m->n * dtype_size(m->dtype);
    return nested ? read_nested(m, state, err) : 0;
}

int bnb_matrix_open(struct bnb_matrix **out, const struct bnb_parts *parts, struct tensor *shown,
                    struct packed_reader reader, struct err *err) {
    char text[STATE_MAX_BYTES];
    const struct tensor *state = parts->state;
    struct bnb_matrix *m = calloc(1, sizeof *m);
    struct err why = {0};
    *out = m;
    if (!m) return err_set(err, E_NOMEM, "no memory for '%.200s'", shown->name);
    *m = (struct bnb_matrix){.parts = *parts, .name = shown->name, .reader = reader};
    if (state->dtype != DTYPE_U8 || state->bytes > sizeof text)
        return misfit(m, "its quant_state is not of up to 4096 bytes", err);
    TRY(reader.read(reader.ctx, state, 0, text, state->bytes, err));
    cJSON *json = json_parse(text, state->bytes, &state_limits, &why);
    if (!cJSON_IsObject(json)) {
        cJSON_Delete(json);
        return misfit(m, "its quant_state is no JSON object", err);
    }
    int rc = read_state(m, json, shown, err);
    cJSON_Delete(json);
    return rc;
}

void bnb_matrix_close(struct bnb_matrix *m) {
    if (!m) return;
    free(m->nested_absmax);
    free(m);
}

// --- reading ---

// The scales [first, first + n), of which `bytes` are as stored.
static int scales(const struct bnb_matrix *m, int64_t first, int64_t n, const uint8_t *bytes,
                  float *out, struct err *err) {
    for (int64_t i = 0; i < n; i++) {
        if (m->nested_block)
            out[i] =
                m->nested[bytes[i]] * m->nested_absmax[(first + i) / m->nested_block] + m->offset;
        else
            memcpy(&out[i], bytes + (size_t)i * sizeof *out, sizeof *out);
        if (!isfinite(out[i]))
            return err_set(err, E_FORMAT,
                           "the tensor '%s' holds a scale that is infinite or no number",
                           m->parts.absmax->name);
    }
    return 0;
}

static void put(enum dtype dtype, void *out, int64_t i, float v) {
    if (dtype == DTYPE_F32)
        ((float *)out)[i] = v;
    else
        ((uint16_t *)out)[i] = dtype == DTYPE_F16 ? f16_from_f32(v) : bf16_from_f32(v);
}

// Values [first, first + n), at most PIECE_VALUES. room: for codes, stored scales and scales of so many values.
static int decode(const struct bnb_matrix *m, int64_t first, int64_t n, char *room, void *out,
                  struct err *err) {
    const struct bnb_parts *p = &m->parts;
    const int64_t block = first / m->block, count = (first + n - 1) / m->block - block + 1;
    const size_t each = m->nested_block ? 1 : sizeof(float);
    float *absmax = (float *)(void *)room;
    uint8_t *stored = (uint8_t *)(absmax + count), *codes = stored + (size_t)count * sizeof(float);
    TRY(m->reader.read(m->reader.ctx, p->absmax, (size_t)block * each, stored, (size_t)count * each,
                       err));
    TRY(scales(m, block, count, stored, absmax, err));
    TRY(m->reader.read(m->reader.ctx, p->codes, (size_t)first / 2, codes,
                       (size_t)((first + n + 1) / 2 - first / 2), err));
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = first + i;
        const uint8_t two = codes[at / 2 - first / 2];
        put(m->dtype, out, i, m->map[at % 2 ? two & 15 : two >> 4] * absmax[at / m->block - block]);
    }
    return 0;
}

int bnb_matrix_read(const struct bnb_matrix *m, size_t offset, void *out, size_t n,
                    struct err *err) {
    const size_t size = dtype_size(m->dtype);
    const size_t piece = n / size + 2 < PIECE_VALUES ? n / size + 2 : PIECE_VALUES;
    const size_t blocks = piece / 2 + 2; // each has two values at least
    const size_t before = (blocks * 2 + piece / 8 + 1) * sizeof(float);
    char *room = malloc(before + piece * size);
    if (!room) return err_set(err, E_NOMEM, "no memory to read '%.200s'", m->name);
    char *values = room + before;
    int rc = 0;
    for (char *to = out; rc == 0 && n > 0;) {
        const int64_t first = (int64_t)(offset / size);
        const int64_t end = (int64_t)((offset + n + size - 1) / size);
        const int64_t count = end - first < (int64_t)piece ? end - first : (int64_t)piece;
        rc = decode(m, first, count, room, values, err);
        const size_t from = offset % size, have = (size_t)count * size - from;
        const size_t here = have < n ? have : n;
        if (rc == 0) memcpy(to, values + from, here);
        to += here;
        offset += here;
        n -= here;
    }
    free(room);
    return rc;
}
