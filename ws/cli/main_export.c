// parley export: writes a model folder in another format.
#include "base/log.h"
#include "engine/model/ft_export.h"
#include "ws/cli/cli.h"

struct settings {
    char *model, *output, *dtype;
    int format;
    int64_t tensor_parallel;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", model, "", MODEL_VALUE, "Model to export (required): " MODEL_VALUE_HELP "."),
    TEXT("", output, "", "DIR", "Folder that receives N-gpu (required)."),
    CHOICE("", format, "ft", "ft", "ft: FasterTransformer (config.ini and .bin files)."),
    INT("", tensor_parallel, 1, 256, "1",
        "Number of ranks to split the weights for; it must divide the heads and the feed-forward "
        "size."),
    TEXT("", dtype, "", "DTYPE",
         "Number format of the weights: fp32, fp16 or bf16; empty keeps the model's own, with "
         "equal logits."),
};

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    char written[PATH_MAX];
    if (!s->model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->output[0]) return cli_usage(err, CLI_NO_OUTPUT);
    log_set_level(LOG_WARN);
    struct ft_export_options o = {.model_dir = s->model,
                                  .out_dir = s->output,
                                  .tensor_parallel = (int32_t)s->tensor_parallel,
                                  .dtype = s->dtype[0] ? s->dtype : NULL,
                                  .progress = cli_progress,
                                  .progress_ctx = "exporting",
                                  .stop = cli_stop_on_signal()};
    TRY(ft_export(&o, written, err));
    printf("%s\n", written);
    return CLI_OK;
}

const struct cli_command command_export = {
    .name = "export",
    .summary = "write a model as a FasterTransformer checkpoint",
    .usage = "export --model MODEL --format ft --tensor-parallel N --output DIR",
    .about = "Writes a GPT-2, OPT, BLOOM or GPT-J model with its tokenizer as a "
             "FasterTransformer\ncheckpoint in DIR/N-gpu, which must not exist.",
    CLI_SETTINGS(keys),
    .run = run,
};
