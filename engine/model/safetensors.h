// One .safetensors file, mapped read-only, with every field of its header checked before anything is used:
// sizes, known dtypes, shapes whose bytes equal their range, ranges in order without hole or overlap, nothing
// past the end, no duplicate names. A hostile file costs bounded time and memory and names its fault.
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 8

struct tensor { // plain data, borrowed from its file
    const char *name;
    const void *data; // row-major, in the mapping
    size_t bytes;
    enum dtype dtype;
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS];
};

struct safetensors; // one file

int safetensors_open(struct safetensors **out, const char *path, struct err *err);
void safetensors_close(struct safetensors *f);
size_t safetensors_count(const struct safetensors *f);
const struct tensor *safetensors_at(const struct safetensors *f, size_t i);              // in file order
const struct tensor *safetensors_find(const struct safetensors *f, const char *name);    // NULL if absent
const char *safetensors_metadata(const struct safetensors *f, const char *key);          // NULL if absent
void safetensors_forget(const struct safetensors *f, const struct tensor *t); // its pages may leave memory

// Writing, streamed: declare every tensor, then write their bytes in order.
struct safetensors_writer;
int safetensors_create(struct safetensors_writer **out, const char *path, const struct tensor *tensors,
                       size_t n, struct err *err); // data pointers are ignored; writes the header
int safetensors_write(struct safetensors_writer *w, const void *bytes, size_t n, struct err *err);
int safetensors_finish(struct safetensors_writer *w, struct err *err); // E_INVAL if bytes are missing; frees w
void safetensors_abort(struct safetensors_writer *w);                  // frees w, removes the file
