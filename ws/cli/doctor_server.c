// Checks of what the settings name: database, snapshots, port, certificate, tokens. See doctor.h.
#include "base/metrics.h"
#include "sessions/state/owners.h"
#include "sessions/store/look.h"
#include "ws/cli/doctor.h"
#include "ws/kserve/grpc/server.h"
#include "ws/net/auth.h"
#include "ws/net/listener.h"
#include "ws/net/tls.h"
#include <errno.h>
#include <limits.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MIB (INT64_C(1) << 20)
#define DISK_FAULT (64 * MIB)
#define DISK_ADVICE (1024 * MIB)
enum { CERTIFICATE_DAYS = 21 };

// The folder of a file; "." where the path has none. The path was opened before, so it fits.
static void folder_of(char out[PATH_MAX], const char *path) {
    const char *slash = strrchr(path, '/');
    size_t len = slash == path ? 1 : slash ? (size_t)(slash - path) : 0;
    snprintf(out, PATH_MAX, "%.*s", len ? (int)len : 1, len ? path : ".");
}

// Bytes that this user may still write there; -1: unknown.
static int64_t disk_left(const char *folder) {
    struct statvfs fs;
    return statvfs(folder, &fs) == 0 ? (int64_t)fs.f_bavail * (int64_t)fs.f_frsize : -1;
}

static void check_disk(struct findings *f, const char *folder) {
    int64_t left = disk_left(folder);
    if (left < 0 || left >= DISK_ADVICE) return;
    finding_add(f, left < DISK_FAULT ? FINDING_FAULT : FINDING_ADVICE, "disk",
                "delete what is not needed there, or set db to a file on another disk",
                "%lld MiB are left where the database is (%s)", (long long)(left / MIB), folder);
}

// A file with secrets that other users of the machine can read.
static void check_mode(struct findings *f, const char *subject, const char *path) {
    struct stat st;
    char fix[PATH_MAX + 32];
    if (stat(path, &st) < 0 || !(st.st_mode & 077)) return;
    snprintf(fix, sizeof fix, "chmod 600 '%s'", path);
    finding_add(f, FINDING_ADVICE, subject, fix, "%s can be read by other users of this machine",
                path);
}

static const char *fix_for_database(int code) {
    switch (code) {
    case E_DENIED:
        return "give it to the user that runs Parley: chown, chmod u+rwx";
    case E_NOTFOUND:
        return "make the folder: mkdir -p";
    default:
        return "set db to a file on a local disk that is Parley's or does not exist yet";
    }
}

void doctor_check_database(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "database";
    struct store_look look;
    struct err err = {0};
    char folder[PATH_MAX];
    if (!strcmp(c->db, ":memory:")) {
        finding_add(f, FINDING_ADVICE, subject, "--db FILE",
                    ":memory: stores nothing: sessions "
                    "end with the server");
        return;
    }
    int rc = store_look(&look, c->db, &err);
    f->server_pid = look.server_pid;
    if (rc < 0) {
        finding_add(f, FINDING_FAULT, subject, fix_for_database(rc), "%s", err.text);
        return;
    }
    if (look.schema > look.ours)
        finding_add(f, FINDING_FAULT, subject, "install that version, or restore a backup",
                    "%s was written by a newer Parley (schema %lld; this program knows %lld)",
                    c->db, (long long)look.schema, (long long)look.ours);
    else if (!look.exists)
        finding_add(f, FINDING_OK, subject, NULL, "%s will be made", c->db);
    else if (look.server_pid)
        finding_add(f, FINDING_OK, subject, NULL,
                    "%s, %lld MiB, in use by the server (process %ld)", c->db,
                    (long long)(look.bytes / MIB), look.server_pid);
    else
        finding_add(f, FINDING_OK, subject, NULL, "%s, %lld MiB%s", c->db,
                    (long long)(look.bytes / MIB),
                    look.schema && look.schema < look.ours
                        ? "; the next start migrates it: make a backup first"
                        : "");
    if (look.exists) check_mode(f, subject, c->db);
    folder_of(folder, c->db);
    check_disk(f, folder);
}

