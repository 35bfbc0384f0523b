// parley --version: which source this program was built from, and with what.
#include "base/build_id.h"
#include "engine/device.h"
#include "engine/dist/comm.h"
#include "engine/text/pattern.h"
#include "ws/cli/build_info.h"
#include "ws/cli/cli.h"
#include "ws/kserve/grpc/server.h"
#include "ws/version.h"
#include <libwebsockets.h>
#include <openssl/crypto.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>
#include <zlib.h>

bool cli_pattern_jit_works(void) {
    struct pattern p;
    struct err err = {0};
    bool jit = pattern_pcre2(&p, "a+", &err) == 0 && p.jit;
    pattern_release(&p);
    return jit;
}

struct line {
    const char *name, *value; // an empty value is not printed
};
enum { N_LINES = 13 };

static void describe(struct line out[N_LINES], char id[BUILD_ID_DIGITS + 1], char pcre2[64],
                     char lws[64]) {
    const char *archs = device_cuda_archs();
    // The commit of its source follows a dash; if it is unknown, nothing does.
    snprintf(lws, 64, "%s", lws_get_library_version());
    if (lws[0] && lws[strlen(lws) - 1] == '-') lws[strlen(lws) - 1] = '\0';
    build_id(id);
    if (pcre2_config(PCRE2_CONFIG_VERSION, pcre2) < 0) pcre2[0] = '\0';
    const struct line lines[N_LINES] = {
        {"commit", build_commit},
        {"date", build_date},
        {"build", id},
        {"cuda", archs ? archs : "no"},
        {"grpc", rpc_server_version() ? rpc_server_version() : "no"},
        {"mpi", comm_mpi_version() ? comm_mpi_version() : "no"},
        {"pcre2_jit", cli_pattern_jit_works() ? "yes" : "no"},
        {"pcre2", pcre2},
        {"libwebsockets", lws},
        {"libuv", uv_version_string()},
        {"openssl", OpenSSL_version(OPENSSL_VERSION)},
        {"sqlite", sqlite3_libversion()},
        {"zlib", zlibVersion()},
    };
    memcpy(out, lines, sizeof lines);
}

int cli_version(bool json) {
    struct line lines[N_LINES];
    char id[BUILD_ID_DIGITS + 1], pcre2[64], lws[64];
    struct cli_json j;
    struct err err = {0};
    describe(lines, id, pcre2, lws);
    if (!json) {
        printf("parley %s\n", PARLEY_VERSION);
        for (int i = 0; i < N_LINES; i++)
            if (lines[i].value[0]) printf("%-13s %s\n", lines[i].name, lines[i].value);
        return CLI_OK;
    }
    cli_json_begin(&j);
    json_put_string(&j.w, "version", PARLEY_VERSION);
    for (int i = 0; i < N_LINES; i++)
        json_put_string(&j.w, lines[i].name, lines[i].value[0] ? lines[i].value : NULL);
    return cli_json_end(&j, &err) < 0 ? cli_fail(&err) : CLI_OK;
}
