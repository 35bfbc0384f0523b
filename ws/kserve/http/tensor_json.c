// Reading and writing tensors over HTTP. See tensor_json.h.
#include "ws/kserve/http/tensor_json.h"
#include "base/json_form.h"
#include "base/json_raw.h"
#include "ws/kserve/http/number_data.h"
#include <string.h>

// --- reading ---

// A 64-bit integer as it was written: a double would lose its last digits. false: not an integer.
static bool parse_integer(const char *raw, uint64_t *magnitude, bool *negative) {
    *negative = *raw == '-';
    if (*negative) raw++;
    *magnitude = 0;
    if (*raw < '0' || *raw > '9') return false;
    for (; *raw >= '0' && *raw <= '9'; raw++) {
        unsigned digit = (unsigned)(*raw - '0');
        if (*magnitude > (UINT64_MAX - digit) / 10) return false;
        *magnitude = *magnitude * 10 + digit;
    }
    return *raw != '.' && *raw != 'e' && *raw != 'E';
}

static int put_element(struct tensor *t, size_t i, const cJSON *v, const char *raw,
                       struct err *err) {
    uint64_t magnitude;
    bool negative;
    if (t->type == TENSOR_BYTES) {
        if (!cJSON_IsString(v))
            return err_set(err, E_INVAL, "input '%s': element %zu is not a string", t->name, i);
        return tensor_set_text(t, i, v->valuestring, strlen(v->valuestring), err);
    }
    if (t->type == TENSOR_BOOL && cJSON_IsBool(v))
        return tensor_set_number(t, i, cJSON_IsTrue(v), err);
    if (!cJSON_IsNumber(v))
        return err_set(err, E_INVAL, "input '%s': element %zu is not a number", t->name, i);
    if (raw && parse_integer(raw, &magnitude, &negative))
        return tensor_set_integer(t, i, magnitude, negative, err);
    return tensor_set_number(t, i, v->valuedouble, err);
}

// "data" is flat, or nested as the shape says; both are read in row-major order. raw: the array's
// text where elements are read from it, or NULL.
static int read_array(struct tensor *t, const cJSON *array, const char *raw, size_t *i,
                      struct err *err) {
    const cJSON *v;
    const char *item = raw ? json_raw_first(raw) : NULL;
    cJSON_ArrayForEach(v, array) {
        if (cJSON_IsArray(v)) {
            TRY(read_array(t, v, item, i, err));
        } else {
            if (*i == t->n)
                return err_set(err, E_INVAL,
                               "input '%s' has more than the %zu elements of its shape", t->name,
                               t->n);
            TRY(put_element(t, (*i)++, v, item, err));
        }
        if (item) item = json_raw_next(item);
    }
    return 0;
}

// An array that number_data_hollow has emptied in the tree. n_possible: a number takes two characters.
static int read_hollow(struct tensor *t, const char *raw, size_t len, struct err *err) {
    if (t->type == TENSOR_BYTES)
        return err_set(err, E_INVAL, "input '%s': element 0 is not a string", t->name);
    if (t->n > len / 2 + 1)
        return err_set(err, E_INVAL, "input '%s' has fewer elements than the %zu of its shape",
                       t->name, t->n);
    return number_data_read(t, raw, err);
}

static int read_data(struct tensor *t, const cJSON *data, const char *input, struct err *err) {
    bool is_wide = t->type == TENSOR_UINT64 || t->type == TENSOR_INT64;
    size_t n = 0, len = 0;
    const char *raw = input ? json_raw_value(input, "data", &len) : NULL;
    if (!cJSON_IsArray(data)) return err_set(err, E_INVAL, "input '%s' has no data", t->name);
    if (raw && !data->child && json_raw_first(raw)) return read_hollow(t, raw, len, err);
    if (!is_wide) raw = NULL;
    TRY(tensor_allocate(t, json_limits_message.max_nodes, err));
    TRY(read_array(t, data, raw, &n, err));
    if (n < t->n)
        return err_set(err, E_INVAL, "input '%s' has %zu elements, its shape needs %zu", t->name, n,
                       t->n);
    return 0;
}

static int read_shape(struct tensor *t, const cJSON *input, struct err *err) {
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(input, "shape"), *dim;
    if (!cJSON_IsArray(shape))
        return err_set(err, E_INVAL, "input '%s': shape must be an array of at most %d numbers",
                       t->name, TENSOR_MAX_DIMS);
    cJSON_ArrayForEach(dim, shape)
        TRY(tensor_add_dim(t, cJSON_IsNumber(dim) ? dim->valuedouble : -1, err));
    return 0;
}

static int read_input(struct tensors *all, const cJSON *input, const char *text,
                      const char **binary, size_t *left, struct err *err) {
    const cJSON *data = cJSON_GetObjectItemCaseSensitive(input, "data"), *parameters;
    const char *name = NULL;
    struct tensor *t;
    int64_t size = -1;
    TRY(json_get_string(input, "name", &name, err));
    TRY(tensors_add(all, name,
                    cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(input, "datatype")), &t,
                    err));
    TRY(read_shape(t, input, err));
    int rc = json_get_object(input, "parameters", &parameters, err);
    TRY(rc);
    if (rc == JSON_PRESENT) {
        const cJSON *p;
        cJSON_ArrayForEach(p, parameters) TRY(tensor_check_parameter(name, p->string, err));
        TRY(json_get_int(parameters, "binary_data_size", 0, INT32_MAX, &size, err));
    }
    if (size < 0) return read_data(t, data, text, err);
    if (data) return err_set(err, E_INVAL, "input '%s' has data and binary_data_size", name);
    if ((size_t)size > *left)
        return err_set(err, E_INVAL, "input '%s': the body ends before its %lld bytes of data",
                       name, (long long)size);
    TRY(tensor_set_raw(t, *binary, (size_t)size, err));
    *binary += size;
    *left -= (size_t)size;
    return 0;
}

int tensors_read(struct tensors *out, const cJSON *request, const char *text, const char *binary,
                 size_t binary_len, struct err *err) {
    const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(request, "inputs"), *input;
    size_t len;
    *out = (struct tensors){0};
    if (!cJSON_IsArray(inputs)) return err_set(err, E_INVAL, "inputs is missing");
    TRY(tensors_init(out, (size_t)cJSON_GetArraySize(inputs), err));
    const char *array = json_raw_value(text, "inputs", &len); // NULL: its name has escapes
    const char *item = array ? json_raw_first(array) : NULL;
    cJSON_ArrayForEach(input, inputs) {
        TRY(read_input(out, input, item, &binary, &binary_len, err));
        if (item) item = json_raw_next(item);
    }
    if (binary_len)
        return err_set(err, E_INVAL, "the body has %zu bytes after its last input", binary_len);
    return 0;
}

// --- writing ---

static void write_data(struct json_writer *w, const struct tensor_out *t) {
    json_open(w, "data", '[');
    for (size_t i = 0, n = tensor_out_count(t); i < n; i++) {
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

void tensor_write(struct json_writer *w, const struct tensor_out *t, struct buf *raw) {
    size_t before = raw->len;
    json_form(w, "{name:%s,datatype:%s,shape:[", t->name, tensor_type_name(t->type));
    for (int i = 0; i < t->n_dims; i++) json_put_int(w, NULL, t->shape[i]);
    json_close(w, ']');
    if (t->binary) {
        tensor_out_raw(t, raw);
        json_form(w, "parameters:{binary_data_size:%ld}", (int64_t)(raw->len - before));
    } else {
        write_data(w, t);
    }
    json_close(w, '}');
}
