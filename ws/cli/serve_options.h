// The command line of `parley serve`, which `parley doctor` takes too: the command's own options,
// files of settings, and every setting of the server.
#pragma once
#include "ws/cli/cli.h"

struct serve_files { // such a command's own settings begin with these two
    char *config, *model_repository;
};
#define SERVE_FILE_ROWS                                                                            \
    TEXT("", config, "", "FILE", "Ini file with the settings below; see parley.ini(5)."),          \
        TEXT("", model_repository, "", "DIR",                                                      \
             "Triton's repository of FasterTransformer's backend. Model, 8-bit weights and idle "  \
             "time come from DIR/fastertransformer/config.pbtxt.")

// Reads the command line into the command's own settings, which are initialised, and into the
// server's; runs c->serve with both. The command line overrides the environment, then the file, then
// the repository, then the defaults. --help prints both tables. Returns as c->run.
int serve_options_run(const struct cli_command *c, const struct config_table *own_table,
                      struct serve_files *own, int argc, char **argv, struct err *err);
