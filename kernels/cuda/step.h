// One step on the device: the batch's description in device memory, and recorded steps.
//
// A decode step (one token of each sequence) is padded to one of a few widths. The first step of a
// width runs unrecorded, because CUDA loads kernels at their first launch. The second is recorded as a
// graph. Later ones copy the description and launch the graph. A graph also depends on the power of
// two above all positions, because attention's grid does.
#pragma once
#include "kernels/cuda/cuda.h"

enum { CUDA_STEP_SLOTS = 2, CUDA_MAX_GRAPHS = 512 };

struct cuda_graph {
    int32_t width, max_position;
    int32_t n_seen;
    cudaGraphExec_t exec; // NULL until recorded
};

struct cuda_step {
    // Limits, set by cuda_step_reserve; a larger step calls it again.
    int32_t max_rows, max_seqs;
    int64_t max_map;
    int32_t n_groups; // of the cache: b.seqs has (n_groups, max_seqs), each with its map
    size_t bytes;
    char *device;                  // the memory that b points into
    char *pinned[CUDA_STEP_SLOTS]; // where the next step is written before it is copied
    cudaEvent_t copied[CUDA_STEP_SLOTS];
    int slot;
    bool graphs;              // recording is on
    struct cuda_graph *table; // (CUDA_MAX_GRAPHS)
    int32_t n_graphs;
    // Of the current step.
    struct cuda_batch b;
    const struct batch_draw *draws; // (max_seqs), part of the description
    int32_t n_decode, n_tiles, max_position;
    struct batch padded;          // the batch that the ops get
    struct cuda_graph *recording; // being recorded
};

struct cuda_backend;
// Allocates for steps of this size, and frees the recorded graphs. On failure the smaller room stays, for smaller
// steps.
int cuda_step_reserve(struct cuda_backend *cuda, int32_t max_rows, int32_t max_seqs,
                      int64_t max_map, int32_t n_groups, struct err *err);
void cuda_step_release(struct cuda_backend *cuda);
void cuda_step_forget_graphs(struct cuda_step *s); // steps are recorded anew
int cuda_step_begin(struct backend *be, const struct batch *b, const struct batch **run);
int cuda_step_launch(struct backend *be);
int cuda_step_end(struct backend *be);
// On by default. Tests turn recording off to look at a step's intermediate results.
void cuda_graphs_set(struct backend *be, bool on);
