// parley synth: writes a random checkpoint of any shape, for benchmarks and tests.
#include "engine/model/synth.h"
#include "ws/cli/cli.h"
#include <stdio.h>
#include <string.h>

struct settings {
    char *like, *config, *output, *out, *tokenizer_from, *dtype;
    int64_t seed;
    bool weights;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", like, "", "NAME", "Name of a shape (see above)."),
    TEXT("", config, "", "FILE", "config.json with the shape."),
    TEXT("", output, "", "DIR", "Folder to write (required)."),
    TEXT("", out, "", "DIR", "The old name of --output."),
    TEXT("", tokenizer_from, "", "DIR", "Copy the tokenizer of this folder."),
    TEXT("", dtype, "", "DTYPE", "Number format: bf16, f16 or f32; empty keeps the shape's own."),
    INT("", seed, 0, 9e15, "1", "Same seed, same bytes."),
    BOOL("", weights, "on",
         "Write the weights. Without them the folder is small, and every command that loads it "
         "makes the same values in memory."),
};

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

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    if (!s->output[0] && !s->out[0]) return cli_usage(err, CLI_NO_OUTPUT);
    if (s->output[0] && s->out[0]) return cli_usage(err, "--out is the old name of --output");
    if (!s->like[0] == !s->config[0])
        return cli_usage(err, "give exactly one of --like and --config");
    struct synth_options o = {.like = s->like[0] ? s->like : NULL,
                              .config_path = s->config[0] ? s->config : NULL,
                              .out_dir = s->output[0] ? s->output : s->out,
                              .tokenizer_from = s->tokenizer_from[0] ? s->tokenizer_from : NULL,
                              .dtype = s->dtype[0] ? s->dtype : NULL,
                              .seed = (uint64_t)s->seed,
                              .no_weights = !s->weights,
                              .progress = cli_progress,
                              .progress_ctx = "writing"};
    TRY(synth_write(&o, err));
    puts(o.out_dir); // as `models pull` prints what commands take as --model
    return 0;
}

const struct cli_command command_synth = {
    .name = "synth",
    .summary = "write a random checkpoint of any shape",
    .usage = "synth (--like NAME | --config FILE) --output DIR",
    .describe = describe,
    CLI_SETTINGS(keys),
    .run = run,
};
