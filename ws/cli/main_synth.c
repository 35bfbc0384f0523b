// parley synth: writes a random checkpoint of any shape, for benchmarks and tests.
#include "engine/model/synth.h"
#include "ws/cli/cli.h"
#include <stdlib.h>
#include <string.h>

struct settings {
    char *like, *config, *out, *tokenizer_from, *dtype;
    int64_t seed;
};
static const struct config_key keys[] = {
    {"", "like", CONFIG_STRING, offsetof(struct settings, like), 0, 0, 0, "",
     "Name of a shape (see above).", 0},
    {"", "config", CONFIG_STRING, offsetof(struct settings, config), 0, 0, 0, "",
     "config.json with the shape.", 0},
    {"", "out", CONFIG_STRING, offsetof(struct settings, out), 0, 0, 0, "",
     "Folder to write (required).", 0},
    {"", "tokenizer_from", CONFIG_STRING, offsetof(struct settings, tokenizer_from), 0, 0, 0, "",
     "Copy the tokenizer of this folder.", 0},
    {"", "dtype", CONFIG_STRING, offsetof(struct settings, dtype), 0, 0, 0, "",
     "Number format: bf16, f16 or f32; empty keeps the shape's own.", 0},
    {"", "seed", CONFIG_INT, offsetof(struct settings, seed), 0, 9e15, 0, "1",
     "Same seed, same bytes.", 0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

// The list of shapes in lines of at most 80 columns.
static void describe(struct buf *out) {
    size_t column =
        buf_addz(
            out,
            "Writes a random checkpoint of one of the shapes below, in Hugging Face layout.\n") < 0;
    for (const char *name = synth_names(); *name;) {
        size_t len = strcspn(name, ",");
        if (column + len + 2 > 80) {
            buf_addc(out, '\n');
            column = 0;
        }
        buf_addf(out, column ? " %.*s%s" : "%.*s%s", (int)len, name, name[len] ? "," : ".");
        column += len + 2;
        name += len;
        name += strspn(name, ", ");
    }
}

int main_synth(int argc, char **argv) {
    struct settings s;
    struct err err = {0};
    struct buf about;
    buf_init(&about, 4096);
    describe(&about);
    int n_words,
        rc = cli_parse(&table, &s, argc, argv, "synth (--like NAME | --config FILE) --out DIR",
                       buf_z(&about), NULL, 0, &n_words);
    buf_release(&about);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    if (!s.out[0] || !s.like[0] == !s.config[0]) {
        rc = cli_usage(argv[0], s.out[0] ? "give exactly one of --like and --config"
                                         : "--out is missing: the folder to write");
    } else {
        struct synth_options o = {.like = s.like[0] ? s.like : NULL,
                                  .config_path = s.config[0] ? s.config : NULL,
                                  .out_dir = s.out,
                                  .tokenizer_from = s.tokenizer_from[0] ? s.tokenizer_from : NULL,
                                  .dtype = s.dtype[0] ? s.dtype : NULL,
                                  .seed = (uint64_t)s.seed,
                                  .progress = cli_progress,
                                  .progress_ctx = "writing"};
        rc = synth_write(&o, &err) < 0 ? cli_fail(&err) : CLI_OK;
    }
    config_release(&table, &s);
    return rc;
}
