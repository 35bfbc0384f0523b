// parley serve: the server. The command line overrides the environment, then the file, then the
// defaults.
#include "ws/cli/cli.h"
#include "ws/kserve/model_repository.h"
#include "ws/serve.h"
#include "ws/serve_config.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Files with settings are read first, wherever they are in argv, because options override them.
static const struct {
    const char *option, *variable;
} files[] = {{"--model-repository", "PARLEY_MODEL_REPOSITORY"}, {"--config", "PARLEY_CONFIG"}};
enum { REPOSITORY, CONFIG, N_FILES };

static const char *file_path(int which, int argc, char **argv) {
    size_t len = strlen(files[which].option);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], files[which].option, len) != 0) continue;
        if (argv[i][len] == '=') return argv[i] + len + 1;
        if (!argv[i][len] && i + 1 < argc) return argv[i + 1];
    }
    return getenv(files[which].variable);
}

// 1: argv[*i] is one of the files, 0: it is not, negative: its path is missing.
static int skip_file(int argc, char **argv, int *i, struct err *err) {
    for (int f = 0; f < N_FILES; f++) {
        size_t len = strlen(files[f].option);
        if (strncmp(argv[*i], files[f].option, len) != 0) continue;
        if (argv[*i][len] == '=') return 1;
        if (argv[*i][len]) continue;
        if (++*i < argc) return 1;
        return cli_usage(err, "%s needs a path", files[f].option);
    }
    return 0;
}

static void help(void) {
    puts("usage: parley serve [--config FILE] [OPTIONS]\n\n"
         "Serves a model: the chat page, WebSocket sessions at /ws, /healthz, /readyz, /metrics, "
         "/config.\n"
         "Every key of the ini file is an option of the same name and a variable PARLEY_NAME.\n\n"
         "  --config FILE        ini file with the keys below\n"
         "  --model-repository DIR  Triton's repository of FasterTransformer's backend: model, "
         "8-bit\n"
         "                       weights and idle time from DIR/fastertransformer/config.pbtxt\n"
         "  --print-config       print the current configuration as an ini file and exit\n");
    config_help(serve_config_table(), stdout);
}

static int run(int argc, char **argv) {
    struct serve_config config;
    struct err err = {0};
    bool print = false;
    const char *path = file_path(CONFIG, argc, argv);
    const char *repository = file_path(REPOSITORY, argc, argv);
    int rc = config_init(serve_config_table(), &config, &err);
    if (rc < 0) return cli_fail(&err);
    if (repository && (rc = model_repository_apply(repository, &config, &err)) < 0) goto out;
    if (path && (rc = config_load(serve_config_table(), &config, path, &err)) < 0) goto out;
    if ((rc = config_load_env(serve_config_table(), &config, &err)) < 0) goto out;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help();
            goto out;
        } else if (!strcmp(argv[i], "--print-config")) {
            print = true;
        } else if ((rc = skip_file(argc, argv, &i, &err)) != 0) {
            if (rc == CLI_USAGE) goto out;
            rc = 0;
        } else {
            rc = config_arg(serve_config_table(), &config, argc, argv, &i, &err);
            if (rc > 0) continue;
            rc = rc < 0 ? CLI_USAGE : cli_usage(&err, "unknown argument '%s'", argv[i]);
            goto out;
        }
    }
    rc = 0;
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
