// Elements of tensors and their raw form. See tensor.h.
#include "ws/kserve/tensor.h"
#include "ws/kserve/code.h"
#include <endian.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    unsigned char size; // bytes of an element; 0: BYTES
    bool is_float;
    double min, max; // of numbers; UINT64 and INT64 beyond 2^53 are set as integers
} types[TENSOR_TYPES] = {
    [TENSOR_BOOL] = {"BOOL", 1, false, 0, 1},
    [TENSOR_UINT8] = {"UINT8", 1, false, 0, UINT8_MAX},
    [TENSOR_UINT16] = {"UINT16", 2, false, 0, UINT16_MAX},
    [TENSOR_UINT32] = {"UINT32", 4, false, 0, UINT32_MAX},
    [TENSOR_UINT64] = {"UINT64", 8, false, 0, 0x1p53},
    [TENSOR_INT8] = {"INT8", 1, false, INT8_MIN, INT8_MAX},
    [TENSOR_INT16] = {"INT16", 2, false, INT16_MIN, INT16_MAX},
    [TENSOR_INT32] = {"INT32", 4, false, INT32_MIN, INT32_MAX},
    [TENSOR_INT64] = {"INT64", 8, false, -0x1p53, 0x1p53},
    [TENSOR_FP16] = {"FP16", 2, true, 0, 0}, // in binary form only, as BF16
    [TENSOR_FP32] = {"FP32", 4, true, -3.4028234663852886e38, 3.4028234663852886e38},
    [TENSOR_FP64] = {"FP64", 8, true, -1.7976931348623157e308, 1.7976931348623157e308},
    [TENSOR_BYTES] = {"BYTES", 0, false, 0, 0},
    [TENSOR_BF16] = {"BF16", 2, true, 0, 0},
};

const char *tensor_type_name(enum tensor_type t) {
    return types[t].name;
}

static int type_find(const char *name) {
    for (int t = 0; name && t < TENSOR_TYPES; t++)
        if (strcmp(types[t].name, name) == 0) return t;
    return -1;
}

// --- elements ---

static uint64_t load(const unsigned char *p, size_t size) {
    uint64_t v = 0;
    for (size_t i = 0; i < size; i++) v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void store(unsigned char *p, uint64_t v, size_t size) {
    for (size_t i = 0; i < size; i++) p[i] = (unsigned char)(v >> (8 * i));
}

static float float_of_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static double double_of_half(uint32_t h) {
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, -24);
    return sign * ldexp(1024 + fraction, (int)exponent - 25);
}

uint64_t tensor_u64(const struct tensor *t, size_t i) {
    size_t size = types[t->type].size;
    uint64_t v = load(t->data + i * size, size);
    bool is_signed = t->type >= TENSOR_INT8 && t->type <= TENSOR_INT64;
    if (is_signed && size < 8 && v >> (8 * size - 1)) v |= UINT64_MAX << (8 * size);
    return v;
}

double tensor_number(const struct tensor *t, size_t i) {
    size_t size = types[t->type].size;
    uint64_t bits = tensor_u64(t, i);
    double d;
    switch (t->type) {
    case TENSOR_FP16:
        return double_of_half((uint32_t)bits);
    case TENSOR_BF16:
        return float_of_bits((uint32_t)bits << 16);
    case TENSOR_FP32:
        return float_of_bits((uint32_t)bits);
    case TENSOR_FP64:
        memcpy(&d, &bits, sizeof d);
        return d;
    default:
        return t->type >= TENSOR_INT8 && size ? (double)(int64_t)bits : (double)bits;
    }
}

static int refuse_element(const struct tensor *t, size_t i, struct err *err) {
    return err_set(err, E_INVAL, "input '%s': element %zu is not a valid %s", t->name, i,
                   types[t->type].name);
}

static int refuse_json(const struct tensor *t, struct err *err) {
    return err_set(err, E_INVAL, "input '%s': %s data is accepted in binary form only", t->name,
                   types[t->type].name);
}

