// parley: finds the command. main_<command>.c implements it.
#include "ws/cli/cli.h"
#include "ws/version.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    {"serve", "serve a model: chat page, WebSocket protocol, metrics", main_serve},
    {"chat", "chat in the terminal, with a running server or a model folder", main_chat},
    {"generate", "continue a prompt once", main_generate},
    {"tokenize", "convert text to token ids and back", main_tokenize},
    {"score", "write the logits of a token sequence, or compare two number formats", main_score},
    {"sessions", "list, show, move, back up, repair and remove sessions", main_sessions},
    {"replay", "recompute a recorded session and compare every bit, or ask what if", main_replay},
    {"bench", "measure prefill and decode against the machine's memory bandwidth", main_bench},
    {"inspect", "show a model folder's contents and memory need", main_inspect},
    {"export", "write a model as a FasterTransformer checkpoint", main_export},
    {"quantize", "write a model folder with 8-bit matrices", main_quantize},
    {"synth", "write a random checkpoint of any shape", main_synth},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out) {
    fprintf(out, "usage: parley COMMAND [OPTIONS]\n\nA chat engine whose unit of service is the "
                 "session.\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(out, "\n`parley COMMAND --help` lists a command's options. Exit status: 0 done, 1 "
                 "failed, 2 wrong usage.\n");
}

// Output that was not written, for example because the disk is full, is a failure.
static int finish(int status) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fputs("parley: cannot write standard output\n", stderr);
    return status == CLI_OK ? CLI_FAILED : status;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // write() reports a closed pipe instead
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return CLI_OK;
    }
    if (!strcmp(argv[1], "--version")) {
        printf("parley %s\n", PARLEY_VERSION);
        return CLI_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(argv[1], commands[i].name)) return finish(commands[i].run(argc - 1, argv + 1));
    fprintf(stderr, "parley: unknown command '%s'; `parley --help` lists the commands\n", argv[1]);
    return CLI_USAGE;
}
