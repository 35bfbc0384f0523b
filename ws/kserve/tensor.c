// Reading and writing tensors. See tensor.h.
#include "ws/kserve/tensor.h"
#include <endian.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define INPUTS_MAX 64

static const struct {
    const char *name;
    unsigned char size; // bytes of an element; 0: BYTES
    bool is_float;
    double min, max; // of JSON numbers
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

static int put_number(struct tensor *t, size_t i, const cJSON *v, struct err *err) {
    size_t size = types[t->type].size;
    bool is_bool = t->type == TENSOR_BOOL && cJSON_IsBool(v);
    double d = is_bool ? cJSON_IsTrue(v) : v->valuedouble;
    uint64_t bits;
    if (!is_bool && !cJSON_IsNumber(v))
        return err_set(err, E_INVAL, "input '%s': element %zu is not a number", t->name, i);
    if (t->type == TENSOR_FP16 || t->type == TENSOR_BF16)
        return err_set(err, E_INVAL, "input '%s': %s data is accepted in binary form only", t->name,
                       types[t->type].name);
    if (d < types[t->type].min || d > types[t->type].max ||
        (!types[t->type].is_float && d != floor(d)))
        return err_set(err, E_INVAL, "input '%s': element %zu is no %s", t->name, i,
                       types[t->type].name);
    if (t->type == TENSOR_FP32) {
        float f = (float)d;
        uint32_t f_bits;
        memcpy(&f_bits, &f, sizeof f_bits);
        bits = f_bits;
    } else if (t->type == TENSOR_FP64) {
        memcpy(&bits, &d, sizeof bits);
    } else {
        bits = d < 0 ? (uint64_t)(int64_t)d : (uint64_t)d;
    }
    store(t->data + i * size, bits, size);
    return 0;
}

static int put_element(struct tensor *t, size_t i, const cJSON *v, struct err *err) {
    if (t->type != TENSOR_BYTES) return put_number(t, i, v, err);
    if (!cJSON_IsString(v))
        return err_set(err, E_INVAL, "input '%s': element %zu is not a string", t->name, i);
    t->texts[i] = (struct tensor_text){v->valuestring, strlen(v->valuestring)};
    return 0;
}

// --- reading ---

// "data" is flat, or nested as the shape says; both are read in row-major order.
static int read_json(struct tensor *t, const cJSON *array, size_t *i, struct err *err) {
    const cJSON *v;
    cJSON_ArrayForEach(v, array) {
        if (cJSON_IsArray(v)) {
            TRY(read_json(t, v, i, err));
            continue;
        }
        if (*i == t->n)
            return err_set(err, E_INVAL, "input '%s' has more than the %zu elements of its shape",
                           t->name, t->n);
        TRY(put_element(t, (*i)++, v, err));
    }
    return 0;
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
        return err_set(err, E_INVAL, "input '%s' has %zu bytes behind its elements", t->name,
                       len - at);
    return 0;
}

static int read_binary(struct tensor *t, const char *bytes, size_t len, struct err *err) {
    size_t size = types[t->type].size;
    if (t->type == TENSOR_BYTES) return read_texts(t, bytes, len, err);
    if (len != t->n * size)
        return err_set(err, E_INVAL, "input '%s' has %zu bytes of data, its shape needs %zu",
                       t->name, len, t->n * size);
    if (len) memcpy(t->data, bytes, len);
    return 0;
}

static int read_shape(struct tensor *t, const cJSON *input, struct err *err) {
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(input, "shape"), *dim;
    t->n = 1;
    if (!cJSON_IsArray(shape) || cJSON_GetArraySize(shape) > TENSOR_MAX_DIMS)
        return err_set(err, E_INVAL, "input '%s': shape must be an array of at most %d numbers",
                       t->name, TENSOR_MAX_DIMS);
    cJSON_ArrayForEach(dim, shape) {
        double d = cJSON_IsNumber(dim) ? dim->valuedouble : -1;
        if (d < 0 || d > INT32_MAX || d != floor(d))
            return err_set(err, E_INVAL, "input '%s': a dimension must be from 0 to %d", t->name,
                           INT32_MAX);
        if (d > 0 && t->n > SIZE_MAX / 64 / (size_t)d)
            return err_set(err, E_INVAL, "input '%s' has too many elements", t->name);
        t->shape[t->n_dims++] = (int64_t)d;
        t->n *= (size_t)d;
    }
    return 0;
}

// A value takes at least two bytes of JSON or one of binary data, so what can be sent bounds what is
// allocated.
static int allocate(struct tensor *t, size_t n_possible, struct err *err) {
    if (t->n > n_possible)
        return err_set(err, E_INVAL, "input '%s' has fewer elements than the %zu of its shape",
                       t->name, t->n);
    if (t->type == TENSOR_BYTES)
        t->texts = calloc(t->n + 1, sizeof *t->texts);
    else
        t->data = malloc(t->n * types[t->type].size + 1);
    return t->texts || t->data ? 0 : err_set(err, E_NOMEM, "the server is out of memory");
}

static int read_input(struct tensor *t, const cJSON *input, const char **binary, size_t *left,
                      struct err *err) {
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(input, "data"), *parameters;
    int64_t size = -1;
    TRY(json_get_string(input, "name", &t->name, err));
    if (!t->name) return err_set(err, E_INVAL, "an input has no name");
    const char *datatype =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(input, "datatype"));
    int type = type_find(datatype);
    if (type < 0) return err_set(err, E_INVAL, "input '%s': unknown datatype", t->name);
    t->type = (enum tensor_type)type;
    TRY(read_shape(t, input, err));
    int rc = json_get_object(input, "parameters", &parameters, err);
    TRY(rc);
    if (rc == JSON_PRESENT)
        TRY(json_get_int(parameters, "binary_data_size", 0, INT32_MAX, &size, err));
    if (size >= 0 && data)
        return err_set(err, E_INVAL, "input '%s' has data and binary_data_size", t->name);
    if (size >= 0) {
        if ((size_t)size > *left)
            return err_set(err, E_INVAL, "input '%s': the body ends before its %lld bytes of data",
                           t->name, (long long)size);
        TRY(allocate(t, (size_t)size, err));
        TRY(read_binary(t, *binary, (size_t)size, err));
        *binary += size;
        *left -= (size_t)size;
        return 0;
    }
    if (!cJSON_IsArray(data)) return err_set(err, E_INVAL, "input '%s' has no data", t->name);
    size_t n = 0;
    TRY(allocate(t, json_limits_message.max_nodes, err));
    TRY(read_json(t, data, &n, err));
    if (n < t->n)
        return err_set(err, E_INVAL, "input '%s' has %zu elements, its shape needs %zu", t->name, n,
                       t->n);
    return 0;
}

