// config.ini of a FasterTransformer checkpoint as switches: section [gpt] (GPT-2, Megatron GPT,
// OPT, BLOOM) or [gptj]. The defaults of missing numbers are those of the models' authors:
// layernorm_eps is 1e-5, although FasterTransformer's default was 1e-6.
#pragma once
#include "engine/model/model_config.h"
#include <stddef.h>

#define FT_MAX_RANKS 256
#define FT_MAX_TASKS 64

// prompt_learning_type, FasterTransformer's numbers.
enum ft_prompt_type { FT_PROMPT_NONE, FT_PROMPT_SOFT, FT_PROMPT_PREFIX, FT_PROMPT_PTUNING };

struct ft_task { // a section [task_i]
    enum ft_prompt_type type;
    char name[65];  // task_name
    int32_t length; // prompt_length, rows of its table
};

struct ft_config {
    struct model_config model; // tied_head follows from the files: ft_checkpoint.h
    int32_t n_ranks;           // tensor_para_size; 0 if the file has none
    // FasterTransformer's BLOOM converter wrote the folder: its lm_head is (width, vocab).
    bool head_transposed;
    // Tasks with a table in the folder. Soft prompts (type 1) come with requests and have none.
    struct ft_task tasks[FT_MAX_TASKS];
    int32_t n_tasks;
    int32_t prompt_start_id; // the id of a table's first row in input_ids; -1: not in the file
    size_t n_unused;         // unknown keys of the section
    char unused[64];         // the first of them
};

// An unsupported feature that can change the result (adapters, mixtures of experts, gated
// activations) is E_UNSUPPORTED by name. For a missing key, the error names the key. path is used only
// in messages. The text is untrusted: time and memory are bounded for any content.
int ft_config_parse(struct ft_config *out, const char *path, const char *text, size_t len,
                    struct err *err);
int ft_config_load(struct ft_config *out, const char *path, struct err *err);

// weight_data_type: "fp32", "fp16", "bf16".
const char *ft_dtype_name(enum dtype dtype);
int ft_dtype_find(const char *name, enum dtype *out); // E_NOTFOUND
// config.ini's word for activation_type; NULL if it has none.
const char *ft_activation_name(enum activation activation);
