// A command's table of options: its own rows, then those of a model and of sampling. See cli.h.
#include "ws/cli/cli.h"
#include <string.h>

#define SETTINGS struct model_settings

// Where a command's default differs from the server's.
static const struct config_key own_keys[] = {
    FLOAT("model", gpu_memory_fraction, 0, 1, "0",
          "Share of GPU memory for weights, work buffers and KV cache; 0: as much as needed."),
    BYTES("model", kv_cache_bytes, 0, 4096.0 * (1 << 30), "0",
          "Size of the KV cache; 0: as much as needed."),
    INT("model", session_len, 0, 1e9, "0", "Most tokens in one session; 0: as many as needed."),
    INT("model", memory_len, 0, 1e9, "0",
        "Tokens that the model attends to; 0: the whole session."),
    INT("model", sink_len, -1, 1e9, "-1",
        "First tokens that stay visible (attention sinks); -1: 4, or 0 if memory_len is 4 or "
        "less."),
};

// Static, because a process runs one command.
static struct config_key rows[32 + MODEL_SETTINGS_MAX + SAMPLING_OPTIONS_MAX];

static struct config_key of_command(const struct cli_command *c, struct config_key row) {
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (own_keys[i].offset == row.offset) return own_keys[i];
    row.section = "model";
    if (row.offset != offsetof(SETTINGS, compute_dtype)) return row;
    row.fallback = c->compute.fallback;
    row.help = c->compute.help;
    return row;
}

const struct config_table *cli_options(const struct cli_command *c) {
    static struct config_table table = {.keys = rows};
    memcpy(rows, c->keys, (size_t)c->n_keys * sizeof *rows);
    struct config_key *next = rows + c->n_keys;
    if (c->sampling_offset)
        next += sampling_option_keys(next, SAMPLING_COMMAND, c->sampling_offset);
    for (int n = c->compute.help ? model_setting_keys(next, NULL, 0) : 0; n > 0; n--, next++)
        *next = of_command(c, *next);
    table.n_keys = (int)(next - rows);
    return &table;
}
