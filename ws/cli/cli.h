// Shared by the commands of `parley`: options, engine, input, progress, exit codes. Only files of
// this folder include it.
#pragma once
#include "base/config_rows.h"
#include "base/json.h"
#include "engine/engine.h"
#include "ws/model_settings.h"
#include "ws/sampling_options.h"
#include <signal.h>
#include <stdbool.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct serve_config;

// A command. cli_main parses argv into its settings, runs it, prints its error and frees the
// settings.
struct cli_command {
    const char *name, *summary;          // in `parley --help`; without a summary it is not listed
    const char *usage, *about;           // in `parley NAME --help`; usage begins with the name
    void (*describe)(struct buf *about); // instead of `about`
    const struct config_key *keys;       // 32 at most
    int n_keys;
    size_t settings_bytes;
    // With a help text the settings begin with a struct model_settings, and its options follow the keys.
    // Commands that measure or talk default to the fast format, commands whose numbers are compared
    // with other programs to f32.
    struct {
        const char *fallback, *help;
    } compute;              // {CLI_COMPUTE_...}
    bool needs_text_only;   // a model on the hub is fetched without weights
    size_t sampling_offset; // of a struct sampling_options in the settings; 0: it has none
    int max_words;          // arguments that are not options, 2 at most
    const char *(*word)(
        int i); // the i-th value of the first of them; NULL: no more. NULL: any value
    // words ends with NULL. Returns CLI_OK, CLI_FAILED, cli_usage(), or a negative code
    // with *err set.
    int (*run)(void *settings, char **words, struct err *err);
    // Instead of run, for a command that also takes every setting of the server as an option. Its own
    // settings begin with a struct serve_files (serve_options.h), and it takes no words.
    int (*serve)(void *settings, struct serve_config *config, struct err *err);
};
int cli_main(const struct cli_command *c, int argc, char **argv); // the exit status
// The word's index in c->word; -1: not there, or NULL.
int cli_word(const struct cli_command *c, const char *word);
#define CLI_SETTINGS(rows)                                                                         \
    .keys = rows, .n_keys = sizeof rows / sizeof *rows, .settings_bytes = sizeof(SETTINGS)
// `return cli_usage(err, "--ids and --prompt exclude each other");`
int cli_usage(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The same for an argument that the command does not know: with the option that was probably meant. own: its options.
int cli_unknown_argument(const struct cli_command *c, const struct config_table *own,
                         const char *arg, struct err *err);
// CLI_USAGE; word may be NULL.
int cli_unknown_action(const char *word, const char *known, struct err *err);
int cli_version(bool json); // prints it; an exit status
// Whether patterns run as machine code: PCRE2 has a JIT, and the system allows memory that is written,
// then executed.
bool cli_pattern_jit_works(void);
// Prints the command's help if that is what the argument asks for.
bool cli_help(const struct cli_command *c, const struct config_table *t, const char *argument);
int cli_fail(const struct err *err); // prints "parley: sentence" to stderr; CLI_FAILED

// The keys of a command with those of its model and of sampling.
const struct config_table *cli_options(const struct cli_command *c);
#define CLI_COMPUTE_HELP                                                                           \
    "Number format of the computation: f32, bf16, f16 (GPU only) or auto: on a GPU the model's; "  \
    "on the CPU bf16 if all matrices are bf16 or of few bits and the processor multiplies bf16, "  \
    "else f32."
#define CLI_COMPUTE_AUTO "auto", CLI_COMPUTE_HELP
#define CLI_COMPUTE_EXACT "", CLI_COMPUTE_HELP " Without it f32 on the CPU, auto on a GPU."
#define CLI_COMPUTE_RECORDED "", CLI_COMPUTE_HELP " Without it as each turn was recorded."

#define CLI_NO_MODEL "--model is missing: the model folder"
#define CLI_NO_OUTPUT "--output is missing: the folder to write"
#define CLI_NO_OUTPUT_FILE "--output is missing: the file to write (NAME.gguf)"
// Opens the model for n_sequences turns at once. Shows a progress bar if stderr is a terminal.
int cli_engine_open(struct engine **out, const struct model_settings *m, int n_sequences,
                    struct err *err);
// Finds a task of --prompt-tasks or of the checkpoint by its name, else loads a folder. "" gives NULL. The
// caller calls prompt_free.
int cli_prompt(const struct engine *e, const char *task, struct prompt **out, struct err *err);
// Appends the ids of all rows of the table; p may be NULL.
int cli_push_virtual(const struct prompt *p, struct token_list *ids, struct err *err);
// Submits a turn on a copy of ids, with the memory_len, sink_len and session_len of the options.
int cli_submit(struct engine *e, const struct model_settings *m, struct engine_turn *turn,
               const int32_t *ids, int64_t n_ids, struct err *err);
// The error of a turn that ended with one; else 0.
int cli_check_done(const struct engine_event *done, struct err *err);
int cli_wait_done(struct engine *e, struct err *err); // skips all other events

// Greedy sampling of exactly max_tokens tokens, for measurements.
void cli_greedy(struct sampling_params *p, int64_t max_tokens);

// Reads all of standard input. The caller releases *out, also after an error.
int cli_read_stdin(struct buf *out, size_t max_bytes, struct err *err);
#define CLI_STDIN_BYTES ((size_t)64 << 20) // of a text
// Appends ids: "1,2,3".
int cli_parse_ids(const char *text, struct token_list *out, struct err *err);
// A bar, if stderr is a terminal. ctx: its label, a string.
void cli_progress(void *ctx, int64_t done, int64_t total);
// Makes Ctrl-C and SIGTERM set the returned flag, so that a command stops in order and removes
// partial output. A second signal ends the process at once.
const volatile sig_atomic_t *cli_stop_on_signal(void);

// One JSON object as a line on stdout: fields are written to w in between.
struct cli_json {
    struct buf out;
    struct json_writer w;
};
// Opens an object. Errors of j->w stay until cli_json_end.
void cli_json_begin(struct cli_json *j);
int cli_json_end(struct cli_json *j, struct err *err); // prints it and frees
void cli_print_json(struct buf *b);                    // a line on stdout; releases b

extern const struct cli_command command_bench, command_chat, command_doctor, command_documents,
    command_eval, command_export, command_generate, command_inspect, command_instances,
    command_models, command_quantize, command_replay, command_score, command_serve,
    command_sessions, command_synth, command_tokenize;