int tensor_set_number(struct tensor *t, size_t i, double v, struct err *err) {
    size_t size = types[t->type].size;
    uint64_t bits;
    if (t->type == TENSOR_FP16 || t->type == TENSOR_BF16) return refuse_json(t, err);
    if (t->type == TENSOR_BYTES) return refuse_element(t, i, err);
    if (!(v >= types[t->type].min && v <= types[t->type].max) ||
        (!types[t->type].is_float && v != floor(v)))
        return refuse_element(t, i, err);
    if (t->type == TENSOR_FP32) {
        float f = (float)v;
        uint32_t f_bits;
        memcpy(&f_bits, &f, sizeof f_bits);
        bits = f_bits;
    } else if (t->type == TENSOR_FP64) {
        memcpy(&bits, &v, sizeof bits);
    } else {
        bits = v < 0 ? (uint64_t)(int64_t)v : (uint64_t)v;
    }
    store(t->own + i * size, bits, size);
    return 0;
}

int tensor_set_integer(struct tensor *t, size_t i, uint64_t magnitude, bool negative,
                       struct err *err) {
    bool is_wide = t->type == TENSOR_UINT64 || t->type == TENSOR_INT64;
    if (!is_wide) {
        double v = (double)magnitude;
        return tensor_set_number(t, i, negative ? -v : v, err);
    }
    uint64_t most =
        t->type == TENSOR_UINT64 ? (negative ? 0 : UINT64_MAX) : (uint64_t)INT64_MAX + negative;
    if (magnitude > most) return refuse_element(t, i, err);
    store(t->own + i * 8, negative ? -magnitude : magnitude, 8);
    return 0;
}

int tensor_set_text(struct tensor *t, size_t i, const char *bytes, size_t len, struct err *err) {
    if (t->type != TENSOR_BYTES) return refuse_element(t, i, err);
    t->texts[i] = (struct tensor_text){bytes, len};
    return 0;
}

// --- inputs ---

int tensors_init(struct tensors *t, size_t n, struct err *err) {
    *t = (struct tensors){0};
    if (n > TENSOR_MAX_INPUTS)
        return err_set(err, E_INVAL, "there are more than %d inputs", TENSOR_MAX_INPUTS);
    t->list = calloc(n + 1, sizeof *t->list);
    return t->list ? 0 : kserve_no_memory(err);
}

int tensor_check_parameter(const char *name, const char *key, struct err *err) {
    bool shared = strncmp(key, "shared_memory", 13) == 0;
    if (!shared && strcmp(key, "classification") != 0) return 0;
    return err_set(err, E_INVAL, "'%s': %s is not served here", name ? name : "",
                   shared ? "shared memory" : "classification");
}

int tensors_add(struct tensors *t, const char *name, const char *datatype, struct tensor **out,
                struct err *err) {
    int type = type_find(datatype);
    if (!name || !*name) return err_set(err, E_INVAL, "an input has no name");
    if (type < 0) return err_set(err, E_INVAL, "input '%s': unknown datatype", name);
    if (tensors_find(t, name)) return err_set(err, E_INVAL, "input '%s' is given twice", name);
    *out = &t->list[t->n++];
    **out = (struct tensor){.name = name, .type = (enum tensor_type)type, .n = 1};
    return 0;
}

void tensors_release(struct tensors *t) {
    for (size_t i = 0; i < t->n; i++) {
        free(t->list[i].own);
        free(t->list[i].texts);
    }
    free(t->list);
    *t = (struct tensors){0};
}

const struct tensor *tensors_find(const struct tensors *t, const char *name) {
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->list[i].name, name) == 0) return &t->list[i];
    return NULL;
}

int tensor_add_dim(struct tensor *t, double dim, struct err *err) {
    if (t->n_dims == TENSOR_MAX_DIMS)
        return err_set(err, E_INVAL, "input '%s': shape must be an array of at most %d numbers",
                       t->name, TENSOR_MAX_DIMS);
    if (!(dim >= 0 && dim <= INT32_MAX) || dim != floor(dim))
        return err_set(err, E_INVAL, "input '%s': a dimension must be from 0 to %d", t->name,
                       INT32_MAX);
    if (dim > 0 && t->n > SIZE_MAX / 64 / (size_t)dim)
        return err_set(err, E_INVAL, "input '%s' has too many elements", t->name);
    t->shape[t->n_dims++] = (int64_t)dim;
    t->n *= (size_t)dim;
    return 0;
}