int tensors_read(struct tensors *out, const cJSON *request, const char *binary, size_t binary_len,
                 struct err *err) {
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(request, "inputs"), *input;
    *out = (struct tensors){0};
    if (!cJSON_IsArray(inputs)) return err_set(err, E_INVAL, "inputs is missing");
    size_t n = (size_t)cJSON_GetArraySize(inputs);
    if (n > INPUTS_MAX) return err_set(err, E_INVAL, "there are more than %d inputs", INPUTS_MAX);
    out->list = calloc(n + 1, sizeof *out->list);
    if (!out->list) return err_set(err, E_NOMEM, "the server is out of memory");
    cJSON_ArrayForEach(input, inputs) {
        struct tensor *t = &out->list[out->n];
        out->n++;
        TRY(read_input(t, input, &binary, &binary_len, err));
        if (tensors_find(out, t->name) != t)
            return err_set(err, E_INVAL, "input '%s' is given twice", t->name);
    }
    if (binary_len)
        return err_set(err, E_INVAL, "the body has %zu bytes behind its last input", binary_len);
    return 0;
}

void tensors_release(struct tensors *t) {
    for (size_t i = 0; i < t->n; i++) {
        free(t->list[i].data);
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

// --- writing ---

static size_t count(const struct tensor_out *t) {
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    return n;
}

static void write_json(struct json_writer *w, const struct tensor_out *t) {
    json_open(w, "data", '[');
    for (size_t i = 0, n = count(t); i < n; i++) {
        if (t->texts)
            json_put_text(w, NULL, t->texts[i].bytes, t->texts[i].len);
        else if (t->floats)
            json_put_float(w, NULL, t->floats[i]);
        else if (t->type == TENSOR_BOOL)
            json_put_bool(w, NULL, t->ints[i] != 0);
        else
            json_put_int(w, NULL, t->ints[i]);
    }
    json_close(w, ']');
}

static void write_raw(struct buf *raw, const struct tensor_out *t) {
    unsigned char bytes[8];
    uint32_t bits;
    for (size_t i = 0, n = count(t); i < n; i++) {
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

void tensor_write(struct json_writer *w, const struct tensor_out *t, struct buf *raw) {
    size_t before = raw->len;
    json_open(w, NULL, '{');
    json_put_string(w, "name", t->name);
    json_put_string(w, "datatype", types[t->type].name);
    json_open(w, "shape", '[');
    for (int i = 0; i < t->n_dims; i++) json_put_int(w, NULL, t->shape[i]);
    json_close(w, ']');
    if (t->binary) {
        write_raw(raw, t);
        json_open(w, "parameters", '{');
        json_put_int(w, "binary_data_size", (int64_t)(raw->len - before));
        json_close(w, '}');
    } else {
        write_json(w, t);
    }
    json_close(w, '}');
}
