// parley: finds the command. main_<command>.c has it.
#include "ws/cli/cli.h"
#include "ws/version.h"
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct cli_command *const commands[] = {
    &command_serve,   &command_chat,     &command_generate, &command_tokenize,
    &command_score,   &command_sessions, &command_replay,   &command_bench,
    &command_inspect, &command_export,   &command_quantize, &command_synth,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out) {
    fprintf(out, "usage: parley COMMAND [OPTIONS]\n\nA chat engine whose unit of service is the "
                 "session.\n\n");
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
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
        if (!strcmp(argv[1], commands[i]->name))
            return finish(cli_main(commands[i], argc - 1, argv + 1));
    fprintf(stderr, "parley: unknown command '%s'; `parley --help` lists the commands\n", argv[1]);
    return CLI_USAGE;
}
