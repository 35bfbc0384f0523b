// Shared by the commands: parsing options, opening an engine, standard input, the progress bar.
#include "ws/cli/cli.h"
#include "base/log.h"
#include "ws/cli/terminal.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int cli_parse(const struct config_table *t, void *settings, int argc, char **argv,
              const char *usage, const char *about, char **words, int max_words, int *n_words) {
    struct err err = {0};
    *n_words = 0;
    if (config_init(t, settings, &err) < 0) return cli_fail(&err);
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            printf("usage: parley %s\n\n%s\n\n", usage, about);
            config_help(t, stdout);
            config_release(t, settings);
            return CLI_HELP_SHOWN;
        }
        int rc = config_arg(t, settings, argc, argv, &i, &err);
        if (rc == 0 && (argv[i][0] != '-' || !argv[i][1]) && *n_words < max_words) {
            words[(*n_words)++] = argv[i];
            continue;
        }
        if (rc > 0) continue;
        config_release(t, settings);
        return rc < 0 ? cli_usage(argv[0], "%s", err.text)
                      : cli_usage(argv[0], "unknown argument '%s'", argv[i]);
    }
    return CLI_PARSED;
}

int cli_usage(const char *command, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "parley %s: ", command);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\nTry `parley %s --help`.\n", command);
    va_end(ap);
    return CLI_USAGE;
}

int cli_fail(const struct err *err) {
    const char *text = err->text[0] ? err->text : err_name(err->code); // may quote a file's content
    fputs("parley: ", stderr);
    terminal_line(stderr, text, strlen(text));
    return CLI_FAILED;
}

int cli_engine_open(struct engine **out, const struct cli_model *m, int n_sequences,
                    struct err *err) {
    if (!m->model[0]) return err_set(err, E_INVAL, CLI_NO_MODEL);
    struct engine_options o;
    log_set_level(LOG_WARN); // stderr of a command is for people; only the server logs events
    engine_options_init(&o);
    o.model_dir = m->model;
    o.chat_template = m->chat_template[0] ? m->chat_template : NULL;
    o.device = m->device;
    o.isa = m->isa;
    o.compute_dtype = m->compute_dtype[0] ? m->compute_dtype : NULL;
    o.deterministic = m->deterministic;
    o.gpu_memory_fraction = m->gpu_memory_fraction;
    o.n_threads = (int32_t)m->threads;
    o.weight_format = (enum weight_format)m->weight_dtype;
    engine_options_kv_dtype(&o, m->kv_dtype);
    o.kv_cache_bytes = m->kv_cache_bytes;
    o.block_tokens = (int32_t)m->block_tokens;
    o.prefill_chunk_tokens = (int32_t)m->prefill_chunk_tokens;
    o.max_sequences = n_sequences;
    o.max_queued_turns = n_sequences;
    o.max_session_len = m->session_len;
    // The cache is sized for full windows; without memory_len that is the whole session.
    o.default_memory_len = (int32_t)m->memory_len;
    o.progress = cli_progress;
    o.progress_ctx = "loading";
    o.measuring = cli_progress;
    o.measuring_ctx = "measuring the processor";
    return engine_open(out, &o, err);
}

void cli_turn_window(const struct cli_model *m, const struct engine *e, struct engine_turn *turn) {
    const struct engine_info *info = engine_info(e);
    turn->session_len = m->session_len ? m->session_len : info->max_session_len;
    int64_t memory = m->memory_len ? m->memory_len : turn->session_len;
    turn->memory_len = (int32_t)(memory < info->max_memory_len ? memory : info->max_memory_len);
    turn->sink_len = m->sink_len >= 0 ? (int32_t)m->sink_len : turn->memory_len > 4 ? 4 : 0;
}

void cli_greedy(struct sampling_params *p, int64_t max_tokens) {
    sampling_params_init(p);
    p->temperature = 0;
    p->ignore_eos = true;
    p->max_tokens = (int32_t)max_tokens;
}

int cli_read_stdin(struct buf *out, size_t max_bytes, struct err *err) {
    buf_init(out, max_bytes);
    char chunk[65536];
    ssize_t n;
    while ((n = read(STDIN_FILENO, chunk, sizeof chunk)) > 0)
        if (buf_add(out, chunk, (size_t)n) < 0)
            return err_set(err, out->error, "standard input exceeds %zu MiB", max_bytes >> 20);
    return n < 0 ? err_errno(err, "reading standard input") : 0;
}

int cli_parse_ids(const char *text, struct token_list *out, struct err *err) {
    for (const char *p = text; *p;) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && *end != ','))
            return err_set(err, E_INVAL, "--ids takes token ids separated by commas, not '%.40s'",
                           p);
        if (token_list_push(out, (int32_t)v) < 0)
            return err_set(err, E_NOMEM, "out of memory for the ids");
        p = *end ? end + 1 : end;
    }
    return 0;
}

void cli_progress(void *ctx, int64_t done, int64_t total) {
    static int last = -1; // percent on the terminal; limits it to 101 updates
    if (!isatty(STDERR_FILENO) || total <= 0) return;
    int percent = (int)(done * 100 / total);
    if (percent == last) return;
    last = percent;
    char bar[41];
    int filled = percent * 40 / 100;
    memset(bar, '#', (size_t)filled);
    memset(bar + filled, '.', (size_t)(40 - filled));
    bar[40] = 0;
    fprintf(stderr, "\r%s [%s] %3d%%%s", (const char *)ctx, bar, percent,
            percent == 100 ? "\r\033[K" : "");
    if (percent == 100) last = -1;
}

void cli_print_json(struct buf *b) {
    fwrite(b->data, 1, b->len, stdout);
    putchar('\n');
    fflush(stdout);
    buf_release(b);
}

int cli_need_folders(const char *command, const char *model, const char *output) {
    if (model[0] && output[0]) return 0;
    return cli_usage(command, model[0] ? "--output is missing: the folder to write" : CLI_NO_MODEL);
}

static volatile sig_atomic_t stop;

static void on_signal(int signal) {
    stop = 1;
}

const volatile sig_atomic_t *cli_stop_on_signal(void) {
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return &stop;
}
