// Shared by the commands: parsing options, opening an engine, standard input, the progress bar.
#include "ws/cli/cli.h"
#include "base/log.h"
#include "base/near_name.h"
#include "ws/cli/model_names.h"
#include "ws/cli/serve_options.h"
#include "ws/cli/terminal.h"
#include "ws/serve_config.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool cli_help(const struct cli_command *c, const struct config_table *t, const char *argument) {
    struct buf about;
    if (strcmp(argument, "--help") != 0 && strcmp(argument, "-h") != 0) return false;
    buf_init(&about, 1 << 16);
    if (c->describe) c->describe(&about);
    printf("usage: parley %s\n\n%s\n\n", c->usage, c->describe ? buf_z(&about) : c->about);
    config_help(t, stdout);
    if (c->serve) putchar('\n'), config_help(serve_config_table(), stdout);
    buf_release(&about);
    return true;
}

int cli_unknown_argument(const struct cli_command *c, const struct config_table *own,
                         const char *arg, struct err *err) {
    const struct config_table *const tables[] = {own, c->serve ? serve_config_table() : NULL};
    char name[64], option[64];
    struct near_name near = {.name = name};
    if (strncmp(arg, "--", 2) != 0 || !arg[2]) return cli_usage(err, "unknown argument '%s'", arg);
    snprintf(name, sizeof name, "%.*s", (int)strcspn(arg + 2, "="), arg + 2);
    for (int k = 0; k < 2; k++)
        for (int i = 0; tables[k] && i < tables[k]->n_keys; i++)
            near_name_look(&near, tables[k]->keys[i].name);
    if (!near.best) return cli_usage(err, "unknown argument '%s'", arg);
    snprintf(option, sizeof option, "%s", near.best);
    for (char *p = option; *p; p++)
        if (*p == '_') *p = '-';
    return cli_usage(err, "unknown argument '%s'; did you mean --%s?", arg, option);
}

// CLI_USAGE, or CLI_OK with *run unset after --help.
static int parse(const struct cli_command *c, const struct config_table *t, void *settings,
                 int argc, char **argv, char **words, bool *run, struct err *err) {
    int n_words = 0;
    for (int i = 1; i < argc; i++) {
        if (cli_help(c, t, argv[i])) return CLI_OK;
        int rc = config_arg(t, settings, argc, argv, &i, err);
        if (rc < 0) return CLI_USAGE;
        if (rc > 0) continue;
        if ((argv[i][0] == '-' && argv[i][1]) || n_words == c->max_words)
            return cli_unknown_argument(c, t, argv[i], err);
        words[n_words++] = argv[i];
    }
    *run = true;
    return CLI_OK;
}

// Prints the sentence and a hint at --help to stderr; CLI_USAGE.
static int fail_usage(const char *command, const struct err *err) {
    fprintf(stderr, "parley %s: %s\nTry `parley %s --help`.\n", command, err->text, command);
    return CLI_USAGE;
}

// A setting's variable that is misspelled; a variable with another name may be another program's.
static void warn_of_variable(const char *sentence, bool is_near) {
    if (is_near) fprintf(stderr, "parley: warning: %s\n", sentence);
}

int cli_main(const struct cli_command *c, int argc, char **argv) {
    const struct config_table *table = cli_options(c);
    void *settings = calloc(1, c->settings_bytes);
    char *words[3] = {NULL};
    struct err err = {0};
    bool run = false;
    int rc = settings ? config_init(table, settings, &err)
                      : err_set(&err, E_NOMEM, "out of memory for the settings");
    if (rc == 0) {
        if (!c->serve) config_unknown_env(serve_config_table(), warn_of_variable);
        if (c->serve)
            rc = serve_options_run(c, table, settings, argc, argv, &err);
        else
            rc = parse(c, table, settings, argc, argv, words, &run, &err);
        if (run)
            rc = model_names_resolve(table, settings,
                                     c->needs_text_only ? HUB_TOKENIZER : HUB_MODEL, &err);
        if (run && rc == 0) rc = c->run(settings, words, &err);
        config_release(cli_options(c), settings); // again: `documents` has built other tables
    }
    free(settings);
    if (rc == CLI_USAGE) return fail_usage(c->name, &err);
    return rc < 0 ? cli_fail(&err) : rc;
}

int cli_word(const struct cli_command *c, const char *word) {
    for (int i = 0; word && c->word(i); i++)
        if (strcmp(word, c->word(i)) == 0) return i;
    return -1;
}

int cli_usage(struct err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    return CLI_USAGE;
}

int cli_unknown_action(const char *word, const char *known, struct err *err) {
    if (!word) return cli_usage(err, "the action is missing: %s", known);
    return cli_usage(err, "unknown action '%.60s': %s", word, known);
}

int cli_fail(const struct err *err) {
    const char *text = err->text[0] ? err->text : err_name(err->code); // may quote a file's content
    fputs("parley: ", stderr);
    terminal_line(stderr, text, strlen(text));
    return CLI_FAILED;
}

int cli_engine_open(struct engine **out, const struct model_settings *m, int n_sequences,
                    struct err *err) {
    if (!m->model[0]) return err_set(err, E_INVAL, CLI_NO_MODEL);
    if (m->memory_len && m->sink_len >= m->memory_len)
        return err_set(err, E_INVAL, "sink_len (%lld) must be less than memory_len (%lld)",
                       (long long)m->sink_len, (long long)m->memory_len);
    struct engine_options o;
    log_set_level(LOG_WARN); // stderr of a command is for people; only the server logs events
    // The cache is sized for full windows; without memory_len that is the whole session.
    model_settings_engine(m, &o);
    o.max_sequences = n_sequences;
    o.max_queued_turns = n_sequences;
    o.max_session_len = m->session_len;
    o.progress = cli_progress;
    o.progress_ctx = "loading";
    o.measuring = cli_progress;
    o.measuring_ctx = "measuring the processor";
    return engine_open(out, &o, err);
}

