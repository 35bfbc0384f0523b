// parley serve: the server.
#include "ws/cli/model_names.h"
#include "ws/cli/serve_options.h"
#include "ws/serve.h"
#include "ws/serve_config.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

// Options of the command that are not settings of the server.
struct own {
    char *config, *model_repository; // struct serve_files
    bool print_config;
};
#define SETTINGS struct own
static const struct config_key own_keys[] = {
    SERVE_FILE_ROWS,
    BOOL("", print_config, "off", "Print the current settings as an ini file and exit."),
};

// A mapped file was cut short by another program: the index of the database's log (`FILE-shm`), or
// weights. What was read is not known, so the process ends by the signal, as with kill -9: the
// next start finds everything that was confirmed. The handler says why, and the access that
// failed is repeated without it.
static void on_bus_error(int number) {
    static const char line[] =
        "level=error event=server.mapped_file_cut reason=\"another program cut a file short that "
        "is in use: the database's -shm, or the model's weights. Nothing that was confirmed is "
        "lost: start the server again\"\n";
    (void)!write(STDERR_FILENO, line, sizeof line - 1);
}

static void explain_bus_errors(void) {
    const struct sigaction action = {.sa_handler = on_bus_error, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGBUS, &action, NULL);
}

// Checks the settings before a download, which may take long.
static int resolve_models(struct serve_config *config, struct err *err) {
    TRY(serve_config_check(config, err));
    TRY(model_names_resolve(serve_config_table(), config, HUB_MODEL, err));
    return model_names_resolve_parts(&config->parts, err);
}

static int run(void *settings, struct serve_config *config, struct err *err) {
    const struct own *own = settings;
    if (own->print_config) {
        config_write_ini(serve_config_table(), config, stdout);
        config_write_parts(&config->parts, stdout);
        return CLI_OK;
    }
    TRY(resolve_models(config, err));
    explain_bus_errors();
    int rc = serve_run(config, err);
    if (rc != E_DEVICE) return rc;
    cli_fail(err); // all turns are stored; exit handlers of the GPU driver may hang
    fflush(NULL);
    _exit(SERVE_EXIT_RESTART);
}

const struct cli_command command_serve = {
    .name = "serve",
    .summary = "serve a model: chat page, WebSocket protocol, metrics",
    .usage = "serve [--config FILE] [OPTIONS]",
    .about = "Serves a model: the chat page, WebSocket sessions at /ws, /healthz, /readyz, "
             "/metrics,\n/config. Every key of the ini file is an option of the same name and a "
             "variable\nPARLEY_NAME.",
    CLI_SETTINGS(own_keys),
    .serve = run,
};
