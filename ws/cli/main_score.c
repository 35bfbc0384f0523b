// parley score: writes the logits at every position of a token sequence to a safetensors file, or
// compares them with those of another number format or model.
#include "engine/convert/calibrate.h"
#include "engine/model/model_config.h"
#include "engine/model/quantize.h"
#include "engine/model/safetensors.h"
#include "ws/cli/main_calibrate.h"
#include "ws/cli/score_compare.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMPARE_WEIGHTS "off|" WEIGHT_FORMATS "|int4"
#define COMPARE_KV "off|" ENGINE_KV_DTYPES
#define COMPARE_COMPUTE "off|f32|bf16|f16"
static char compute_words[][5] = {"", "f32", "bf16", "f16"};
enum { COMPARE_CONTEXT = 1024 };

struct settings {
    struct model_settings model;
    char *ids, *text, *logits, *compare_model, *prompt_task, *calibrate;
    int compare_weights, compare_kv, compare_compute;
    bool json;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("score", ids, "", NULL, "Token ids: 1,2,3 (either --ids or --text is required)."),
    TEXT("score", text, "", "FILE",
         "File with text to score; - reads standard input. Special tokens are recognised."),
    TEXT("score", prompt_task, "", "NAME|DIR",
         "A task of --prompt-tasks or of the checkpoint, or a folder of prompt learning, whose "
         "virtual tokens precede the ids; they are not scored."),
    TEXT("score", logits, "", NULL, "Safetensors file to write: `logits` (n_tokens, vocab) f32."),
    CHOICE(
        "score", compare_weights, COMPARE_WEIGHTS, "off",
        "Compare with the same model in this weight format, by top-1 agreement, perplexity, KL "
        "divergence and logits. Longer texts are split into pieces of --session-len tokens "
        "(default 1024). --fp8-activations applies to the compared model alone. int4: as `parley "
        "quantize` writes it, to a folder in TMPDIR that is removed afterwards."),
    TEXT("score", calibrate, "", "FILE",
         "With --compare-weights int4: text like the model's use, on which it is rounded, as by "
         "`parley "
         "quantize --calibrate`."),
    CHOICE("score", compare_kv, COMPARE_KV, "off",
           "Compare with a KV cache of this number format; together with --compare-weights, with "
           "both at once."),
    CHOICE("score", compare_compute, COMPARE_COMPUTE, "off",
           "Compare with the same model in this compute dtype."),
    TEXT("score", compare_model, "", MODEL_VALUE,
         "Compare with this model folder, for example one from `parley quantize`."),
    BOOL("score", json, "off",
         "Print a comparison as JSON. Without a comparison the output is always JSON."),
};

struct scoring {                       // written by the engine's thread, read after its last event
    struct safetensors_writer *writer; // NULL: compute only the sum
    const int32_t *ids;                // (n_ids) after n_virtual virtual tokens
    int64_t n_ids, n_virtual, n_vocab;
    double logprob_sum; // of ids[1..] each given what precedes it
    int rc;
    struct err err;
};

static void take_logits(void *ctx, int64_t position, const float *logits) {
    struct scoring *s = ctx;
    position -= s->n_virtual;
    if (position < 0) return;
    if (s->writer && s->rc == 0)
        s->rc = safetensors_write(s->writer, logits, (size_t)s->n_vocab * sizeof *logits, &s->err);
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < s->n_vocab; i++) max = fmax(max, (double)logits[i]);
    for (int64_t i = 0; i < s->n_vocab; i++) sum += exp((double)logits[i] - max);
    if (s->rc == 0 && !isfinite(sum))
        s->rc = err_set(&s->err, E_INTERNAL, "the model's logits at position %lld are not finite",
                        (long long)position);
    if (position + 1 < s->n_ids)
        s->logprob_sum += (double)logits[s->ids[position + 1]] - max - log(sum);
}