int tensor_allocate(struct tensor *t, size_t n_possible, struct err *err) {
    if (t->n > n_possible)
        return err_set(err, E_INVAL, "input '%s' has fewer elements than the %zu of its shape",
                       t->name, t->n);
    if (t->type == TENSOR_BYTES)
        t->texts = calloc(t->n + 1, sizeof *t->texts);
    else
        t->data = t->own = malloc(t->n * types[t->type].size + 1);
    return t->texts || t->data ? 0 : kserve_no_memory(err);
}

static int read_texts(struct tensor *t, const char *bytes, size_t len, struct err *err) {
    size_t at = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (len - at < 4)
            return err_set(err, E_INVAL, "input '%s': the length of element %zu is missing",
                           t->name, i);
        size_t n = load((const unsigned char *)bytes + at, 4);
        at += 4;
        if (n > len - at)
            return err_set(err, E_INVAL, "input '%s': element %zu is cut short", t->name, i);
        t->texts[i] = (struct tensor_text){bytes + at, n};
        at += n;
    }
    if (at != len)
        return err_set(err, E_INVAL, "input '%s' has %zu bytes after its elements", t->name,
                       len - at);
    return 0;
}

int tensor_set_raw(struct tensor *t, const char *bytes, size_t len, struct err *err) {
    size_t size = types[t->type].size;
    if (t->type == TENSOR_BYTES) {
        TRY(tensor_allocate(t, len / 4, err));
        return read_texts(t, bytes, len, err);
    }
    if (len != t->n * size)
        return err_set(err, E_INVAL, "input '%s' has %zu bytes of data, its shape needs %zu",
                       t->name, len, t->n * size);
    t->data = (const unsigned char *)bytes;
    return 0;
}

// --- outputs ---

void tensor_out_add_dim(struct tensor_out *t, int64_t dim) {
    t->shape[t->n_dims++] = dim;
}

size_t tensor_out_count(const struct tensor_out *t) {
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    return n;
}

int tensor_out_allocate(struct tensor_out *t) {
    size_t n = tensor_out_count(t) + 1;
    if (t->type == TENSOR_BYTES) {
        t->texts = calloc(n, sizeof *t->texts);
        t->text_bufs = calloc(n, sizeof *t->text_bufs);
        return t->texts && t->text_bufs ? 0 : E_NOMEM;
    }
    if (t->type == TENSOR_FP32)
        t->floats = calloc(n, sizeof *t->floats);
    else
        t->ints = calloc(n, sizeof *t->ints);
    return t->floats || t->ints ? 0 : E_NOMEM;
}

void tensor_out_release(struct tensor_out *t) {
    for (size_t i = 0, n = tensor_out_count(t); t->text_bufs && i < n; i++)
        buf_release(&t->text_bufs[i]);
    free(t->text_bufs);
    free(t->texts);
    free(t->floats);
    free(t->ints);
    *t = (struct tensor_out){0};
}

int tensors_out_take(struct tensors_out *all, struct tensor_out *t) {
    if (all->n == all->cap) {
        size_t cap = all->cap ? all->cap * 2 : 8;
        struct tensor_out *grown = realloc(all->list, cap * sizeof *grown);
        if (!grown) return E_NOMEM;
        all->list = grown;
        all->cap = cap;
    }
    all->list[all->n++] = *t;
    *t = (struct tensor_out){0};
    return 0;
}

void tensors_out_release(struct tensors_out *all) {
    for (size_t i = 0; i < all->n; i++) tensor_out_release(&all->list[i]);
    free(all->list);
    *all = (struct tensors_out){0};
}

void tensor_out_raw(const struct tensor_out *t, struct buf *raw) {
    unsigned char bytes[8];
    uint32_t bits;
    for (size_t i = 0, n = tensor_out_count(t); i < n; i++) {
        size_t size = t->texts ? 4 : types[t->type].size;
        if (t->texts)
            bits = (uint32_t)t->texts[i].len;
        else if (t->floats)
            memcpy(&bits, &t->floats[i], sizeof bits);
        else
            bits = (uint32_t)t->ints[i];
        store(bytes, bits, size);
        buf_add(raw, bytes, size);
        if (t->texts) buf_add(raw, t->texts[i].bytes, t->texts[i].len);
    }
}
