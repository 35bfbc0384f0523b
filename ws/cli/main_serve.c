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

int main_serve(int argc, char **argv) {
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
                config_release(serve_config_table(), &config);
                return cli_usage(argv[0], "--config needs a file");
            }
        } else if (strncmp(argv[i], "--config=", 9)) {
            rc = config_arg(serve_config_table(), &config, argc, argv, &i, &err);
            if (rc == 0) rc = err_set(&err, E_INVAL, "unknown argument '%s'", argv[i]);
            if (rc < 0) {
                config_release(serve_config_table(), &config);
                return cli_usage(argv[0], "%s", err.text);
            }
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
    return rc < 0 ? cli_fail(&err) : CLI_OK;
}
