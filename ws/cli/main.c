// parley: finds the command. main_<command>.c has it.
#include "base/near_name.h"
#include "engine/dist/comm.h"
#include "engine/dist/rank.h"
#include "engine/engine_process.h"
#include "ws/cli/cli.h"
#include "ws/cli/documents.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// Those that --help does not list come last.
static const struct cli_command *const commands[] = {
    &command_serve, &command_doctor,    &command_chat,     &command_generate,  &command_tokenize,
    &command_score, &command_models,    &command_sessions, &command_instances, &command_replay,
    &command_bench, &command_eval,      &command_inspect,  &command_export,    &command_quantize,
    &command_synth, &command_documents,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

const struct cli_command *cli_listed(int i) {
    return i < N_COMMANDS && commands[i]->summary ? commands[i] : NULL;
}

static void help(FILE *out) {
    fprintf(out, "usage: parley COMMAND [OPTIONS]\n\nA chat engine whose unit of service is the "
                 "session.\n\n");
    for (int i = 0; cli_listed(i); i++)
        fprintf(out, "  %-10s %s\n", cli_listed(i)->name, cli_listed(i)->summary);
    fprintf(out, "\n`parley --version [--json]` says what this program was built from.\n"
                 "`parley COMMAND --help` lists a command's options. Exit status: 0 done, 1 "
                 "failed, 2 wrong usage.\n");
}

// Runs a process that mpirun or srun has started beside the first one: it takes orders from that one, whatever
// its command line says.
static int follow(void) {
    int status = rank_run();
    fflush(NULL);
    if (status != 0) _exit(status); // MPI's exit handler would wait for ranks that are gone
    return status;
}

static bool uses_ranks(const struct cli_command *c) {
    return c == &command_serve || c->compute.help;
}

// Whether standard output is a pipe whose reader has ended, such as `head`.
static bool reader_has_enough(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLERR);
}

// Output that was not written, for example because the disk is full, is a failure.
static int finish(int status) {
    if (fflush(stdout) == 0 && !ferror(stdout)) return status;
    if (!reader_has_enough()) fputs("parley: cannot write standard output\n", stderr);
    return status == CLI_OK ? CLI_FAILED : status;
}

// Opens /dev/null for each closed standard stream, because a file that got its number would be taken for the
// stream. Reading or writing the substitute fails, as with the closed stream.
static void hold_standard_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)!open("/dev/null", fd ? O_RDONLY : O_WRONLY);
}

int main(int argc, char **argv) {
    hold_standard_streams();
    signal(SIGPIPE, SIG_IGN); // write() reports a closed pipe instead
    signal(SIGXFSZ, SIG_IGN); // and a file beyond the limit of its size
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "help") && argc == 3) { // of one command
        argv[1] = argv[2], argv[2] = "--help";
    } else if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
        help(stdout);
        return finish(CLI_OK);
    }
    if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V") || !strcmp(argv[1], "version")) {
        if (argc == 2 || (argc == 3 && !strcmp(argv[2], "--json")))
            return finish(cli_version(argc == 3));
        fprintf(stderr, "parley: --version takes no argument but --json\n");
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "rank")) return follow();               // started by comm_open
    if (!strcmp(argv[1], "engine")) return engine_process_run(); // started by process_open
    for (int i = 0; i < N_COMMANDS; i++) {
        if (strcmp(argv[1], commands[i]->name) != 0) continue;
        if (uses_ranks(commands[i]) && comm_is_follower()) return follow();
        return finish(cli_main(commands[i], argc - 1, argv + 1));
    }
    struct near_name near = {.name = argv[1]};
    for (int i = 0; i < N_COMMANDS; i++) near_name_look(&near, commands[i]->name);
    fprintf(stderr, "parley: unknown command '%s'; ", argv[1]);
    if (near.best) fprintf(stderr, "did you mean '%s'? ", near.best);
    fprintf(stderr, "`parley --help` lists the commands\n");
    return CLI_USAGE;
}