int cli_prompt(const struct engine *e, const char *task, struct prompt **out, struct err *err) {
    const struct engine_info *info = engine_info(e);
    const struct prompt_task *known =
        prompt_task_find(info->prompt_tasks, info->n_prompt_tasks, task);
    *out = known ? prompt_hold(known->prompt) : NULL;
    return known || !task[0] ? 0 : engine_prompt_load(e, task, out, err);
}

int cli_push_virtual(const struct prompt *p, struct token_list *ids, struct err *err) {
    for (int32_t i = 0; p && i < p->n_rows; i++)
        if (token_list_push(ids, PROMPT_ID_FIRST + i) < 0)
            return err_set(err, E_NOMEM, "out of memory for %d virtual tokens", p->n_rows);
    return 0;
}

// The window of the options, else of the model.
static void set_window(const struct model_settings *m, const struct engine *e,
                       struct engine_turn *turn) {
    const struct engine_info *info = engine_info(e);
    turn->session_len = m->session_len ? m->session_len : info->max_session_len;
    int64_t memory = m->memory_len ? m->memory_len : turn->session_len;
    turn->memory_len = (int32_t)(memory < info->max_memory_len ? memory : info->max_memory_len);
    turn->sink_len = m->sink_len >= 0 ? (int32_t)m->sink_len : turn->memory_len > 4 ? 4 : 0;
    // Sinks keep a task's virtual tokens in the window.
    int32_t task = turn->prompt ? turn->prompt->n_rows : 0;
    if (m->sink_len < 0 && turn->sink_len < task)
        turn->sink_len = task < turn->memory_len ? task : turn->memory_len - 1;
}

int cli_submit(struct engine *e, const struct model_settings *m, struct engine_turn *turn,
               const int32_t *ids, int64_t n_ids, struct err *err) {
    set_window(m, e, turn);
    turn->n_ids = n_ids;
    turn->ids = malloc((size_t)(n_ids + 1) * sizeof *turn->ids);
    if (!turn->ids) return err_set(err, E_NOMEM, "out of memory for %lld ids", (long long)n_ids);
    if (n_ids) memcpy(turn->ids, ids, (size_t)n_ids * sizeof *turn->ids);
    int rc = engine_turn_submit(e, turn, err);
    if (rc < 0) free(turn->ids);
    return rc;
}

int cli_check_done(const struct engine_event *done, struct err *err) {
    if (done->finish != FINISH_ERROR) return 0;
    return err_set(err, done->error_code, "%.*s", (int)done->text_len, done->text);
}

int cli_wait_done(struct engine *e, struct err *err) {
    struct engine_event ev;
    do TRY(engine_wait(e, &ev, -1));
    while (ev.kind != ENGINE_DONE);
    return cli_check_done(&ev, err);
}

void cli_greedy(struct sampling_params *p, int64_t max_tokens) {
    sampling_params_init(p);
    p->temperature = 0;
    p->ignore_eos = true;
    p->max_tokens = (int32_t)max_tokens;
}

// main() replaces a closed standard input by a descriptor that is only written. Or a library has opened one of
// its own there before main(), which exec would close; an inherited one stays open.
static bool stdin_is_closed(void) {
    int own = fcntl(STDIN_FILENO, F_GETFD), mode = fcntl(STDIN_FILENO, F_GETFL);
    return own < 0 || own & FD_CLOEXEC || (mode & O_ACCMODE) == O_WRONLY;
}

// Waits also if another process has made the stream non-blocking.
static ssize_t read_stdin(char *chunk, size_t size) {
    struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t n;
    while ((n = read(STDIN_FILENO, chunk, size)) < 0 && (errno == EAGAIN || errno == EINTR))
        if (errno == EAGAIN) poll(&ready, 1, -1);
    return n;
}

int cli_read_stdin(struct buf *out, size_t max_bytes, struct err *err) {
    buf_init(out, max_bytes);
    char chunk[65536];
    ssize_t n;
    if (stdin_is_closed())
        return err_set(err, E_IO,
                       "standard input is closed; give the text with `< FILE` or through a pipe");
    while ((n = read_stdin(chunk, sizeof chunk)) > 0)
        if (buf_add(out, chunk, (size_t)n) < 0)
            return err_set(err, out->error, "standard input exceeds %zu MiB", max_bytes >> 20);
    return n < 0 ? err_errno(err, "reading standard input") : 0;
}

int cli_parse_ids(const char *text, struct token_list *out, struct err *err) {
    for (const char *p = text; *p;) {
        char *end;
        errno = 0;
        long v = strtol(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX || (*end && *end != ',') ||
            (*end && !end[1]))
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

void cli_json_begin(struct cli_json *j) {
    buf_init(&j->out, 1 << 30);
    json_writer_init(&j->w, &j->out);
    json_open(&j->w, NULL, '{');
}

int cli_json_end(struct cli_json *j, struct err *err) {
    json_close(&j->w, '}');
    int rc = j->out.error ? err_set(err, j->out.error, "out of memory for the output") : 0;
    if (rc == 0) cli_print_json(&j->out);
    buf_release(&j->out);
    return rc;
}

void cli_print_json(struct buf *b) {
    fwrite(buf_z(b), 1, b->len, stdout); // data is NULL if it is empty
    putchar('\n');
    fflush(stdout);
    buf_release(b);
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
