// One .safetensors file, mapped read-only. Opening checks every field of the header: sizes, known
// dtypes, shapes whose bytes equal their range, ranges in order without hole or overlap, nothing past
// the end, no duplicate names. A hostile file costs bounded time and memory, and the error names its
// fault.
//
// If a mapped file is truncated, an access to the lost pages kills the process (SIGBUS).
// tensor.data is therefore for tests and tools; a server reads with safetensors_read, which returns
// an error. Exception: matrices that are used in the mapped file (README.md).
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include <stddef.h>
#include <stdint.h>

#define TENSOR_MAX_DIMS 8

struct tensor { // plain data, borrowed from its file
    const char *name;
    const void *data; // row-major, in the mapping; may be unaligned, as in the file
    size_t bytes;
    enum dtype dtype;
    int n_dims;
    int64_t shape[TENSOR_MAX_DIMS];
};

struct safetensors; // one file

// E_NOTFOUND and other E_* of opening a file; E_FORMAT, E_CORRUPT: the header; E_NOMEM.
int safetensors_open(struct safetensors **out, const char *path, struct err *err);
void safetensors_close(struct safetensors *f); // with its tensors; NULL is allowed
size_t safetensors_count(const struct safetensors *f);
const struct tensor *safetensors_at(const struct safetensors *f, size_t i); // in file order
// NULL if absent
const struct tensor *safetensors_find(const struct safetensors *f, const char *name);
// Lets the kernel drop the mapping's pages of t; the next access reads the file again.
void safetensors_forget(const struct safetensors *f, const struct tensor *t);
// Copies n bytes of t from offset on, by pread. E_CORRUPT when the file has become shorter.
int safetensors_read(const struct safetensors *f, const struct tensor *t, size_t offset, void *out,
                     size_t n, struct err *err);
// Loads n bytes of t from offset on into memory and, on Linux 5.14 and later, into the mapping, so
// that later accesses do not wait. E_CORRUPT if the file has become shorter.
int safetensors_populate(const struct safetensors *f, const struct tensor *t, size_t offset,
                         size_t n, struct err *err);
// E_CORRUPT if size or modification time differ from those at open: the data that was read may be a
// mix of two versions.
int safetensors_check_unchanged(const struct safetensors *f, struct err *err);

// A streaming writer: declare every tensor, then write their bytes in order. The bytes go to
// PATH.partial, which safetensors_finish renames to PATH: a file named PATH is always complete.
struct safetensors_writer;
int safetensors_create(struct safetensors_writer **out, const char *path,
                       const struct tensor *tensors, size_t n,
                       struct err *err); // data pointers are ignored; writes the header
// Appends the next n bytes of data; cuts between calls need not be those between tensors.
int safetensors_write(struct safetensors_writer *w, const void *bytes, size_t n, struct err *err);
// E_INVAL if bytes are missing; frees w always
int safetensors_finish(struct safetensors_writer *w, struct err *err);
void safetensors_abort(struct safetensors_writer *w); // frees w, removes the file
