// parley quantize: writes a model folder with matrices of 8 or 4 bits.
#include "base/log.h"
#include "engine/model/quantize.h"
#include "ws/cli/cli.h"

struct settings {
    char *model, *output;
    int weight_dtype;
    bool json;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", model, "", MODEL_VALUE, "Model to quantise (required): " MODEL_VALUE_HELP "."),
    TEXT("", output, "", "DIR", "Folder to create (required)."),
    CHOICE("", weight_dtype, "int8|fp8|int4", "int8",
           "Format of the matrices: int8, fp8 (e4m3), or int4 (groups of 128 columns)."),
    BOOL("", json, "off", "Print JSON."),
};

static const struct {
    enum weight_format format;
    const char *text;
} formats[] = {
    {WEIGHTS_INT8, "8 bits (int8)"}, {WEIGHTS_FP8, "8 bits (fp8)"}, {WEIGHTS_INT4, "4 bits"}};

static int report(const struct settings *s, const struct quantize_result *r, struct err *err) {
    struct cli_json j;
    if (!s->json) {
        printf("%s: %lld matrices in %s, %.2f GB instead of %.2f\n", s->output,
               (long long)r->n_matrices, formats[s->weight_dtype].text,
               (double)r->bytes_after / 1e9, (double)r->bytes_before / 1e9);
        return 0;
    }
    cli_json_begin(&j);
    json_put_string(&j.w, "output", s->output);
    json_put_int(&j.w, "matrices", r->n_matrices);
    json_put_int(&j.w, "bytes_before", r->bytes_before);
    json_put_int(&j.w, "bytes_after", r->bytes_after);
    return cli_json_end(&j, err);
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    struct quantize_result result;
    if (!s->model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->output[0]) return cli_usage(err, CLI_NO_OUTPUT);
    log_set_level(LOG_WARN);
    struct quantize_options o = {.model_dir = s->model,
                                 .out_dir = s->output,
                                 .weights = formats[s->weight_dtype].format,
                                 .progress = cli_progress,
                                 .progress_ctx = "quantizing",
                                 .stop = cli_stop_on_signal()};
    TRY(quantize_write(&o, &result, err));
    return report(s, &result, err);
}

const struct cli_command command_quantize = {
    .name = "quantize",
    .summary = "write a model folder with matrices of 8 or 4 bits",
    .usage = "quantize --model MODEL --output DIR",
    .about = "Writes a model folder whose matrices have 8 bits and a scale for each output, the "
             "same as\n--weight-dtype produces while loading, or 4 bits and a scale for each 128 "
             "columns. int8: in\nthe layout that the CPU maps and shares between processes. fp8: "
             "e4m3 in the format of\ncompressed-tensors, which other programs read. int4: that "
             "format's W4A16, scales chosen for\nthe least squared error; the embedding and the "
             "head stay as they are. `parley score\n--compare-weights` measures the loss of "
             "accuracy.",
    CLI_SETTINGS(keys),
    .run = run,
};