static int score(struct engine *e, const struct model_settings *model, const struct token_list *ids,
                 const struct prompt *prompt, struct scoring *s, struct err *err) {
    struct engine_turn turn = {.sequence = 1,
                               .turn = 1,
                               .n_input = (int64_t)ids->len,
                               .score_only = true,
                               .prompt = prompt,
                               .on_logits = take_logits,
                               .on_logits_ctx = s};
    struct model_settings as_long =
        *model; // as the text, which decides between longrope's frequencies
    if (!as_long.session_len && (int64_t)ids->len <= engine_info(e)->max_session_len)
        as_long.session_len = (int64_t)ids->len;
    sampling_params_init(&turn.sampling);
    TRY(cli_submit(e, &as_long, &turn, ids->ids, (int64_t)ids->len, err));
    TRY(cli_wait_done(e, err));
    if (s->rc < 0) *err = s->err;
    return s->rc;
}

static int read_text(const char *path, struct buf *out, struct err *err) {
    if (!strcmp(path, "-")) return cli_read_stdin(out, CLI_STDIN_BYTES, err);
    return buf_read_file(out, path, CLI_STDIN_BYTES, err);
}

static int get_ids(const struct settings *s, const struct engine *e, struct token_list *ids,
                   struct err *err) {
    struct buf text;
    size_t n_virtual = ids->len;
    if (s->ids[0]) return cli_parse_ids(s->ids, ids, err);
    int rc = read_text(s->text, &text, err);
    if (rc == 0) rc = engine_tokenize(e, buf_z(&text), text.len, true, ids, err);
    buf_release(&text);
    return rc < 0 || ids->len > n_virtual ? rc : err_set(err, E_INVAL, "the text is empty");
}

static int write_logits(const struct settings *s, struct engine *e, const struct token_list *ids,
                        const struct prompt *prompt, struct err *err) {
    int rc;
    int64_t n_virtual = prompt ? prompt->n_rows : 0;
    struct scoring scoring = {.ids = ids->ids + n_virtual,
                              .n_ids = (int64_t)ids->len - n_virtual,
                              .n_virtual = n_virtual,
                              .n_vocab = engine_info(e)->n_vocab};
    if (s->logits[0]) {
        struct tensor t = {.name = "logits",
                           .dtype = DTYPE_F32,
                           .n_dims = 2,
                           .shape = {scoring.n_ids, scoring.n_vocab},
                           .bytes =
                               (size_t)scoring.n_ids * (size_t)scoring.n_vocab * sizeof(float)};
        TRY(safetensors_create(&scoring.writer, s->logits, &t, 1, err));
    }
    TRY_GOTO(out, score(e, &s->model, ids, prompt, &scoring, err));
    if (scoring.writer) {
        rc = safetensors_finish(scoring.writer, err);
        scoring.writer = NULL;
        if (rc < 0) goto out;
    }
    printf("{\"tokens\":%lld,\"logprob\":", (long long)scoring.n_ids);
    if (isfinite(scoring.logprob_sum))
        printf("%.9g}\n", scoring.logprob_sum);
    else
        puts("null}"); // -inf: the model rules a token out
out:
    if (scoring.writer) safetensors_abort(scoring.writer);
    return rc;
}

// A folder of 4 bits, which is not a format that loading makes.
struct int4_folder {
    char parent[PATH_MAX], dir[PATH_MAX + 8]; // "": none
};

// calibrate: a text's file, or "".
static int int4_folder_make(struct int4_folder *f, const char *model, const char *calibrate,
                            struct err *err) {
    const char *temporary = getenv("TMPDIR");
    struct quantize_result result;
    struct calibration *c = NULL;
    snprintf(f->parent, sizeof f->parent, "%s/parley-score-XXXXXX",
             temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(f->parent)) {
        int rc = err_errno(err, "cannot create %s", f->parent);
        f->parent[0] = '\0';
        return rc;
    }
    snprintf(f->dir, sizeof f->dir, "%s/int4", f->parent);
    if (calibrate[0]) TRY(cli_calibrate(&c, model, calibrate, err));
    const int rc = quantize_write(&(struct quantize_options){.model_dir = model,
                                                             .out_dir = f->dir,
                                                             .weights = WEIGHTS_INT4,
                                                             .inputs = c ? calibration_find : NULL,
                                                             .inputs_ctx = c,
                                                             .stop = cli_stop_on_signal()},
                                  &result, err);
    calibration_free(c);
    return rc;
}

