// parley export: writes a model folder in another format.
#include "base/log.h"
#include "engine/model/ft_export.h"
#include "ws/cli/cli.h"

struct settings {
    char *model, *output, *dtype;
    int format;
    int64_t tensor_parallel;
};
static const struct config_key keys[] = {
    {"", "model", CONFIG_STRING, offsetof(struct settings, model), 0, 0, 0, "",
     "Model folder to export (required).", 0},
    {"", "output", CONFIG_STRING, offsetof(struct settings, output), 0, 0, 0, "",
     "Folder that receives N-gpu (required).", 0},
    {"", "format", CONFIG_CHOICE, offsetof(struct settings, format), 0, 0, "ft", "ft",
     "ft: FasterTransformer (config.ini and .bin files).", 0},
    {"", "tensor_parallel", CONFIG_INT, offsetof(struct settings, tensor_parallel), 1, 256, 0, "1",
     "Number of ranks to split the weights for; it must divide the heads and the feed-forward "
     "size.",
     0},
    {"", "dtype", CONFIG_STRING, offsetof(struct settings, dtype), 0, 0, 0, "",
     "Number format of the weights: fp32, fp16 or bf16; empty keeps the model's own, with equal "
     "logits.",
     0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

int main_export(int argc, char **argv) {
    struct settings s;
    struct err err = {0};
    char written[PATH_MAX];
    int n_words, rc = cli_parse(&table, &s, argc, argv,
                                "export --model DIR --format ft --tensor-parallel N --output DIR",
                                "Writes a GPT-2, OPT, BLOOM or GPT-J model with its tokenizer as a "
                                "FasterTransformer\ncheckpoint in DIR/N-gpu, which must not exist.",
                                NULL, 0, &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    rc = cli_need_folders(argv[0], s.model, s.output);
    if (rc != 0) {
        config_release(&table, &s);
        return rc;
    }
    log_set_level(LOG_WARN);
    struct ft_export_options o = {.model_dir = s.model,
                                  .out_dir = s.output,
                                  .tensor_parallel = (int32_t)s.tensor_parallel,
                                  .dtype = s.dtype[0] ? s.dtype : NULL,
                                  .progress = cli_progress,
                                  .progress_ctx = "exporting",
                                  .stop = cli_stop_on_signal()};
    rc = ft_export(&o, written, &err);
    if (rc == 0) printf("%s\n", written);
    config_release(&table, &s);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
