// How tensors of a checkpoint get onto a backend: parts of them are found and checked in a first
// walk over the model, read, put into shape and packed in a second. What the parts are is
// model.c's.
#pragma once
#include "engine/model/checkpoint.h"
#include "engine/model/families.h"
#include "engine/model/model.h"
#include "engine/model/parts.h"

#define LOADER_MAX_PARTS 3 // of a stacked matrix: q, k, v

struct loader {
    struct model *m; // whose weight_bytes grow
    const struct family_tensors *names;
    struct checkpoint *cp;
    bool packing;               // second walk
    enum weight_format weights; // what matrices that are multiplied become
    uint8_t *roles;             // (tensors of the checkpoint) enum tensor_role; first walk
    size_t *order; // (tensors of the checkpoint) or NULL: those found, one after the other
    size_t n_found;
    char *staging;
    size_t staging_bytes;
    int64_t done, total;
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *ctx;
};

// In the first walk: finds and checks, adds the slices' bytes to total. In the second: reads and
// packs; a matrix that is stored as the backend wants it (weight_map) is left in the mapping, which
// has to stay. What goes to w, out NULL is another rank's, to be checked only. The fault names the
// tensor. n parts, one above the other: the tensors "STEM.weight", and for those of 8 bits
// their scales, "STEM.weight_scale" or what the configuration calls them.
int loader_matrix(struct loader *l, struct weight *w, int32_t layer, const struct part *parts,
                  int n, struct err *err);
// n vectors one behind the other, f32 on the device: the tensors "STEM.suffix". The parts may be
// those of the matrix that they belong to.
int loader_vector(struct loader *l, float **out, int32_t layer, const struct part *parts, int n,
                  const char *suffix, struct err *err);
// A matrix "STEM.weight" that is looked up, not multiplied: f32 on the device, row-major.
int loader_table(struct loader *l, float **out, const struct part *p, struct err *err);
// Values that no tensor holds.
int loader_to_device(struct model *m, float **out, const float *values, size_t n, struct err *err);
void loader_step(struct loader *l, size_t bytes); // adds to done and reports
void loader_unstage(struct loader *l);            // gives the staging area back
