// Opens the backend that the configuration's `device` names.
#pragma once
#include "engine/model/model_config.h"
#include "kernels/backend.h"

struct device_options {
    const char *device;        // "auto", "cpu", "cuda" (the first GPU) or "cuda:N"; NULL: "auto"
    const char *isa;           // of the CPU
    int n_threads;             // of the CPU
    const char *compute_dtype; // "auto", "f32", "bf16", and on a GPU "f16". NULL: "auto" on a GPU,
                               // "f32" on the CPU
    // "auto" on a GPU: the model's, or, where that is F32 and no matrix but a router is, BF16 or F16 as the matrices are.
    enum dtype model_dtype;
    // All are bf16 or of few bits, but for routers: then "auto" is bf16 on a CPU that multiplies bf16.
    bool bf16_matrices;
    bool deterministic;   // of a GPU
    bool fp8_activations; // of a GPU; E_UNSUPPORTED on the CPU
};

// Fills in what the model says: model_dtype and bf16_matrices.
void device_fit(struct device_options *o, const struct model_config *mc, const char *model_dir,
                enum weight_format weights);
// "auto": the first GPU, or the CPU if the build, the machine or the GPU's architecture has none (the
// log says which). E_INVAL: unknown word; E_NOTFOUND, E_UNSUPPORTED: the named GPU is not usable.
int device_open(struct backend **out, const struct device_options *o, struct err *err);
// The GPU architectures this program was built for, "sm_90 sm_100"; NULL without CUDA.
const char *device_cuda_archs(void);
int device_n_gpus(void);
enum { DEVICE_WORD_BYTES = 64, DEVICE_LIST_BYTES = 512, DEVICE_MAX_GPUS = 1024 };
// The word for the rank at `place` of the n ranks of its machine. A list, "cuda:0,cuda:2", has one
// word for each of them in order; the same GPU may be named twice. Else "cuda:N" is the first rank's,
// and the others have the GPUs behind it; "auto" is the same from the first GPU on, or the CPU if there
// is no GPU. E_INVAL: a list of another length; E_NOTFOUND: fewer GPUs than ranks.
int device_of_rank(char out[DEVICE_WORD_BYTES], const char *device, int32_t place, int32_t n,
                   struct err *err);
// The devices of instance i of n, each of n_ranks ranks, as a word or list for device_of_rank. A list of n * n_ranks
// words gives each instance the next n_ranks of them, and one of n_ranks words gives all instances the same. "auto"
// spreads the instances over n_gpus GPUs, n_ranks to each, and stays as it is where there are fewer. *n_sharing: how many
// instances use the GPU that most use; 0: none uses one. E_INVAL: a list of another length.
int device_of_instance(char out[DEVICE_LIST_BYTES], const char *device, int32_t i, int32_t n,
                       int32_t n_ranks, int32_t n_gpus, int32_t *n_sharing, struct err *err);
// Sets used[i] for each GPU of the n ranks of this machine, and returns their number; 0: none, or the words are
// wrong.
int device_gpus(const char *device, int32_t n, bool used[DEVICE_MAX_GPUS]);
// Whether the word, or each of a list, is valid; does not query the machine.
int device_check(const char *device, const char *compute_dtype, struct err *err);
