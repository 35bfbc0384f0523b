// What the commands of `parley` share: options from tables, an engine on a model folder, input,
// progress, exit codes. Only main*.c files of this folder include it; they may see every layer
// (STYLE: layers).
#pragma once
#include "base/config.h"
#include "engine/engine.h"
#include <signal.h>
#include <stdbool.h>

enum { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

struct cli_command {
    const char *name, *summary;
    int (*run)(int argc, char **argv); // argv[0] is the command's name; returns the exit status
};

// Parses argv[1..] by the table into settings (initialised here, config_release is the caller's).
// Words that are no options go to words (at most max_words), *n_words counts them. Returns
// CLI_PARSED; CLI_HELP_SHOWN after
// --help; or, after saying why on stderr, an exit status. Except for CLI_PARSED the settings are
// released.
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
// What --compute-dtype is unless given, and its help: what measures and talks takes what is fast,
// what is compared with other programs' numbers takes f32.
#define CLI_COMPUTE_WORDS                                                                          \
    "What is computed in: f32, bf16, on a GPU f16, or auto: a GPU takes the model's; the CPU "     \
    "bf16 "                                                                                        \
    "where all matrices are bf16 and it multiplies bf16, else f32."
#define CLI_COMPUTE_AUTO "auto", CLI_COMPUTE_WORDS
#define CLI_COMPUTE_EXACT "", CLI_COMPUTE_WORDS " Unless given: f32 on the CPU, auto on a GPU."
#define CLI_COMPUTE_RECORDED                                                                       \
    "", CLI_COMPUTE_WORDS " Unless given: what each turn was recorded with."
// compute: one of these three
#define CLI_MODEL_KEYS(T, m, ...)                                                                  \
    {"model", "model", CONFIG_STRING, offsetof(T, m.model), 0, 0, 0, "", "Model folder.", 0},      \
        {"model",                                                                                  \
         "chat_template",                                                                          \
         CONFIG_STRING,                                                                            \
         offsetof(T, m.chat_template),                                                             \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         "",                                                                                       \
         "Built-in form or template file to use instead of the model's own.",                      \
         0},                                                                                       \
        {"model",                                                                                  \
         "device",                                                                                 \
         CONFIG_STRING,                                                                            \
         offsetof(T, m.device),                                                                    \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         "auto",                                                                                   \
         "Where to run: auto, cpu, cuda:0 ...",                                                    \
         0},                                                                                       \
        {"model",                                                                                  \
         "compute_dtype",                                                                          \
         CONFIG_STRING,                                                                            \
         offsetof(T, m.compute_dtype),                                                             \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         __VA_ARGS__,                                                                              \
         0},                                                                                       \
        {"model",                                                                                  \
         "deterministic",                                                                          \
         CONFIG_BOOL,                                                                              \
         offsetof(T, m.deterministic),                                                             \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         "off",                                                                                    \
         "On a GPU: the same bits whatever the batch.",                                            \
         0},                                                                                       \
        {"model",                                                                                  \
         "gpu_memory_fraction",                                                                    \
         CONFIG_FLOAT,                                                                             \
         offsetof(T, m.gpu_memory_fraction),                                                       \
         0,                                                                                        \
         1,                                                                                        \
         0,                                                                                        \
         "0",                                                                                      \
         "How much of a GPU's memory weights, work and cache may take together; 0: what the work " \
         "needs.",                                                                                 \
         0},                                                                                       \
        {"model",                                                                                  \
         "isa",                                                                                    \
         CONFIG_STRING,                                                                            \
         offsetof(T, m.isa),                                                                       \
         0,                                                                                        \
         0,                                                                                        \
         0,                                                                                        \
         "auto",                                                                                   \
         "CPU instruction set: auto, portable, avx2, avx512 or amx.",                              \
         0},                                                                                       \
        {"model",                                                                                  \
         "threads",                                                                                \
         CONFIG_INT,                                                                               \
         offsetof(T, m.threads),                                                                   \
         0,                                                                                        \
         64,                                                                                       \
         0,                                                                                        \
         "0",                                                                                      \
         "CPU threads; 0 takes every core.",                                                       \
         0},                                                                                       \
        {"model",                                                                                  \
         "weight_dtype",                                                                           \
         CONFIG_CHOICE,                                                                            \
         offsetof(T, m.weight_dtype),                                                              \
         0,                                                                                        \
         0,                                                                                        \
         WEIGHT_FORMATS,                                                                           \
         "model",                                                                                  \
         "Number format of the weights: the model's own, or 8 bits with a scale for each output, " \
         "made while loading: integers or, fp8, e4m3 floating point.",                             \
         0},                                                                                       \
        {"model",                                                                                  \
         "kv_dtype",                                                                               \
         CONFIG_CHOICE,                                                                            \
         offsetof(T, m.kv_dtype),                                                                  \
         0,                                                                                        \
         0,                                                                                        \
         ENGINE_KV_DTYPES,                                                                         \
         "auto",                                                                                   \
         "Number format of the KV cache; auto is what the backend computes in, f32 on the CPU. "   \
         "fp8 and int8 have a scale for each position and head.",                                  \
         0},                                                                                       \
        {"model",                                                                                  \
         "kv_cache_bytes",                                                                         \
         CONFIG_BYTES,                                                                             \
         offsetof(T, m.kv_cache_bytes),                                                            \
         0,                                                                                        \
         4096.0 * (1 << 30),                                                                       \
         0,                                                                                        \
         "0",                                                                                      \
         "Size of the KV cache pool; 0 takes what the work needs.",                                \
         0},                                                                                       \
        {"model",                                                                                  \
         "block_tokens",                                                                           \
         CONFIG_INT,                                                                               \
         offsetof(T, m.block_tokens),                                                              \
         8,                                                                                        \
         256,                                                                                      \
         0,                                                                                        \
         "64",                                                                                     \
         "Positions in one cache block; a power of two.",                                          \
         0},                                                                                       \
        {"model",                                                                                  \
         "prefill_chunk_tokens",                                                                   \
         CONFIG_INT,                                                                               \
         offsetof(T, m.prefill_chunk_tokens),                                                      \
         0,                                                                                        \
         8192,                                                                                     \
         0,                                                                                        \
         "0",                                                                                      \
         "Most prompt tokens of one step; 0: 256, on a GPU 2048.",                                 \
         0},                                                                                       \
        {"model",                                                                                  \
         "memory_len",                                                                             \
         CONFIG_INT,                                                                               \
         offsetof(T, m.memory_len),                                                                \
         0,                                                                                        \
         1e9,                                                                                      \
         0,                                                                                        \
         "0",                                                                                      \
         "Tokens whose keys and values are kept; 0 keeps all of the session.",                     \
         0},                                                                                       \
        {"model",                                                                                  \
         "sink_len",                                                                               \
         CONFIG_INT,                                                                               \
         offsetof(T, m.sink_len),                                                                  \
         -1,                                                                                       \
         1e9,                                                                                      \
         0,                                                                                        \
         "-1",                                                                                     \
         "First tokens that always stay visible; -1: 4, or 0 when memory_len is not over 4.",      \
         0},                                                                                       \
    {                                                                                              \
        "model", "session_len", CONFIG_INT, offsetof(T, m.session_len), 0, 1e9, 0, "0",            \
            "Most tokens of one session; 0: what the work needs.", 0                               \
    }

#define CLI_NO_MODEL "--model says which model folder to use"
// Opens the model for n_sequences turns at once; a progress bar on a terminal's stderr.
int cli_engine_open(struct engine **out, const struct cli_model *m, int n_sequences,
                    struct err *err);
// memory_len, sink_len and session_len of a turn on that engine: the options, or what they default
// to.
void cli_turn_window(const struct cli_model *m, const struct engine *e, struct engine_turn *turn);

// Options of every command that draws tokens, as they were written: an empty one was not given.
struct cli_sampling {
    char *temperature, *top_k, *top_p, *min_p, *repetition_penalty, *presence_penalty;
    char *frequency_penalty, *min_tokens, *seed, *stop;
};
#define CLI_SAMPLING_KEY(T, m, name, metavar, help)                                                \
    { "sampling", #name, CONFIG_STRING, offsetof(T, m.name), 0, 0, metavar, "", help, 0 }
#define CLI_SAMPLING_KEYS(T, m)                                                                    \
    CLI_SAMPLING_KEY(T, m, temperature, "X", "0 is greedy; 0 to 100."),                            \
        CLI_SAMPLING_KEY(T, m, top_k, "N", "Keep the N likeliest tokens; 0 keeps all."),           \
        CLI_SAMPLING_KEY(                                                                          \
            T, m, top_p, "X",                                                                      \
            "Keep the likeliest tokens that together have this probability; 1 keeps all."),        \
        CLI_SAMPLING_KEY(T, m, min_p, "X",                                                         \
                         "Drop tokens below this share of the likeliest one's probability."),      \
        CLI_SAMPLING_KEY(T, m, repetition_penalty, "X", "Over 1 makes repeating less likely."),    \
        CLI_SAMPLING_KEY(T, m, presence_penalty, "X",                                              \
                         "Taken once from tokens already generated."),                             \
        CLI_SAMPLING_KEY(T, m, frequency_penalty, "X",                                             \
                         "Taken from tokens already generated, times their count."),               \
        CLI_SAMPLING_KEY(T, m, min_tokens, "N", "No end of sequence before this many tokens."),    \
        CLI_SAMPLING_KEY(T, m, seed, "N", "64-bit seed of the draws; without it one is drawn."),   \
        CLI_SAMPLING_KEY(T, m, stop, "TEXT", "Stop before this text appears.")
// Puts what was given over what *p already holds; E_INVAL names the option that cannot be (wrong
// usage).
int cli_sampling_apply(const struct cli_sampling *s, struct sampling_params *p, struct err *err);

int cli_read_stdin(struct buf *out, size_t max_bytes, struct err *err);       // all of it
#define CLI_STDIN_BYTES ((size_t)64 << 20)                                    // of a text
int cli_parse_ids(const char *text, struct token_list *out, struct err *err); // "1,2,3"
void cli_progress(void *ctx /* const char *label */, int64_t done,
                  int64_t total); // bar, if stderr is a terminal
// For a command that writes a folder: 0 when both are named; else, after saying which is not on
// stderr, an exit status.
int cli_need_folders(const char *command, const char *model, const char *output);
// From now on Ctrl-C or SIGTERM sets the flag that this gives, so that work ends in order and what
// was written goes; a second one ends the process at once.
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
