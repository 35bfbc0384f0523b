// parley quantize: writes a model folder with matrices of 8 or 4 bits, or a GGUF file.
#include "base/json_form.h"
#include "base/log.h"
#include "engine/convert/calibrate.h"
#include "engine/convert/to_gguf.h"
#include "engine/model/quantize.h"
#include "ws/cli/cli.h"
#include "ws/cli/main_calibrate.h"

enum output_format { OUTPUT_FOLDER, OUTPUT_GGUF };
struct settings {
    char *model, *output, *calibrate;
    int format; // enum output_format
    int weight_dtype;
    bool json;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", model, "", MODEL_VALUE, "Model to quantise (required): " MODEL_VALUE_HELP "."),
    TEXT("", output, "", "DIR|FILE.gguf", "Folder or file to create (required)."),
    CHOICE("", format, "folder|gguf", "folder",
           "folder: config.json and safetensors. gguf, or an output named so: one file, which "
           "llama.cpp reads too."),
    CHOICE("", weight_dtype, "int8|fp8|int4|q8_0|q4_0|f16|bf16", "int8",
           "Format of the matrices. In a folder int8, fp8 (e4m3), or int4 (groups of 128 columns). "
           "In a GGUF file q8_0 (int8 means the same), q4_0 (likewise int4), f16 or bf16."),
    TEXT("", calibrate, "", "FILE",
         "Text like the model's use, or - for the standard input. int4 rounds so that what the "
         "model computes on it changes least."),
    BOOL("", json, "off", "Print JSON."),
};

enum { NOT_HERE = -1 };
static const struct { // by weight_dtype
    int folder;       // enum weight_format
    int gguf;         // enum gguf_weights
    const char *text; // of a folder
} formats[] = {
    {WEIGHTS_INT8, GGUF_Q8_0, "8 bits (int8)"},
    {WEIGHTS_FP8, NOT_HERE, "8 bits (fp8)"},
    {WEIGHTS_INT4, GGUF_Q4_0, "4 bits"},
    {NOT_HERE, GGUF_Q8_0, NULL},
    {NOT_HERE, GGUF_Q4_0, NULL},
    {NOT_HERE, GGUF_F16, NULL},
    {NOT_HERE, GGUF_BF16, NULL},
};

// Both writers' results say the same.
struct written {
    int64_t n_matrices, bytes_before, bytes_after;
};

static const char *text_of(const struct settings *s) {
    static const char *const in_gguf[] = {
        [GGUF_Q8_0] = "Q8_0", [GGUF_Q4_0] = "Q4_0", [GGUF_F16] = "F16", [GGUF_BF16] = "BF16"};
    return s->format == OUTPUT_GGUF ? in_gguf[formats[s->weight_dtype].gguf]
                                    : formats[s->weight_dtype].text;
}

static int report(const struct settings *s, const struct written *r, struct err *err) {
    struct cli_json j;
    if (!s->json) {
        printf("%s: %lld matrices in %s, %.2f GB instead of %.2f\n", s->output,
               (long long)r->n_matrices, text_of(s), (double)r->bytes_after / 1e9,
               (double)r->bytes_before / 1e9);
        return 0;
    }
    cli_json_begin(&j);
    json_form(&j.w, "output:%s,matrices:%ld,bytes_before:%ld,bytes_after:%ld", s->output,
              r->n_matrices, r->bytes_before, r->bytes_after);
    return cli_json_end(&j, err);
}

static int write_folder(const struct settings *s, struct written *out, struct err *err) {
    struct quantize_result result;
    struct calibration *c = NULL;
    if (s->calibrate[0]) TRY(cli_calibrate(&c, s->model, s->calibrate, err));
    const struct quantize_options o = {.model_dir = s->model,
                                       .out_dir = s->output,
                                       .weights =
                                           (enum weight_format)formats[s->weight_dtype].folder,
                                       .progress = cli_progress,
                                       .progress_ctx = "quantizing",
                                       .inputs = c ? calibration_find : NULL,
                                       .inputs_ctx = c,
                                       .stop = cli_stop_on_signal()};
    const int rc = quantize_write(&o, &result, err);
    calibration_free(c);
    if (rc < 0) return rc;
    *out = (struct written){result.n_matrices, result.bytes_before, result.bytes_after};
    return 0;
}

static int write_gguf(const struct settings *s, struct written *out, struct err *err) {
    struct to_gguf_result result;
    const struct to_gguf_options o = {.model_dir = s->model,
                                      .out = s->output,
                                      .weights = (enum gguf_weights)formats[s->weight_dtype].gguf,
                                      .progress = cli_progress,
                                      .progress_ctx = "quantizing",
                                      .stop = cli_stop_on_signal()};
    TRY(to_gguf_write(&o, &result, err));
    *out = (struct written){result.n_matrices, result.bytes_before, result.bytes_after};
    return 0;
}

static int run(void *settings, char **words, struct err *err) {
    struct settings *s = settings;
    struct written result;
    const size_t n = strlen(s->output);
    if (n >= 5 && !strcmp(s->output + n - 5, ".gguf")) s->format = OUTPUT_GGUF;
    const bool gguf = s->format == OUTPUT_GGUF;
    if (!s->model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->output[0]) return cli_usage(err, gguf ? CLI_NO_OUTPUT_FILE : CLI_NO_OUTPUT);
    if (gguf && formats[s->weight_dtype].gguf == NOT_HERE)
        return cli_usage(err, "GGUF files have q8_0, q4_0, f16 and bf16, not fp8");
    if (!gguf && formats[s->weight_dtype].folder == NOT_HERE)
        return cli_usage(
            err, "a folder has int8, fp8 or int4; the other types need --format gguf or FILE.gguf");
    if (s->calibrate[0] && (gguf || formats[s->weight_dtype].folder != WEIGHTS_INT4))
        return cli_usage(err, "--calibrate needs --weight-dtype int4 and --format folder");
    log_set_level(LOG_WARN);
    TRY(gguf ? write_gguf(s, &result, err) : write_folder(s, &result, err));
    return report(s, &result, err);
}

const struct cli_command command_quantize = {
    .name = "quantize",
    .summary = "write a model folder with matrices of 8 or 4 bits, or a GGUF file",
    .usage = "quantize --model MODEL --output DIR|FILE.gguf",
    .about = "Writes a model folder whose matrices have 8 bits and a scale for each output, the "
             "same as\n--weight-dtype produces while loading, or 4 bits and a scale for each 128 "
             "columns. int8: in\nthe layout that the CPU maps and shares between processes. fp8: "
             "e4m3 in the format of\ncompressed-tensors, which other programs read. int4: that "
             "format's W4A16, scales chosen for\nthe least squared error, or with --calibrate for "
             "the least error on a text; the "
             "embedding and\nthe head stay as they are. With --format gguf it\nwrites one file "
             "with weights, "
             "tokenizer and chat template, in q4_0 with scales of the least\nsquared error and "
             "the embedding and head in q8_0; a model that the file cannot describe is\nrefused. "
             "`parley score --compare-weights` measures the loss of accuracy.",
    CLI_SETTINGS(keys),
    .run = run,
};
