// The tensors of a random model: `parley synth` writes them, and a folder without weights stands for them
// (checkpoint.h).
#pragma once
#include "engine/model/families.h"
#include "engine/model/model_config.h"
#include "engine/model/safetensors.h"

// Beside a config.json, in place of weights: {"seed":1}.
#define SYNTH_RECIPE_NAME "random.json"

struct synth_tensors {
    const struct model_config *config; // borrowed
    const struct family_tensors *names;
    enum dtype dtype;
    uint64_t seed;
    struct tensor *tensors; // (n); names are owned, data is NULL
    float *means, *deviations;
    size_t n, cap;
    int64_t total; // bytes
};

// Lists all tensors that a loader expects of this configuration. Free the list after a failure too.
int synth_tensors_list(struct synth_tensors *p, const struct model_config *c, enum dtype dtype,
                       uint64_t seed, struct err *err);
void synth_tensors_free(struct synth_tensors *p);
// Makes bytes [offset, offset + n) of a tensor, equal to those of a written checkpoint. Any thread.
void synth_tensors_read(const struct synth_tensors *p, const struct tensor *t, size_t offset,
                        void *out, size_t n);
