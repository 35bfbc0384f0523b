// A command's table of options: its own rows, then those of a model and of sampling. See cli.h.
#include "ws/cli/cli.h"
#include <string.h>

#define AT(field) offsetof(struct cli_model, field)
#define TEXT(name, fallback, metavar, help)                                                        \
    { "model", #name, CONFIG_STRING, AT(name), 0, 0, metavar, fallback, help, 0 }
#define INT(name, min, max, fallback, help)                                                        \
    { "model", #name, CONFIG_INT, AT(name), min, max, NULL, fallback, help, 0 }

static const struct config_key model_keys[] = {
    TEXT(model, "", "DIR", "Model folder."),
    TEXT(chat_template, "", "NAME|FILE", "Chat template to use instead of the model's own."),
    TEXT(device, "auto", "DEVICE", "Where to run: auto, cpu, cuda:0 ..."),
    TEXT(compute_dtype, "", "DTYPE", ""), // what cli_table_model says
    {"model", "deterministic", CONFIG_BOOL, AT(deterministic), 0, 0, NULL, "off",
     "On a GPU, compute the same bits for every batch size.", 0},
    {"model", "gpu_memory_fraction", CONFIG_FLOAT, AT(gpu_memory_fraction), 0, 1, NULL, "0",
     "Share of GPU memory for weights, work buffers and KV cache; 0: as much as needed.", 0},
    TEXT(isa, "auto", "ISA", "CPU instruction set: auto, portable, avx2, avx512 or amx."),
    INT(threads, 0, 64, "0", "CPU threads; 0: one for each core."),
    {"model", "weight_dtype", CONFIG_CHOICE, AT(weight_dtype), 0, 0, WEIGHT_FORMATS, "model",
     "Number format of the weights: model is the model's own; int8 and fp8 (e4m3) are 8 bits with "
     "a scale for each output, converted while loading.",
     0},
    {"model", "kv_dtype", CONFIG_CHOICE, AT(kv_dtype), 0, 0, ENGINE_KV_DTYPES, "auto",
     "Number format of the KV cache; auto is the compute dtype, f32 on the CPU. fp8 and int8 have "
     "a scale for each position and head.",
     0},
    {"model", "kv_cache_bytes", CONFIG_BYTES, AT(kv_cache_bytes), 0, 4096.0 * (1 << 30), NULL, "0",
     "Size of the KV cache; 0: as much as needed.", 0},
    INT(block_tokens, 8, 256, "64", "Positions in one cache block; a power of two."),
    INT(prefill_chunk_tokens, 0, 8192, "0",
        "Most prompt tokens in one step; 0: 256 on the CPU, 2048 on a GPU."),
    INT(memory_len, 0, 1e9, "0", "Tokens that the model attends to; 0: the whole session."),
    INT(sink_len, -1, 1e9, "-1",
        "First tokens that stay visible (attention sinks); -1: 4, or 0 if memory_len is 4 or "
        "less."),
    INT(session_len, 0, 1e9, "0", "Most tokens in one session; 0: as many as needed."),
};
enum { N_MODEL_KEYS = sizeof model_keys / sizeof *model_keys };

// One command runs in a process.
static struct config_key rows[32 + N_MODEL_KEYS + SAMPLING_OPTIONS_MAX];
static struct config_table table = {.keys = rows};

const struct config_table *cli_table(const struct config_key *keys, int n) {
    memcpy(rows, keys, (size_t)n * sizeof *keys);
    table.n_keys = n;
    return &table;
}

void cli_table_model(size_t offset, const char *compute, const char *compute_help) {
    for (int i = 0; i < N_MODEL_KEYS; i++) {
        struct config_key *row = &rows[table.n_keys++];
        *row = model_keys[i];
        if (row->offset == AT(compute_dtype)) {
            row->fallback = compute;
            row->help = compute_help;
        }
        row->offset += offset;
    }
}

void cli_table_sampling(size_t offset) {
    table.n_keys += sampling_option_keys(rows + table.n_keys, SAMPLING_COMMAND, offset);
}
