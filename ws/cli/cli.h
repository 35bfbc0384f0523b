// Shared by the commands of `parley`: options, engine, input, progress, exit codes. Only files of
// this folder include it.
#pragma once
#include "base/config.h"
#include "engine/engine.h"
#include "ws/sampling_options.h"
#include <signal.h>
#include <stdbool.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); // argv[0] is the command's name; returns the exit status
};

// Initialises settings and parses argv[1..] into it. Arguments that are no options go to words
// (*n_words, at most max_words). Returns CLI_PARSED (then the caller calls config_release);
// CLI_HELP_SHOWN after --help; or, after an error message on stderr, an exit status.
enum { CLI_PARSED = 0, CLI_HELP_SHOWN = -1 };
int cli_parse(const struct config_table *t, void *settings, int argc, char **argv,
              const char *usage, const char *about, char **words, int max_words, int *n_words);
// `return cli_usage("generate", "--ids and --prompt exclude each other");`
int cli_usage(const char *command, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
int cli_fail(const struct err *err); // prints "parley: sentence" to stderr; CLI_FAILED

// Options of every command that loads a model.
struct cli_model {
    char *model, *chat_template, *device, *isa, *compute_dtype;
    bool deterministic;
    double gpu_memory_fraction;
    int64_t threads, kv_cache_bytes, block_tokens, prefill_chunk_tokens;
    int64_t memory_len, sink_len, session_len;
    int kv_dtype, weight_dtype;
};
// The options of a command that loads a model or samples: its own rows (32 at most), then those of
// struct cli_model and struct sampling_options, which stand at `offset` in its settings.
const struct config_table *cli_table(const struct config_key *keys, int n);
// compute: one of the three below. Commands that measure or talk default to the fast format,
// commands whose numbers are compared with other programs to f32.
void cli_table_model(size_t offset, const char *compute, const char *compute_help);
void cli_table_sampling(size_t offset);
#define CLI_COMPUTE_HELP                                                                           \
    "Number format of the computation: f32, bf16, f16 (GPU only) or auto: on a GPU the model's; "  \
    "on the CPU bf16 if all matrices are bf16 and the processor multiplies bf16, else f32."
#define CLI_COMPUTE_AUTO "auto", CLI_COMPUTE_HELP
#define CLI_COMPUTE_EXACT "", CLI_COMPUTE_HELP " If not given: f32 on the CPU, auto on a GPU."
#define CLI_COMPUTE_RECORDED "", CLI_COMPUTE_HELP " If not given: as each turn was recorded."

#define CLI_NO_MODEL "--model is missing: the model folder"
// Opens the model for n_sequences turns at once. Shows a progress bar if stderr is a terminal.
int cli_engine_open(struct engine **out, const struct cli_model *m, int n_sequences,
                    struct err *err);
// Sets memory_len, sink_len and session_len of a turn from the options or their defaults.
void cli_turn_window(const struct cli_model *m, const struct engine *e, struct engine_turn *turn);

// Greedy sampling of exactly max_tokens tokens, for measurements.
void cli_greedy(struct sampling_params *p, int64_t max_tokens);

int cli_read_stdin(struct buf *out, size_t max_bytes, struct err *err);       // all of it
#define CLI_STDIN_BYTES ((size_t)64 << 20)                                    // of a text
int cli_parse_ids(const char *text, struct token_list *out, struct err *err); // "1,2,3"
void cli_progress(void *ctx /* const char *label */, int64_t done,
                  int64_t total); // bar, if stderr is a terminal
// For a command that writes a folder: 0 if both are given; else an exit status, after an error
// message on stderr.
int cli_need_folders(const char *command, const char *model, const char *output);
// Makes Ctrl-C and SIGTERM set the returned flag, so that a command stops in order and removes
// partial output. A second signal ends the process at once.
const volatile sig_atomic_t *cli_stop_on_signal(void);
void cli_print_json(struct buf *b); // a line on stdout; releases b

int main_serve(int argc, char **argv);
int main_chat(int argc, char **argv);
int main_generate(int argc, char **argv);
int main_tokenize(int argc, char **argv);
int main_score(int argc, char **argv);
int main_sessions(int argc, char **argv);
int main_replay(int argc, char **argv);
int main_bench(int argc, char **argv);
int main_inspect(int argc, char **argv);
int main_export(int argc, char **argv);
int main_quantize(int argc, char **argv);
int main_synth(int argc, char **argv);
