// The format of a snapshot: one sequence's cache in a file. Pure bytes; engine/cache/snapshot_file.h
// reads and writes files.
//
//   0         head       HEAD_BYTES: the blocks' origin and number, and the head's own checksum
//   HEAD      table      ids (n_tokens) i32, the log of the cache;
//                        n_blocks times { number u64, checksum u64 }; its checksum is in the head
//   data_at   blocks     (n_blocks, block_bytes), ascending by number (kvcache/ring.h)
//
// All numbers are little endian. A cache of several groups has version 4, of one group version 3, which
// earlier programs read too. The blocks are those that a ring of n_tokens positions holds: the
// sinks', and those that the window has not passed. Their bytes are only valid where they were
// written, so the head names all that they depend on (struct kv_snapshot_maker), and a reader
// compares that first. A head that decodes is consistent: its sizes cannot overflow and match the
// file's.
#pragma once
#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_SNAPSHOT_HEAD_BYTES 1024
#define KV_SNAPSHOT_VERSION 4 // 3 where there is one group
#define KV_SNAPSHOT_ID_MAX 64
#define KV_SNAPSHOT_MAKER_MAX 64
#define KV_SNAPSHOT_MAX_TOKENS (1 << 28)

// What must be equal for the bytes to be usable, in the order of comparison. Texts end in a NUL and
// are padded with NULs.
struct kv_snapshot_maker {
    char model[KV_SNAPSHOT_MAKER_MAX];   // the model's fingerprint, with its weights' format
    char backend[KV_SNAPSHOT_MAKER_MAX]; // what computed: device, instruction set, number format
    char build[KV_SNAPSHOT_MAKER_MAX];   // of the program
    char dtype[KV_SNAPSHOT_MAKER_MAX];   // of the cache
    uint64_t tokenizer;                  // a checksum of its tokens
    int32_t n_layers, n_kv_heads, head_dim, block_tokens;
    int32_t n_groups; // n_kv_heads and head_dim are the first group's; the model gives the others
    uint64_t block_bytes;
};

struct kv_snapshot_head {
    char id[KV_SNAPSHOT_ID_MAX + 1]; // the sequence's lasting id
    uint64_t owner[2];               // a hash of the name of the sequence's user
    uint64_t prompt[2];              // a hash of the table of its virtual tokens; 0: it has none
    struct kv_snapshot_maker maker;
    int32_t memory_len, sink_len; // of the ring
    int64_t n_tokens;             // length of the log
    int32_t n_blocks;             // in this file
    uint64_t table_sum;
};

struct kv_snapshot_block {
    uint64_t number; // kv_number
    uint64_t sum;    // of its bytes, XXH64
};

// Bytes of the table (the log's ids, then the blocks); where in the file the first block begins; bytes of
// the whole file.
size_t kv_snapshot_table_bytes(const struct kv_snapshot_head *h);
uint64_t kv_snapshot_data_at(const struct kv_snapshot_head *h);
uint64_t kv_snapshot_file_bytes(const struct kv_snapshot_head *h);
// The head as bytes, its checksum included.
void kv_snapshot_write_head(const struct kv_snapshot_head *h,
                            unsigned char out[KV_SNAPSHOT_HEAD_BYTES]);
// file_bytes: the file's length. E_FORMAT: not a snapshot; E_UNSUPPORTED: another version;
// E_CORRUPT: damaged, cut off, or impossible sizes. *err says which.
int kv_snapshot_read_head(struct kv_snapshot_head *h,
                          const unsigned char in[KV_SNAPSHOT_HEAD_BYTES], uint64_t file_bytes,
                          struct err *err);
// out: kv_snapshot_table_bytes. Sets h->table_sum.
void kv_snapshot_write_table(struct kv_snapshot_head *h, const int32_t *ids,
                             const struct kv_snapshot_block *blocks, unsigned char *out);
// ids (n_tokens), blocks (n_blocks). E_CORRUPT.
int kv_snapshot_read_table(const struct kv_snapshot_head *h, const unsigned char *in, int32_t *ids,
                           struct kv_snapshot_block *blocks, struct err *err);

// The first difference of two makers as a word for logs and metrics ("model", "backend", "build",
// "dtype", "tokenizer", "layout"); NULL: none.
const char *kv_snapshot_difference(const struct kv_snapshot_maker *a,
                                   const struct kv_snapshot_maker *b);