static void int4_folder_remove(const struct int4_folder *f) {
    if (!f->parent[0]) return;
    quantize_remove(f->dir);
    rmdir(f->parent);
}

// Each model gets a cache for one piece, so that both fit in memory.
static int compare(const struct settings *s, struct engine *e, const struct model_settings *model,
                   const struct token_list *ids, struct err *err) {
    struct engine *other = NULL;
    struct model_settings m = *model;
    struct score_comparison c;
    if (s->compare_model[0]) m.model = s->compare_model;
    struct int4_folder int4 = {0};
    int rc;
    if (s->compare_weights - 1 == WEIGHTS_INT4) {
        TRY_GOTO(out, int4_folder_make(&int4, m.model, s->calibrate, err));
        m.model = int4.dir;
        m.weight_dtype = WEIGHTS_OWN;
    } else if (s->compare_weights) {
        m.weight_dtype = s->compare_weights - 1;
    }
    m.fp8_activations = s->model.fp8_activations;
    if (s->compare_kv) m.kv_dtype = s->compare_kv - 1;
    if (s->compare_compute) m.compute_dtype = compute_words[s->compare_compute];
    TRY_GOTO(out, cli_engine_open(&other, &m, 1, err));
    rc = score_compare(e, other, model, ids->ids, (int64_t)ids->len, model->session_len, &c, err);
    if (rc == 0) rc = score_comparison_print(&c, s->json, err);
out:
    engine_close(other);
    int4_folder_remove(&int4);
    return rc;
}

static bool is_comparing(const struct settings *s) {
    return s->compare_weights || s->compare_kv || s->compare_compute || s->compare_model[0];
}

// A piece has 1,024 tokens, or the model's maximum. It sets the size of the engines' caches.
static int pick_context(struct model_settings *m, struct err *err) {
    struct model_config c;
    TRY(model_config_load(&c, m->model, err));
    m->session_len = c.max_positions < COMPARE_CONTEXT ? c.max_positions : COMPARE_CONTEXT;
    return 0;
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    struct engine *e = NULL;
    struct prompt *prompt = NULL;
    struct token_list ids;
    struct model_settings m = s->model;
    const bool comparing = is_comparing(s);
    int rc;
    if (comparing) m.fp8_activations = false; // of the one that is compared
    if (!m.model[0]) return cli_usage(err, CLI_NO_MODEL);
    if (!s->ids[0] == !s->text[0]) return cli_usage(err, "give exactly one of --ids and --text");
    if (comparing && s->logits[0])
        return cli_usage(err, "--logits cannot be combined with a comparison");
    if (comparing && s->prompt_task[0])
        return cli_usage(err, "--prompt-task cannot be combined with a comparison");
    if (s->calibrate[0] && s->compare_weights - 1 != WEIGHTS_INT4)
        return cli_usage(err, "--calibrate needs --compare-weights int4");
    token_list_init(&ids);
    if (comparing && !m.session_len) TRY_GOTO(out, pick_context(&m, err));
    TRY_GOTO(out, cli_engine_open(&e, &m, 1, err));
    TRY_GOTO(out, cli_prompt(e, s->prompt_task, &prompt, err));
    TRY_GOTO(out, cli_push_virtual(prompt, &ids, err));
    TRY_GOTO(out, get_ids(s, e, &ids, err));
    rc = comparing ? compare(s, e, &m, &ids, err) : write_logits(s, e, &ids, prompt, err);
out:
    engine_close(e);
    prompt_free(prompt);
    token_list_release(&ids);
    return rc;
}

const struct cli_command command_score = {
    .name = "score",
    .summary = "write the logits of a token sequence, or compare two number formats",
    .usage = "score --model MODEL (--ids 1,2,3 | --text FILE) [--logits OUT | "
             "--compare-weights|-kv|-compute NAME]",
    .about = "Computes the logits at each position of a token sequence, and writes them or "
             "compares\nthem with those of another weight format, cache format, compute dtype or "
             "model.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_EXACT},
    .run = run,
};
