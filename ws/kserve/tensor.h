// Tensors of the KServe v2 protocol, for every transport. Their raw form is Triton's: little-endian,
// row-major; an element of BYTES is a 32-bit length and that many bytes. Any thread.
#pragma once
#include "base/buf.h"
#include "base/err.h"
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
const char *tensor_type_name(enum tensor_type t); // KServe's: "FP32"

#define TENSOR_MAX_DIMS 6
#define TENSOR_MAX_INPUTS 64

// An input. Owned by its struct tensors; names, texts and numbers in raw form are borrowed from the request.
struct tensor {
    const char *name;
    enum tensor_type type;
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS];
    size_t n;                  // elements
    const unsigned char *data; // numbers: (n) little-endian; BYTES: NULL
    unsigned char *own;        // NULL, or data
    struct tensor_text {       // BYTES: (n)
        const char *bytes;
        size_t len;
    } * texts;
};

struct tensors {
    struct tensor *list; // (n)
    size_t n;
};

// Errors of all of these: E_INVAL, E_NOMEM; *err names the input.
int tensors_init(struct tensors *t, size_t n, struct err *err); // places for n inputs
void tensors_release(struct tensors *t);
// The next input, without data: its type by name, no dimension yet. *out lives as long as t.
int tensors_add(struct tensors *t, const char *name, const char *datatype, struct tensor **out,
                struct err *err);
const struct tensor *tensors_find(const struct tensors *t, const char *name); // NULL: not given
// Refuses the parameters of an input or output that ask for shared memory or for classes.
int tensor_check_parameter(const char *name, const char *key, struct err *err);

int tensor_add_dim(struct tensor *t, double dim, struct err *err); // a double holds every valid one
// Allocates the elements. n_possible: how many the message can hold, so that a small message cannot make
// the server allocate much.
int tensor_allocate(struct tensor *t, size_t n_possible, struct err *err);
// Sets all elements from their raw form, which is borrowed.
int tensor_set_raw(struct tensor *t, const char *bytes, size_t len, struct err *err);
// Set element i. The type must be able to hold the number; FP16 and BF16 come in raw form only.
int tensor_set_number(struct tensor *t, size_t i, double v, struct err *err);
int tensor_set_integer(struct tensor *t, size_t i, uint64_t magnitude, bool negative,
                       struct err *err);
int tensor_set_text(struct tensor *t, size_t i, const char *bytes, size_t len, struct err *err);

// One element, which must exist, as a number. Not for BYTES.
double tensor_number(const struct tensor *t, size_t i);
uint64_t tensor_u64(const struct tensor *t, size_t i); // of integer types; negative ones wrap

// An output, which owns its memory. One of ints (integers and BOOL), floats (FP32) and texts (BYTES) is set.
struct tensor_out {
    const char *name;
    enum tensor_type type; // BOOL, UINT32, INT32, FP32 or BYTES
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS];
    int64_t *ints;             // (n)
    float *floats;             // (n)
    struct tensor_text *texts; // (n)
    struct buf *text_bufs;     // (n) what texts point into
    bool binary;               // the client wants it in raw form
};
struct tensors_out {
    struct tensor_out *list; // (n)
    size_t n, cap;
};

void tensor_out_add_dim(struct tensor_out *t, int64_t dim); // at most TENSOR_MAX_DIMS
size_t tensor_out_count(const struct tensor_out *t);        // elements, of its shape
// Allocates zeroed memory for the elements of its shape. E_NOMEM without a sentence.
int tensor_out_allocate(struct tensor_out *t);
void tensor_out_release(struct tensor_out *t);
void tensor_out_raw(const struct tensor_out *t, struct buf *raw); // appends; errors stay in raw

int tensors_out_take(struct tensors_out *all, struct tensor_out *t); // *t is zeroed. E_NOMEM
void tensors_out_release(struct tensors_out *all);                   // a zeroed one is allowed