void doctor_check_snapshots(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "snapshots";
    struct stat st;
    char folder[PATH_MAX];
    if (!*c->snapshot_dir) {
        finding_add(f, FINDING_OK, subject, NULL,
                    "none: after a restart the first turn of a "
                    "session computes its cache again (snapshot_dir)");
        return;
    }
    bool exists = stat(c->snapshot_dir, &st) == 0;
    snprintf(folder, sizeof folder, "%s", c->snapshot_dir);
    if (!exists) folder_of(folder, c->snapshot_dir);
    if ((exists && !S_ISDIR(st.st_mode)) || access(folder, W_OK | X_OK) < 0) {
        finding_add(f, FINDING_FAULT, subject, "set snapshot_dir to a folder that Parley may write",
                    "%s: %s", folder,
                    exists && !S_ISDIR(st.st_mode) ? "is not a folder" : strerror(errno));
        return;
    }
    int64_t left = disk_left(folder);
    if (left >= 0 && left < c->snapshot_bytes)
        finding_add(f, FINDING_ADVICE, subject, "lower snapshot_bytes, or choose another disk",
                    "%lld MiB are left at %s, and snapshots may take %lld MiB",
                    (long long)(left / MIB), folder, (long long)(c->snapshot_bytes / MIB));
    else
        finding_add(f, FINDING_OK, subject, NULL, "%s, up to %lld MiB", c->snapshot_dir,
                    (long long)(c->snapshot_bytes / MIB));
}

static void check_port(struct findings *f, const struct serve_config *c, const char *subject,
                       int64_t port) {
    struct err err = {0};
    char fix[128];
    if (port == 0) {
        finding_add(f, FINDING_OK, subject, NULL, "the kernel chooses a free one");
        return;
    }
    int rc = listener_check(c->host, (int)port, &err);
    if (rc == 0) {
        finding_add(f, FINDING_OK, subject, NULL, "%lld of %s is free", (long long)port, c->host);
    } else if (rc == E_BUSY && f->server_pid) {
        finding_add(f, FINDING_OK, subject, NULL,
                    "%lld of %s is in use, as it should be while the "
                    "server runs",
                    (long long)port, c->host);
    } else {
        snprintf(fix, sizeof fix, "ss -ltnp 'sport = :%lld' shows the program", (long long)port);
        finding_add(f, FINDING_FAULT, subject, rc == E_BUSY ? fix : "set host and port", "%s",
                    err.text);
    }
}

void doctor_check_port(struct findings *f, const struct serve_config *c) {
    check_port(f, c, "port", c->port);
    if (c->grpc_port < 0) return;
    if (!rpc_server_version())
        finding_add(f, FINDING_FAULT, "grpc_port", "leave grpc_port out, or build with gRPC",
                    "this build has no gRPC");
    else
        check_port(f, c, "grpc_port", c->grpc_port);
}

static int days_left(const X509 *certificate) {
    int days = 0, seconds = 0;
    ASN1_TIME_diff(&days, &seconds, NULL, X509_get0_notAfter(certificate));
    return days < 0 || seconds < 0 ? -1 : days;
}

void doctor_check_tls(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "tls";
    struct ssl_ctx_st *ctx;
    struct err err = {0};
    if (!*c->tls_cert || !*c->tls_key) {
        finding_add(f, FINDING_OK, subject, NULL, "off: plain http");
        return;
    }
    if (tls_open(&ctx, c->tls_cert, c->tls_key, &err) < 0) {
        finding_add(f, FINDING_FAULT, subject,
                    "set tls_cert and tls_key to a PEM chain and its key", "%s", err.text);
        return;
    }
    int days = days_left(SSL_CTX_get0_certificate(ctx));
    tls_close(ctx);
    if (days < 0)
        finding_add(f, FINDING_FAULT, subject, "renew it, then send SIGHUP",
                    "the certificate in %s has expired", c->tls_cert);
    else
        finding_add(f, days < CERTIFICATE_DAYS ? FINDING_ADVICE : FINDING_OK, subject,
                    days < CERTIFICATE_DAYS ? "renew it, then send SIGHUP" : NULL,
                    "the certificate in %s is valid for %d more days", c->tls_cert, days);
    check_mode(f, subject, c->tls_key);
}

void doctor_check_tokens(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "tokens";
    struct owners owners;
    struct auth *auth = NULL;
    struct err err = {0};
    if (!*c->token_file) {
        finding_add(
            f, FINDING_OK, subject, NULL,
            "none: every program of this machine is let in, and no other machine reaches the port");
        return;
    }
    struct metrics *metrics = metrics_new();
    if (!metrics) {
        f->no_memory = true;
        return;
    }
    owners_init(&owners, metrics);
    if (auth_open(&auth, c->token_file, &owners, &c->owner, &err) < 0)
        finding_add(f, FINDING_FAULT, subject, "configs/tokens.example shows the form", "%s",
                    err.text);
    else
        finding_add(f, FINDING_OK, subject, NULL, "%s can be read", c->token_file);
    check_mode(f, subject, c->token_file);
    auth_close(auth);
    owners_release(&owners);
    metrics_free(metrics);
}
