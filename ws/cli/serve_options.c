// See serve_options.h.
#include "ws/cli/serve_options.h"
#include "base/log.h"
#include "ws/kserve/model_repository.h"
#include "ws/serve_config.h"
#include <stdlib.h>

// Parses the command line into the command's own settings, and into *config unless it is NULL.
static int parse(const struct cli_command *c, const struct config_table *own_table, void *own,
                 int argc, char **argv, struct serve_config *config, bool *helped,
                 struct err *err) {
    const struct config_table *t = serve_config_table();
    struct serve_config unused;
    int rc = 0;
    if (!config && serve_config_init(&unused, err) < 0) return CLI_USAGE;
    for (int i = 1; i < argc && rc >= 0 && !*helped; i++) {
        *helped = cli_help(c, own_table, argv[i]);
        if (*helped) continue;
        rc = config_arg(own_table, own, argc, argv, &i, err);
        if (rc == 0) rc = config_arg(t, config ? config : &unused, argc, argv, &i, err);
        if (rc > 0) continue;
        if (rc == 0) cli_unknown_argument(c, own_table, argv[i], err);
        rc = -1;
    }
    if (!config) serve_config_release(&unused);
    return rc < 0 ? CLI_USAGE : CLI_OK;
}

static const char *or_variable(const char *option, const char *variable) {
    return option[0] ? option : getenv(variable);
}

static void log_unknown(const char *sentence, bool is_near) {
    char quoted[300];
    log_warn("config.unknown_variable", "reason=%s", log_quote(quoted, sizeof quoted, sentence));
}

// Parses the command line twice: first for the names of the files, because it overrides what is in them.
static int read_all(const struct cli_command *c, const struct config_table *own_table,
                    struct serve_files *own, int argc, char **argv, struct serve_config *config,
                    bool *helped, struct err *err) {
    int rc = parse(c, own_table, own, argc, argv, NULL, helped, err);
    if (rc != CLI_OK || *helped) return rc;
    const char *repository = or_variable(own->model_repository, "PARLEY_MODEL_REPOSITORY");
    const char *path = or_variable(own->config, "PARLEY_CONFIG");
    if (repository) TRY(model_repository_apply(repository, config, err));
    if (path) TRY(serve_config_load(config, path, err));
    config_unknown_env(serve_config_table(), log_unknown);
    TRY(config_load_env(serve_config_table(), config, err));
    return parse(c, own_table, own, argc, argv, config, helped, err);
}

int serve_options_run(const struct cli_command *c, const struct config_table *own_table,
                      struct serve_files *own, int argc, char **argv, struct err *err) {
    struct serve_config config;
    TRY(serve_config_init(&config, err));
    bool helped = false;
    int rc = read_all(c, own_table, own, argc, argv, &config, &helped, err);
    if (rc == CLI_OK && !helped) rc = c->serve(own, &config, err);
    serve_config_release(&config);
    return rc;
}
