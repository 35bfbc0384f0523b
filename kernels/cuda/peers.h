// Sums and gathers over the memory of other GPUs of this machine (CUDA IPC), by kernels that run
// inside a recorded step. There are two ways.
//
// A channel is a group of ranks. Each has memory where the others write: two halves, in each a slot
// for every rank.
//
// The small way: each rank sends all of its data to every other. An exchange cuts it into vectors of
// 8 bytes; thread i of every rank writes vector i to the others and waits until theirs have arrived. A
// vector travels as
//
//     { 4 bytes, epoch, 4 bytes, epoch }
//
// so one store carries the data and the proof that it has arrived: neither a fence nor a flag is needed.
// The epoch counts the exchanges of a block of threads; even and odd ones use different halves.
//
// Why two halves suffice: a rank that writes in epoch e + 1 has the others' vectors of e, so their
// kernels of e had begun, so their kernels of e - 1, which read the same half, had ended. This needs
// every exchange to go both ways, also where only one rank wants the data. tests/unit/test_host_sums.c
// tries the same rule with threads.
//
// The wide way, for sums of more than PEERS_PIECE_BYTES / (n - 1): each rank adds up one part
// of the data, so it sends an n-th of the bytes. Block b of every rank has the same places of each part. It
// sends the others' parts to them, waits for theirs of its own, adds, sends the sum, and waits for the other
// sums. A flag for each rank and block, written after the data with release at system scope, says that it has
// arrived. All blocks count the same epoch, and the rule of the two halves holds as above.
#pragma once
#include "base/dtype.h"
#include <cuda_runtime_api.h>
#include <stdint.h>

enum {
    PEERS_MAX = 8,               // ranks of a channel
    PEERS_PIECE_BYTES = 1 << 19, // most of one small exchange; more goes in pieces
    PEERS_SLOT_BYTES = 2 * PEERS_PIECE_BYTES,
    PEERS_THREADS = 256,
    PEERS_BLOCKS = PEERS_PIECE_BYTES / 8 / PEERS_THREADS,
    PEERS_WIDE_BYTES = 1 << 24, // most of one wide exchange
    PEERS_WIDE_THREADS = 512,
    PEERS_WIDE_BLOCKS = 128, // of every wide exchange; an H100 holds all of them at once
};

struct peer_channel {
    int32_t n, me;           // ranks, and this one's place; n 0: no channel
    char *memory[PEERS_MAX]; // each rank's incoming memory (2, n, PEERS_SLOT_BYTES); [me]: its own
    uint32_t *epochs;        // (PEERS_BLOCKS) this rank's
    // Of the wide way; NULL: this channel has none. Each rank's memory: parts (2, n, part), sums (2, n, part), in all
    // 4 * PEERS_WIDE_BYTES, then flags (2, n, PEERS_WIDE_BLOCKS) u32.
    char *wide[PEERS_MAX];
    uint32_t *wide_epochs;     // (PEERS_WIDE_BLOCKS) this rank's
    const uint32_t *abandoned; // pinned host memory: not 0 once a rank is gone, and all waits end
    uint32_t *lost;            // this rank's: not 0 once a kernel has read so
};
// Device memory that a channel of n ranks takes on each rank, for `memory` and for `wide`.
static inline size_t peer_channel_bytes(int32_t n) {
    return (size_t)2 * (size_t)n * PEERS_SLOT_BYTES;
}

static inline size_t peer_wide_bytes(int32_t n) {
    return (size_t)4 * PEERS_WIDE_BYTES +
           (size_t)2 * (size_t)n * PEERS_WIDE_BLOCKS * sizeof(uint32_t);
}

#ifdef __cplusplus
extern "C" {
#endif
// x (n) becomes the sum over the ranks, in F32, in rank order, rounded once: the same bits both ways. n *
// sizeof(dtype) is a multiple of 8. x is aligned to 16 bytes.
int peers_sum(const struct peer_channel *c, void *x, enum dtype dtype, int64_t n,
              cudaStream_t stream);
// Each rank's part (n_rows, part_width) f32, columns [first[r], first[r + 1]) of out, becomes out
// (n_rows, first[c->n]) on rank 0. On the others out is not written.
int peers_gather(const struct peer_channel *c, float *out, const float *part, int32_t n_rows,
                 const int32_t first[PEERS_MAX + 1], cudaStream_t stream);
// x (bytes, a multiple of 8) of rank `from` replaces the others'.
int peers_copy(const struct peer_channel *c, void *x, int64_t bytes, int32_t from,
               cudaStream_t stream);
// x (n) = the sum of parts (n_parts, n) in order, in F32, rounded once.
int cuda_sum_parts(void *x, const void *parts, enum dtype dtype, int32_t n_parts, int64_t n,
                   cudaStream_t stream);
#ifdef __cplusplus
}
#endif
