// The container of GGUF files, version 2 and 3, also split ones. Opening reads the header (metadata and the
// list of tensors) with pread and checks every field of it; a hostile file costs bounded time and memory,
// and the error names file and fault. Format: ggml's docs/gguf.md.
//
// Of a split file, one opens the first part; the others lie beside it.
#pragma once
#include "base/err.h"
#include "engine/gguf/block_types.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GGUF_MAX_DIMS 4

struct gguf_tensor { // plain data, borrowed from its file
    const char *name;
    const struct block_type *type;
    int n_dims;
    int64_t shape[GGUF_MAX_DIMS]; // outermost first, as in safetensors: (rows, columns)
    int file;                     // the part that has its bytes
    uint64_t offset;              // in that part
    uint64_t bytes;
};

struct gguf;

// Whether the name ends in .gguf; whether the path is also a plain file.
bool gguf_is_name(const char *path);
bool gguf_is(const char *path);
// E_NOTFOUND and other E_* of opening a file; E_FORMAT, E_CORRUPT: the header; E_UNSUPPORTED names a version or
// a type of tensor; E_LIMIT; E_NOMEM.
//
// Arrays of more than GGUF_LONG_ARRAY values are passed over, and the metadata has null in their place, which is much
// quicker. long_arrays: those of the tokenizer are kept.
#define GGUF_LONG_ARRAY 4096
int gguf_open(struct gguf **out, const char *path, bool long_arrays, struct err *err);
void gguf_close(struct gguf *g); // NULL is allowed
// The metadata of the first part: an object of all keys, as the file has them ("llama.block_count"). Integers from
// 2^53 on are strings of digits. Borrowed.
const cJSON *gguf_metadata(const struct gguf *g);
size_t gguf_count(const struct gguf *g);
const struct gguf_tensor *gguf_at(const struct gguf *g, size_t i); // in no order
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name);
// Copies n bytes of t from offset on. E_CORRUPT if the file has become shorter.
int gguf_read(const struct gguf *g, const struct gguf_tensor *t, uint64_t offset, void *out,
              size_t n, struct err *err);
// E_CORRUPT if size or modification time of a part differ from those at open.
int gguf_check_unchanged(const struct gguf *g, struct err *err);
