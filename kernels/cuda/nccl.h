// Sums and copies between GPUs by NCCL, for messages too large for peers.h and for GPUs that cannot
// reach each other's memory. The library is loaded when ranks are opened.
//
// Its communicators do not block the host. The host polls a call until it takes effect, and runs struct
// rank_links' check between polls. So when a peer has ended, the wait ends and the communicator is aborted.
#pragma once
#include "base/dtype.h"
#include "base/err.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

enum { NCCL_ID_BYTES = 128 };

struct rank_links;
struct nccl_group { // some ranks
    void *comm;     // NULL: not joined, or aborted
    int32_t n, me;
    const struct rank_links *links;
};

// The library's version, 22809 for 2.28.9; 0: it is not found, or the build had no nccl.h.
int nccl_version(void);
int nccl_make_id(char id[NCCL_ID_BYTES], struct err *err);
// Every rank of the group calls it with the id that one of them has made. *l must outlive the group.
int nccl_join(struct nccl_group *g, const char id[NCCL_ID_BYTES], int32_t n, int32_t me,
              const struct rank_links *l, struct err *err);
// Call after all work has ended and all graphs that contain it are destroyed.
void nccl_leave(struct nccl_group *g);
// Ends the kernels that wait for other ranks. It does not wait for the library, which may never return
// where a rank is gone.
void nccl_abort(struct nccl_group *g);
bool nccl_failed(const struct nccl_group *g); // an operation has failed asynchronously

// Each enqueues its work; E_DEVICE after logging the error.
int nccl_sum(struct nccl_group *g, void *x, enum dtype dtype, int64_t n, cudaStream_t stream);
// all (n ranks, bytes) = each rank's part (bytes).
int nccl_all_gather(struct nccl_group *g, const void *part, void *all, size_t bytes,
                    cudaStream_t stream);
int nccl_broadcast(struct nccl_group *g, void *x, size_t bytes, cudaStream_t stream); // rank 0's x
// from[r] (bytes[r]) of the other ranks r arrive on rank 0. mine: the other ranks' own.
int nccl_gather(struct nccl_group *g, void *const *from, const void *mine, const size_t *bytes,
                cudaStream_t stream);
int nccl_send(struct nccl_group *g, const void *x, size_t bytes, int32_t to, cudaStream_t stream);
int nccl_recv(struct nccl_group *g, void *x, size_t bytes, int32_t from, cudaStream_t stream);
