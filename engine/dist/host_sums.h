// Sums over the ranks of one machine, in memory that they share.
//
// Every rank has a slot in each of two halves, and a counter. For sum number e it writes its part to its
// slot of half e % 2 and sets its counter to e. Then, rank by rank in ascending order, it waits until the
// rank's counter is at least e and adds the rank's slot. So all ranks get the same bits.
//
// Why two halves suffice: a rank that writes for e + 1 has seen every counter at e, so every rank had
// begun e, so it had finished e - 1, which read the same half. The GPU kernels rely on the same rule
// (kernels/cuda/peers.h).
#pragma once
#include <stddef.h>
#include <stdint.h>

struct host_sums {
    char *memory; // NULL: none
    int32_t n, me;
    uint64_t epoch; // of the last sum
};

size_t host_sums_bytes(int32_t n); // of the memory that n ranks share
// Creates memory that other processes of this user can map, and returns its file, or -1. The kernel frees
// it with its last user.
int host_sums_make(int32_t n);
// Maps the file fd of process pid (this process or another). The memory is zeroed at first. NULL: it failed.
void *host_sums_map(int pid, int fd, int32_t n);
// memory: zeroed, shared by n ranks; borrowed.
void host_sums_init(struct host_sums *s, void *memory, int32_t n, int32_t me);
// x (n) becomes the sum over the ranks, in rank order. Every rank calls it with the same n. It calls wait
// again and again while it waits for other ranks, with i = 0, 1, ...; a negative result ends the sum with
// that code, and no further sum may follow.
int host_sums_run(struct host_sums *s, float *x, int64_t n, int (*wait)(void *ctx, int64_t i),
                  void *ctx);
