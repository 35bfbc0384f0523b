// A command's table of options: its own rows, then those of a model and of sampling. See cli.h.
#include "ws/cli/cli.h"
#include <string.h>

#define SETTINGS struct cli_model

static const struct config_key model_keys[] = {
    TEXT("model", model, "", "DIR", "Model folder."),
    TEXT("model", tokenizer, "", "DIR",
         "Folder whose tokenizer and chat template to use instead of the model's own."),
    TEXT("model", chat_template, "", "NAME|FILE",
         "Chat template to use instead of the model's own."),
    TEXT("model", prompt_tasks, "", "LIST",
         "Tables of prompt learning (PEFT): NAME=DIR,NAME=DIR, or a folder of such folders."),
    TEXT("model", device, "auto", "DEVICE",
         "Where to run: auto, cpu, cuda:0 ...; for several ranks also a list, one for each."),
    TEXT("model", compute_dtype, "", "DTYPE", ""), // as the command says
    BOOL("model", deterministic, "off", "On a GPU, compute the same bits for every batch size."),
    FLOAT("model", gpu_memory_fraction, 0, 1, "0",
          "Share of GPU memory for weights, work buffers and KV cache; 0: as much as needed."),
    TEXT("model", isa, "auto", "ISA", "CPU instruction set: auto, portable, avx2, avx512 or amx."),
    INT("model", threads, 0, 64, "0",
        "CPU threads of each rank; 0: one for each core, divided by the ranks that share them."),
    INT("model", tensor_parallel, 1, 1024, "1",
        "Processes that compute each layer together, by parts of its heads and feed-forward. They "
        "are those of mpirun or srun, or are started on this machine."),
    INT("model", pipeline_parallel, 1, 1024, "1",
        "Stages of consecutive layers, of tensor_parallel processes each."),
    FLOAT("model", rank_timeout, 1, 86400, "60",
          "Seconds that a process may stay silent while others wait for it."),
    CHOICE("model", weight_dtype, WEIGHT_FORMATS, "model",
           "Number format of the weights: model is the model's own; int8 and fp8 (e4m3) are 8 bits "
           "with a scale for each output, converted while loading."),
    BOOL("model", fp8_activations, "off",
         "On a GPU with weights of fp8, also round the activations of steps with more than 32 "
         "tokens to fp8."),
    CHOICE("model", kv_dtype, ENGINE_KV_DTYPES, "auto",
           "Number format of the KV cache; auto is the compute dtype, f32 on the CPU. fp8 and int8 "
           "have a scale for each position and head."),
    BYTES("model", kv_cache_bytes, 0, 4096.0 * (1 << 30), "0",
          "Size of the KV cache; 0: as much as needed."),
    INT("model", block_tokens, 8, 256, "64", "Positions in one cache block; a power of two."),
    INT("model", prefill_chunk_tokens, 0, 8192, "0",
        "Most prompt tokens in one step; 0: 256 on the CPU, 2048 on a GPU."),
    INT("model", memory_len, 0, 1e9, "0",
        "Tokens that the model attends to; 0: the whole session."),
    INT("model", sink_len, -1, 1e9, "-1",
        "First tokens that stay visible (attention sinks); -1: 4, or 0 if memory_len is 4 or "
        "less."),
    INT("model", session_len, 0, 1e9, "0", "Most tokens in one session; 0: as many as needed."),
};
enum { N_MODEL_KEYS = sizeof model_keys / sizeof *model_keys };

// One command runs in a process.
static struct config_key rows[32 + N_MODEL_KEYS + SAMPLING_OPTIONS_MAX];

const struct config_table *cli_options(const struct cli_command *c) {
    static struct config_table table = {.keys = rows};
    memcpy(rows, c->keys, (size_t)c->n_keys * sizeof *rows);
    table.n_keys = c->n_keys;
    if (c->sampling_offset)
        table.n_keys +=
            sampling_option_keys(rows + table.n_keys, SAMPLING_COMMAND, c->sampling_offset);
    for (int i = 0; c->compute.help && i < N_MODEL_KEYS; i++) {
        struct config_key *row = &rows[table.n_keys++];
        *row = model_keys[i];
        if (row->offset != offsetof(struct cli_model, compute_dtype)) continue;
        row->fallback = c->compute.fallback;
        row->help = c->compute.help;
    }
    return &table;
}
