// Communication of a GPU with those of the other ranks of its instance: by peer memory (peers.h) or by NCCL.
//
//   | | sums, drawn ids | gathers up to 512 KiB | larger gathers, copies between stages |
//   |---|---|---|---|
//   | GPUs of one machine that reach each other's memory | peers | peers | NCCL |
//   | other GPUs | NCCL | NCCL | NCCL |
//   | ranks that share a GPU, which NCCL refuses | peers | peers | peers |
//
// Sums over peers are in rank order. `deterministic` over NCCL gathers all parts and adds them in rank order.
//
// A kernel that waits for a rank that is gone would wait for ever, and so would the host that waits for the
// kernel. So the host polls (cuda_wait) and calls struct rank_links' check between polls. When the check
// fails, the host abandons the ranks: all such kernels end, and every later call returns E_DEVICE.
#pragma once
#include "kernels/backend.h"
#include <cuda_runtime_api.h>

struct cuda_backend;

// Of struct backend_ops, which describes them. All run on the backend's stream.
int cuda_ranks_open(struct backend *be, const struct rank_links *l, struct err *err);
void cuda_ranks_close(struct backend *be);
// When the backend closes; no effect without ranks.
void cuda_ranks_release(struct cuda_backend *cuda);
int cuda_all_reduce(struct backend *be, void *x, int64_t n);
int cuda_gather_rows(struct backend *be, void *out, const void *part, int32_t n_rows,
                     const int32_t *first);
int cuda_share_draws(struct backend *be, int32_t n);
int cuda_send(struct backend *be, const void *x, int64_t n);
int cuda_recv(struct backend *be, void *x, int64_t n);

// Wait until the stream is empty, or until the event. E_DEVICE after logging the error, or if the ranks
// were abandoned.
int cuda_wait(struct cuda_backend *cuda, const char *what);
int cuda_wait_event(struct cuda_backend *cuda, cudaEvent_t event, const char *what);
