// Writes a GGUF file, version 3: the metadata, the list of tensors, then their bytes in the order of the list.
// A file has its name only when it is complete; until then it is NAME.partial.gguf.
#pragma once
#include "base/err.h"
#include "engine/gguf/block_types.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_WRITER_MAX_DIMS 3

struct gguf_out_tensor { // plain data
    char name[64];       // the format allows 63 bytes
    const struct block_type *type;
    int n_dims;
    int64_t shape[GGUF_WRITER_MAX_DIMS]; // outermost first; the last is a multiple of type->values
    uint64_t bytes;
};

struct gguf_writer;

// path ends in .gguf. E_EXISTS: the file, or what a killed run left of it.
int gguf_writer_new(struct gguf_writer **out, const char *path, struct err *err);
// Closes; removes the partial file unless gguf_writer_finish has named it. NULL is allowed.
void gguf_writer_free(struct gguf_writer *w);

// Metadata, before gguf_writer_begin; that reports a lack of memory. Values of an array follow gguf_put_array:
// gguf_add_string or _f32 or _i32 or _bool, n times.
enum gguf_value { GGUF_U32 = 4, GGUF_I32 = 5, GGUF_F32 = 6, GGUF_BOOL = 7, GGUF_STRING = 8 };
void gguf_put_u32(struct gguf_writer *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_writer *w, const char *key, float v);
void gguf_put_bool(struct gguf_writer *w, const char *key, bool v);
void gguf_put_string(struct gguf_writer *w, const char *key, const char *v);
void gguf_put_array(struct gguf_writer *w, const char *key, enum gguf_value type, uint64_t n);
void gguf_add_string(struct gguf_writer *w, const char *v, size_t len);
void gguf_add_f32(struct gguf_writer *w, float v);
void gguf_add_i32(struct gguf_writer *w, int32_t v);
void gguf_add_bool(struct gguf_writer *w, bool v);

// Creates the partial file with its full length, so that it can be opened as a model; tensors hold zeros. Fills in
// their bytes. E_FULL: the disk has no room.
int gguf_writer_begin(struct gguf_writer *w, struct gguf_out_tensor *tensors, size_t n,
                      struct err *err);
const char *gguf_writer_partial(const struct gguf_writer *w); // its path
// All bytes of tensor i, at their place, before the tensors in order; those put so are last in the list.
int gguf_writer_put_at(struct gguf_writer *w, const struct gguf_out_tensor *tensors, size_t i,
                       const void *bytes, struct err *err);
// The next bytes of the present tensor.
int gguf_writer_write(struct gguf_writer *w, const void *bytes, size_t n, struct err *err);
// After the last byte of each tensor.
int gguf_writer_end_tensor(struct gguf_writer *w, struct err *err);
int gguf_writer_finish(struct gguf_writer *w, struct err *err); // names the file
