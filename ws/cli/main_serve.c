// parley serve: the server. The command line overrides the environment, then the file, then the
// defaults.
#include "ws/cli/cli.h"
#include "ws/serve.h"
#include "ws/serve_config.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// --config is read first, wherever it is in argv, because options override it.
static const char *config_path(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (!strncmp(argv[i], "--config=", 9)) return argv[i] + 9;
        if (!strcmp(argv[i], "--config") && i + 1 < argc) return argv[i + 1];
    }
    return getenv("PARLEY_CONFIG");
}

static void help(void) {
    puts("usage: parley serve [--config FILE] [OPTIONS]\n\n"
         "Serves a model: the chat page, WebSocket sessions at /ws, /healthz, /readyz, /metrics, "
         "/config.\n"
         "Every key of the ini file is an option of the same name and a variable PARLEY_NAME.\n\n"
         "  --config FILE        ini file with the keys below\n"
         "  --print-config       print the current configuration as an ini file and exit\n");
    config_help(serve_config_table(), stdout);
}

static int run(int argc, char **argv) {
    struct serve_config config;
    struct err err = {0};
    bool print = false;
    const char *path = config_path(argc, argv);
    int rc = config_init(serve_config_table(), &config, &err);
    if (rc < 0) return cli_fail(&err);
    if (path && (rc = config_load(serve_config_table(), &config, path, &err)) < 0) goto out;
    if ((rc = config_load_env(serve_config_table(), &config, &err)) < 0) goto out;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help();
            goto out;
        } else if (!strcmp(argv[i], "--print-config")) {
            print = true;
        } else if (!strcmp(argv[i], "--config")) {
            if (++i == argc) {
                rc = cli_usage(&err, "--config needs a file");
                goto out;
            }
        } else if (strncmp(argv[i], "--config=", 9)) {
            rc = config_arg(serve_config_table(), &config, argc, argv, &i, &err);
            if (rc > 0) continue;
            rc = rc < 0 ? CLI_USAGE : cli_usage(&err, "unknown argument '%s'", argv[i]);
            goto out;
        }
    }
    if (print)
        config_write_ini(serve_config_table(), &config, stdout);
    else
        rc = serve_run(&config, &err);
out:
    config_release(serve_config_table(), &config);
    if (rc == E_DEVICE) { // all turns are stored; exit handlers of the GPU driver may hang
        cli_fail(&err);
        fflush(NULL);
        _exit(SERVE_EXIT_RESTART);
    }
    if (rc == CLI_USAGE) return cli_fail_usage(argv[0], &err);
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}

const struct cli_command command_serve = {
    .name = "serve",
    .summary = "serve a model: chat page, WebSocket protocol, metrics",
    .main = run,
};
