// One step on the device: the batch's description in device memory, and recorded steps.
//
// A step whose sequences all bring one token (decode) is filled up to one of a few widths with rows
// that belong to no sequence, and its launches are recorded as a graph the second time that the
// width comes (the first time loads what CUDA loads late). From then on such a step is: copy the
// description, launch the graph. What a graph depends on besides the width is the power of two
// under which all positions lie, since attention's grid follows from it.
#pragma once
#include "kernels/cuda/cuda.h"

enum { CUDA_STEP_SLOTS = 2, CUDA_MAX_GRAPHS = 512 };

struct cuda_graph {
    int32_t width, max_position;
    int32_t n_seen;
    cudaGraphExec_t exec; // NULL until recorded
};

struct cuda_step {
    // Room: set by cuda_step_reserve; steps outside it make it anew.
    int32_t max_rows, max_seqs;
    int64_t max_map;
    size_t bytes;
    char *device;                  // what b points into
    char *pinned[CUDA_STEP_SLOTS]; // where the next step is written before it is copied
    cudaEvent_t copied[CUDA_STEP_SLOTS];
    int slot;
    bool graphs;              // recording is on
    struct cuda_graph *table; // (CUDA_MAX_GRAPHS)
    int32_t n_graphs;
    // This step's.
    struct cuda_batch b;
    const struct batch_draw *draws; // (max_seqs), in the description too
    int32_t n_decode, n_tiles, max_position;
    struct batch padded;          // what the ops are given
    struct cuda_graph *recording; // being recorded
};

struct cuda_backend;
// Room for steps of this size. Frees what was recorded.
int cuda_step_reserve(struct cuda_backend *cuda, int32_t max_rows, int32_t max_seqs,
                      int64_t max_map, struct err *err);
void cuda_step_release(struct cuda_backend *cuda);
int cuda_step_begin(struct backend *be, const struct batch *b, const struct batch **run);
int cuda_step_launch(struct backend *be);
int cuda_step_end(struct backend *be);
// On by default; off where somebody wants to look between the ops of a step (tests).
void cuda_graphs_set(struct backend *be, bool on);
