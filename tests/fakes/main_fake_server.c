// The real server on fake sessions: fake_server [--key value ...], the keys of `parley serve`.
#include "engine/engine.h"
#include "ws/serve.h"
#include <stdio.h>

int main(int argc, char **argv) {
    struct serve_config c;
    struct err err = {0};
    int rc = serve_config_init(&c, &err);
    for (int i = 1; rc >= 0 && i < argc; i++)
        rc = config_arg(serve_config_table(), &c, argc, argv, &i, &err);
    if (rc >= 0) rc = serve_run(&c, &err);
    if (rc < 0) fprintf(stderr, "fake_server: %s\n", err.text);
    config_release(serve_config_table(), &c);
    return rc == E_DEVICE ? SERVE_EXIT_RESTART : rc < 0;
}
