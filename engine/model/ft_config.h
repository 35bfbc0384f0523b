// config.ini of a FasterTransformer checkpoint as switches: section [gpt] (GPT-2, Megatron GPT,
// OPT, BLOOM) or [gptj]. Numbers that a file may leave out are those the models' authors trained
// with: layernorm_eps is 1e-5, where FasterTransformer took 1e-6.
#pragma once
#include "engine/model/model_config.h"
#include <stddef.h>

#define FT_MAX_RANKS 256

struct ft_config {
    struct model_config model; // tied_head is what the files say: ft_checkpoint.h
    int32_t n_ranks;           // tensor_para_size; 0 where the file is silent
    // Written by FasterTransformer's converter of BLOOM, which lays lm_head (width, vocab).
    bool head_transposed;
    size_t n_unused; // keys of the section that nobody here knows
    char unused[64]; // the first of them
};

// What can change the result and is not done (adapters, mixtures of experts, prompt tables, gated
// activations) is E_UNSUPPORTED by name; a missing key is named. path only names the text, which is
// a stranger's: bounded time and memory whatever it holds.
int ft_config_parse(struct ft_config *out, const char *path, const char *text, size_t len,
                    struct err *err);
int ft_config_load(struct ft_config *out, const char *path, struct err *err);

// weight_data_type: "fp32", "fp16", "bf16".
const char *ft_dtype_name(enum dtype dtype);
int ft_dtype_find(const char *name, enum dtype *out); // E_NOTFOUND
// activation_type as config.ini calls it, NULL where it has no word.
const char *ft_activation_name(enum activation activation);
