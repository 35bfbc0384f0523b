// parley quantize: writes a model folder with 8-bit matrices.
#include "base/json.h"
#include "base/log.h"
#include "engine/model/quantize.h"
#include "ws/cli/cli.h"

struct settings {
    char *model, *output;
    int weight_dtype;
    bool json;
};
static const struct config_key keys[] = {
    {"", "model", CONFIG_STRING, offsetof(struct settings, model), 0, 0, "DIR", "",
     "Model folder to quantise (required).", 0},
    {"", "output", CONFIG_STRING, offsetof(struct settings, output), 0, 0, "DIR", "",
     "Folder to create (required).", 0},
    {"", "weight_dtype", CONFIG_CHOICE, offsetof(struct settings, weight_dtype), 0, 0, "int8|fp8",
     "int8", "Format of the matrices: int8, or fp8 (e4m3).", 0},
    {"", "json", CONFIG_BOOL, offsetof(struct settings, json), 0, 0, 0, "off", "Print JSON.", 0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

static void report(const struct settings *s, const struct quantize_result *r) {
    if (!s->json) {
        printf("%s: %lld matrices in 8 bits (%s), %.2f GB instead of %.2f\n", s->output,
               (long long)r->n_matrices, s->weight_dtype ? "fp8" : "int8",
               (double)r->bytes_after / 1e9, (double)r->bytes_before / 1e9);
        return;
    }
    struct buf out;
    struct json_writer w;
    buf_init(&out, 1 << 16);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_put_string(&w, "output", s->output);
    json_put_int(&w, "matrices", r->n_matrices);
    json_put_int(&w, "bytes_before", r->bytes_before);
    json_put_int(&w, "bytes_after", r->bytes_after);
    json_close(&w, '}');
    cli_print_json(&out);
}

int main_quantize(int argc, char **argv) {
    struct settings s;
    struct quantize_result result;
    struct err err = {0};
    int n_words,
        rc = cli_parse(
            &table, &s, argc, argv, "quantize --model DIR --output DIR",
            "Writes a model folder whose matrices have 8 bits and a scale for each output, the "
            "same as\n--weight-dtype produces while loading. int8: in the layout that the CPU maps "
            "and shares\nbetween processes. fp8: e4m3 in the format of compressed-tensors, which "
            "other programs\nread. `parley score --compare-weights` measures the loss of accuracy.",
            NULL, 0, &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    rc = cli_need_folders(argv[0], s.model, s.output);
    if (rc != 0) {
        config_release(&table, &s);
        return rc;
    }
    log_set_level(LOG_WARN);
    struct quantize_options o = {.model_dir = s.model,
                                 .out_dir = s.output,
                                 .weights = s.weight_dtype ? WEIGHTS_FP8 : WEIGHTS_INT8,
                                 .progress = cli_progress,
                                 .progress_ctx = "quantizing",
                                 .stop = cli_stop_on_signal()};
    rc = quantize_write(&o, &result, &err);
    if (rc == 0) report(&s, &result);
    config_release(&table, &s);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
