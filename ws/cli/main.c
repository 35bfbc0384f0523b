// parley: one program, one command each. This file only finds the command; main_<command>.c does
// the work.
#include "ws/cli/cli.h"
#include "ws/version.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct cli_command commands[] = {
    {"serve", "serve a model: the chat page, the WebSocket protocol, metrics", main_serve},
    {"chat", "talk in the terminal, to a running server or to a model folder", main_chat},
    {"generate", "continue a prompt once", main_generate},
    {"tokenize", "text to token ids and back", main_tokenize},
    {"score", "write the logits of a token sequence, or compare those of other weights",
     main_score},
    {"sessions", "list, show, move, back up, repair and remove sessions", main_sessions},
    {"replay", "run a recorded session again and compare every bit, or ask what if", main_replay},
    {"bench", "measure prefill and decode against this machine's ceiling", main_bench},
    {"inspect", "show what a model folder holds and needs", main_inspect},
    {"export", "write a model as a FasterTransformer checkpoint", main_export},
    {"quantize", "write a model folder with its matrices in 8 bits", main_quantize},
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

// A result that did not reach its file, on a full disk say, is no success.
static int finish(int status) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    fputs("parley: cannot write standard output\n", stderr);
    return status == CLI_OK ? CLI_FAILED : status;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN); // a reader that went away is an error of write(), not our end
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
    fprintf(stderr, "parley: '%s' is no command; `parley --help` lists them\n", argv[1]);
    return CLI_USAGE;
}
