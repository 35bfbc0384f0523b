// Tensors of the KServe v2 protocol: read from a request's JSON or binary form, and written in both.
//
// Binary form: the JSON comes first, in as many bytes as the header Inference-Header-Content-Length
// says, and the raw tensors follow in the order of the inputs: little-endian, row-major. An element
// of BYTES is a 32-bit length and so many bytes.
#pragma once
#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tensor_type {
    TENSOR_BOOL,
    TENSOR_UINT8,
    TENSOR_UINT16,
    TENSOR_UINT32,
    TENSOR_UINT64,
    TENSOR_INT8,
    TENSOR_INT16,
    TENSOR_INT32,
    TENSOR_INT64,
    TENSOR_FP16,
    TENSOR_FP32,
    TENSOR_FP64,
    TENSOR_BYTES,
    TENSOR_BF16,
    TENSOR_TYPES
};
const char *tensor_type_name(enum tensor_type t);

#define TENSOR_MAX_DIMS 6

// An input. Owned by its struct tensors.
struct tensor {
    const char *name; // borrowed from the request's JSON
    enum tensor_type type;
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS];
    size_t n;            // elements
    unsigned char *data; // numbers: (n) little-endian; BYTES: NULL
    struct tensor_text { // BYTES: (n), borrowed from the request
        const char *bytes;
        size_t len;
    } * texts;
};

struct tensors {
    struct tensor *list; // (n)
    size_t n;
};

// Reads the member "inputs" of a request; binary: (binary_len) what follows the JSON, which must be
// used up. E_INVAL, E_NOMEM; *err names the input.
int tensors_read(struct tensors *out, const cJSON *request, const char *binary, size_t binary_len,
                 struct err *err);
void tensors_release(struct tensors *t);
const struct tensor *tensors_find(const struct tensors *t, const char *name); // NULL: not given

// One element, which must exist, as a number. Not for BYTES.
double tensor_number(const struct tensor *t, size_t i);
uint64_t tensor_u64(const struct tensor *t, size_t i); // of integer types; negative ones wrap

// An output. values: (n) int64_t for integers and BOOL, float for FP32; texts for BYTES.
struct tensor_out {
    const char *name;
    enum tensor_type type; // BOOL, UINT32, INT32, FP32 or BYTES
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS];
    const int64_t *ints;
    const float *floats;
    const struct tensor_text *texts;
    bool binary;
};
// Appends the output's object to an array. With binary, its raw bytes go to *raw.
void tensor_write(struct json_writer *w, const struct tensor_out *t, struct buf *raw);
