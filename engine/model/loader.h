// Loads tensors of a checkpoint onto a backend. model.c walks the model twice and names the parts: the
// first walk finds and checks their tensors; the second one reads, converts and packs them.
#pragma once
#include "engine/model/families.h"
#include "engine/model/model.h"
#include "engine/model/parts.h"

#define LOADER_MAX_PARTS 3 // of a stacked matrix: q, k, v

struct loader {
    struct model *m; // receives the weights; its weight_bytes grow
    const struct family_tensors *names;
    struct checkpoint *cp;
    bool packing;               // this is the second walk
    enum weight_format weights; // the format of the matrices that linear multiplies by
    bool widen;                 // all matrices become F32, whatever their format
    uint8_t *roles;             // (tensors of the checkpoint) enum tensor_role; first walk
    size_t *order;              // (tensors of the checkpoint) or NULL: the tensors found, in order
    size_t n_found;
    float plus;  // loader_vector adds it to each value
    float times; // and multiplies them by it; 0: 1
    char *staging;
    size_t staging_bytes;
    int64_t done, total;
    void (*progress)(void *ctx, int64_t done, int64_t total);
    void *ctx;
};

// In the first walk, these functions find and check the tensors and add their bytes to total. In the
// second walk they read and pack them. A matrix that is stored in the backend's layout (weight_map)
// stays in the mapped file, so the checkpoint stays open (model.files). w or out NULL: the tensor belongs
// to another rank and is only checked. The error names the tensor.
//
// Loads a matrix of n stacked parts: the tensors "STEM.weight" and, with 8 bits, their scales
// "STEM.weight_scale" (or the name that the configuration gives them).
int loader_matrix(struct loader *l, struct weight *w, int32_t layer, const struct part *parts,
                  int n, struct err *err);
// Loads n concatenated vectors as f32: the tensors "STEM.suffix". The parts may be those of their
// matrix.
int loader_vector(struct loader *l, float **out, int32_t layer, const struct part *parts, int n,
                  const char *suffix, struct err *err);
// Loads a matrix "STEM.weight" that is looked up, not multiplied, as f32, row-major.
int loader_table(struct loader *l, float **out, const struct part *p, struct err *err);
// Whether loader_matrix can stack these parts and keep each as it would be kept alone.
bool loader_stacks(const struct loader *l, int32_t layer, const struct part *parts, int n);
// Reads whole rows of a tensor "STEM.suffix", also of 8 bits with scales, into host memory as f32 in the second walk;
// the caller frees *out, which is NULL in the first.
int loader_floats(struct loader *l, float **out, int32_t layer, const struct part *p,
                  const char *suffix, struct err *err);
// Matrices that are stored in few bits (load_groups.c): whether the stacked parts can be kept so, with all that is
// stored unchanged; if not, the log says why, and they are loaded as F32. Then packs them.
// loader_groups_agree: whether all or none are stored so, in formats that can be stacked.
bool loader_groups_agree(const struct loader *l, const struct part *parts,
                         const struct tensor *const *tensors, int n);
bool loader_groups(const struct loader *l, const struct part *parts,
                   const struct tensor *const *tensors, int n);
int loader_pack_groups(struct loader *l, struct weight *w, const struct part *parts,
                       const struct tensor *const *tensors, int n, struct err *err);
// Otherwise, on a device that computes in 16 bits: whether the parts are all stored in few bits, so that they can be
// staged in those 16 bits, rounded as the device would round F32. Then packs them.
bool loader_halves(const struct loader *l, const struct part *parts,
                   const struct tensor *const *tensors, int n);
int loader_pack_halves(struct loader *l, struct weight *w, const struct part *parts,
                       const struct tensor *const *tensors, int n, struct err *err);
// A layer's experts (load_experts.c). w NULL: another rank's.
int loader_experts(struct loader *l, struct experts_weights *w, int32_t layer, struct err *err);
// A layer's latent attention, and its o (load_latent.c). w NULL: another rank's.
int loader_latent(struct loader *l, struct latent_weights *w, int32_t layer, struct err *err);
int loader_latent_out(struct loader *l, struct weight *o, int32_t layer, struct err *err);
// Copies values that are not in a tensor to the device.
int loader_ones(struct loader *l, float **out, int32_t n, struct err *err); // in the second walk
int loader_to_device(struct model *m, float **out, const float *values, size_t n, struct err *err);
void loader_step(struct loader *l, size_t bytes); // adds to done and reports
// Grows the staging area; it keeps no content.
int loader_stage(struct loader *l, size_t bytes, struct err *err);
void loader_unstage(struct loader *l); // frees the staging area
