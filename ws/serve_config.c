// The table of settings and the checks that span several of them.
#include "ws/serve_config.h"
#include "base/config_rows.h"
#include "engine/engine.h"
#include "sessions/engines/placement.h"
#include "sessions/matching/volatile_text.h"
#include "sessions/store/facts.h"
#include "ws/net/origin_list.h"
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define SETTINGS struct serve_config
#define GIB (1024.0 * 1024 * 1024)

static const struct config_key keys[] = {
    TEXT("server", host, "127.0.0.1", "ADDRESS",
         "Address to listen on. Any address but loopback requires token_file."),
    INT("server", port, 0, 65535, "8080", "Port to listen on; 0 picks a free port and prints it."),
    INT("server", grpc_port, -1, 65535, "-1",
        "Port for gRPC (KServe v2, as Triton's 8001), on the same address; 0 picks a free port and "
        "prints it, -1 means none. TLS, tokens and limits are those of the other port."),
    BOOL("server", decoupled, "on",
         "ModelStreamInfer of gRPC answers after each token; off: once for each request, as Triton "
         "does where config.pbtxt has no model_transaction_policy { decoupled: True }."),
    TEXT("server", db, "parley.db", "FILE",
         "SQLite database of all sessions, created if missing; :memory: stores nothing."),
    TEXT("server", control_socket, "auto", "FILE",
         "Unix socket of `parley instances`, for the user who runs the server alone; auto is the "
         "database's path with .control behind it, off means none."),
    TEXT("server", server_name, "", "NAME",
         "Name of this server among several behind one address (configs/haproxy.cfg): 1 to 16 "
         "small letters and digits. New session ids begin with it, as in NAME-1f3c..., so that a "
         "balancer finds the server of a session by its id."),
    TEXT("server", token_file, "", "FILE",
         "File of access tokens, one name:token or bare token per line; sessions belong to the "
         "name. Behind a token may stand admin and limits of its owner, such as "
         "requests_per_minute=600 (see [owners] and configs/tokens.example). Reloaded on SIGHUP."),
    CHOICE("server", on_token_removed, SERVE_TOKEN_REMOVED, "cancel",
           "When a reload removes a token, its connections close at once. If its owner has no "
           "other token, the owner's turns are cancelled, or finish."),
    TEXT("server", tls_cert, "", "FILE",
         "PEM certificate chain; with tls_key the server accepts https and wss only. Reloaded on "
         "SIGHUP."),
    TEXT("server", tls_key, "", "FILE", "PEM private key of tls_cert."),
    TEXT("server", allowed_origins, "", "LIST",
         "Additional web origins whose pages may connect, separated by commas, such as "
         "https://chat.example, also to the HTTP APIs (CORS). The server's own page is always "
         "allowed."),
    TEXT("server", allowed_hosts, "", "LIST",
         "Host names that clients may use for this server, separated by commas. IP addresses and "
         "localhost are always allowed; other names are rejected to prevent DNS rebinding."),
    BOOL("server", sharing, "off",
         "Let owners share a session by a link. Anyone with the link can read the session's title "
         "and the messages of its current path without a token, until the owner takes the link "
         "back or deletes the session. off: new links are refused, and existing links open "
         "nothing."),
    INT("server", max_connections, 1, 1000000, "4096",
        "Maximum number of open connections; more are rejected."),
    INT("server", max_connections_per_ip, 1, 1000000, "64",
        "Maximum number of open connections from one address (one /64 of IPv6), except from this "
        "machine, where a reverse proxy may be. Raise it behind a proxy on another machine."),
    BYTES("server", max_message_bytes, 1024, 16.0 * 1024 * 1024, "1MiB",
          "Maximum size of a WebSocket message from a client; a larger one closes the connection "
          "(1009)."),
    BYTES("server", max_conversation_bytes, 0, 256.0 * 1024 * 1024, "0",
          "Maximum size of an HTTP request that brings a conversation or a text: OpenAI's, "
          "Anthropic's and llama.cpp's addresses. 0 means 16 bytes for each token of the longest "
          "session_len of the served models, at most 64MiB. Never less than max_message_bytes. "
          "Requests longer than max_message_bytes may take 128MiB in memory at once, or 4 of the "
          "longest; where tokens tell owners apart, those of an owner a quarter of this."),
    BYTES(
        "server", max_infer_bytes, 0, GIB, "0",
        "Maximum size of an inference request of KServe v2, over HTTP and gRPC; its input may be "
        "tables of virtual tokens. 0 means what a batch of 8 prefix tables of 32 tokens takes with "
        "the server's models, at most 256MiB; over gRPC with token_file it means "
        "max_message_bytes. Never less than max_message_bytes. All requests beyond that length "
        "may take 4 times this size in memory at once; where tokens tell owners apart, those of "
        "an owner this size."),
    INT("server", messages_per_second, 1, 100000, "20",
        "Messages that a connection may send per second on average. A large message counts one "
        "more for each 64 KiB."),
    INT("server", message_burst, 0, 1000000, "0",
        "Messages that a connection may send at once after a pause; 0 means twice "
        "messages_per_second."),
    FLOAT("server", ping_interval, 1, 3600, "20",
          "Seconds of silence before the server pings a connection; without an answer it closes "
          "the connection after the same time."),
    FLOAT("server", slow_reader_timeout, 1, 3600, "30",
          "Seconds that a client may leave sent data unread before the server closes its "
          "connection (4001). The client can attach again without loss."),
    FLOAT("server", hello_timeout, 1, 600, "5",
          "Seconds for a connection without a token in its headers to send one in hello."),
    FLOAT("server", drain_timeout, 0, 86400, "30",
          "Seconds for running turns to finish after SIGTERM, and for HTTP clients to read their "
          "answers; the other turns are recorded as interrupted."),
    BOOL("server", run_ahead, "on",
         "Give the network and database threads priority over compute threads, so that a token "
         "does not wait for a core. Needs permission: root, CAP_SYS_NICE or an rtprio limit."),
    CHOICE("server", log_level, SERVE_LOG_LEVELS, "info",
           "Lowest severity to log. At info and above, the log contains no text of users."),

    TEXT("engine", model_name, "", "NAME",
         "Another name that clients may call the model by, beside the folder's own name (and, over "
         "KServe, fastertransformer and ensemble)."),
    INT("engine", instances, 1, 64, "1",
        "Engines that run the model, each with its own thread, memory and cache; a session stays "
        "on one while its cache is there. With device auto they share the GPUs, and with threads 0 "
        "the cores. For several models, write sections [instance NAME]: each is an engine with "
        "values of its own for keys of [engine] and [sampling], session_len, memory_len and "
        "sink_len."),
    CHOICE("engine", engine_process, SERVE_PROCESS, "auto",
           "Whether an instance has a process of its own, `parley engine`, so that the server "
           "outlives its device: when that process ends or hangs, it is started again, and its "
           "turns go on with the same tokens. auto: on for several instances, several ranks and "
           "GPUs; off for one instance on the CPU, and under mpirun or srun."),
    FLOAT("engine", engine_timeout, 1, 86400, "60",
          "Seconds without a sign of life after which an engine process is killed and started "
          "again; at least 20 mean steps, and ten times as long while it loads its model."),
    FLOAT("engine", engine_backoff, 0.1, 3600, "60",
          "Longest pause in seconds before an engine process is started again: 1 the first time, "
          "twice as long after each further life of less than a minute."),
    FLOAT("engine", moved_turn_timeout, 1, 86400, "300",
          "Seconds that a turn waits for an instance when it has lost its own; then it ends with "
          "an error."),
    BYTES("engine", host_cache_bytes, 0, 4096 * GIB, "1GiB",
          "Host memory for parked caches: a session's cache that must leave the KV cache is copied "
          "there, least recently used first, and copied back instead of recomputed. Allocated as "
          "needed, on a GPU at startup (pinned); 0 disables parking."),
    TEXT("engine", snapshot_dir, "", "DIR",
         "Folder for snapshots of caches, created if missing. A cache that leaves host memory (or "
         "the KV cache, if host_cache_bytes is 0) is written there; at shutdown all idle and "
         "parked caches are, for at most 8 s. A snapshot is read if that is faster than "
         "recomputing, also after a restart of the same build with the same model. Empty disables "
         "snapshots. The files are as private as the database."),
    BYTES("engine", snapshot_bytes, 0, 65536 * GIB, "8GiB",
          "Maximum size of all snapshots together; the least recently used is removed first."),
    INT("engine", max_sequences, 0, 4096, "0",
        "Turns that run at the same time; more wait in the queue. 0 means 16 on the CPU; on a GPU, "
        "as many as its cache holds with 1024 tokens each, from 16 to 256."),
    INT("engine", max_queued_turns, 0, 65536, "256",
        "Turns that may wait in the queue; more are rejected as overloaded, except those of owners "
        "with few turns in it."),

    INT("sessions", max_sequence_idle_microseconds, 1000, 1e15, "60000000",
        "Idle time after a turn until the session's cache leaves the KV cache. It is parked in "
        "host memory (host_cache_bytes) or released; the next turn then recomputes it from the "
        "stored text."),
    INT("sessions", max_queued_turns_per_session, 0, 64, "4",
        "Turns of one session that may wait for its running turn."),
    INT("sessions", max_resident_sessions, 16, 10000000, "4096",
        "Maximum number of idle sessions in memory. Followed sessions keep only a name and cursors "
        "beyond it."),
    INT("sessions", max_session_age, 0, 1e10, "0",
        "Seconds after which a session that was not used is deleted, with all its turns; 0 means "
        "never. One with a client or a turn stays. The log has the ids of deleted sessions."),
    INT("sessions", max_sessions, 0, 1e9, "0",
        "Sessions that each owner keeps: beyond them the least recently used is deleted; 0 means "
        "all."),
    INT("sessions", commit_interval_us, 0, 1e7, "100000",
        "How long streamed tokens may wait for a commit to the database. The end of a turn commits "
        "at once."),
    CHOICE("sessions", durable, SERVE_DURABLE, "delta",
           "When a streamed token may be sent. delta: after it is written to a file beside the "
           "database, so kill -9 loses nothing that a client saw. power: after it is on disk, so "
           "power loss loses nothing either, but every token waits for the disk. turn: at once, so "
           "a crash can lose the last commit interval. The end of a turn is always on disk before "
           "it is sent."),
    TEXT("sessions", volatile_patterns, "", "LIST",
         "Text of clients that changes with each request while the conversation is the same, such "
         "as "
         "a hash in the first line: /REGEX/ /REGEX/, in PCRE2's dialect. A conversation that is "
         "sent "
         "again whole is found without it, and the model keeps seeing the text that came first."),
};

// What an instance may have of its own.
static bool may_give(const struct config_key *key) {
    static const char *const lengths[] = {"session_len", "memory_len", "sink_len"};
    for (int i = 0; i < 3; i++)
        if (strcmp(key->name, lengths[i]) == 0) return true;
    if (strcmp(key->name, "instances") == 0) return false;
    return strcmp(key->section, "engine") == 0 || strcmp(key->section, "sampling") == 0;
}

static int check_name(const char *name, struct err *err) {
    if (instance_name_valid(name)) return 0;
    return err_set(err, E_INVAL,
                   "[instance %.40s]: a name has 1 to %d letters, digits, '-', '_' or '.'", name,
                   INSTANCE_NAME_MAX);
}

int serve_config_init(struct serve_config *c, struct err *err) {
    *c = (struct serve_config){
        .parts = {.kind = "instance", .may_give = may_give, .check_name = check_name}};
    return config_init(serve_config_table(), c, err);
}

void serve_config_release(struct serve_config *c) {
    config_parts_release(&c->parts);
    config_release(serve_config_table(), c);
}

int serve_config_load(struct serve_config *c, const char *path, struct err *err) {
    return config_load_parts(serve_config_table(), c, &c->parts, path, err);
}

enum {
    N_KEYS = sizeof keys / sizeof *keys,
    N_ROWS = N_KEYS + MODEL_SETTINGS_MAX + N_OWNER_LIMITS + SAMPLING_OPTIONS_MAX, // at most
};

// The rows above, each section behind its rows of model_settings.h, then those of owners' limits and
// of the sampling parameters.
const struct config_table *serve_config_table(void) {
    static struct config_key all[N_ROWS];
    static struct config_table table = {.keys = all};
    if (table.n_keys) return &table;
    struct config_key *next = all;
    for (int i = 0; i < N_KEYS; i++) {
        if (i > 0 && strcmp(keys[i].section, keys[i - 1].section) != 0)
            next += model_setting_keys(next, keys[i].section, offsetof(SETTINGS, model));
        *next++ = keys[i];
    }
    next += owner_limit_keys(next, offsetof(SETTINGS, owner));
    next += sampling_option_keys(next, SAMPLING_SERVER, offsetof(SETTINGS, sampling));
    table.n_keys = (int)(next - all);
    return &table;
}

int64_t serve_config_burst(const struct serve_config *c) {
    return c->message_burst ? c->message_burst : 2 * c->messages_per_second;
}

// Only this machine can reach the address: 127.0.0.0/8, ::1, localhost.
static bool is_loopback(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return false;
}

static bool is_ip(const char *host) {
    struct in6_addr ip; // has room for both kinds
    char v6[INET6_ADDRSTRLEN];
    size_t n = strcspn(host, "%"); // a link-local address names its interface: fe80::1%eth0
    if (inet_pton(AF_INET, host, &ip) == 1) return true;
    if (n >= sizeof v6) return false;
    memcpy(v6, host, n);
    v6[n] = '\0';
    return inet_pton(AF_INET6, v6, &ip) == 1;
}

// Whether a name is of this machine alone is known only when it is resolved: names need tokens too.
static int check_host(const struct serve_config *c, struct err *err) {
    bool ip = is_ip(c->host);
    if (!*c->host) return err_set(err, E_INVAL, "host is empty: set an address to listen on");
    if (!ip && strpbrk(c->host, ":/[] \t"))
        return err_set(err, E_INVAL,
                       "host '%.200s' is not an address: set an IPv4 or IPv6 address or a host "
                       "name, and the port with --port; Unix sockets are not supported",
                       c->host);
    if (is_loopback(c->host) || *c->token_file) return 0;
    return err_set(err, E_DENIED,
                   "host %s %s reachable from other machines: set --token-file, or listen on "
                   "127.0.0.1",
                   c->host, ip ? "is" : "may be");
}

int serve_config_sampling(const struct serve_config *c, struct sampling_params *p,
                          struct err *err) {
    struct turn_sampling s = {.params = *p};
    TRY(sampling_options_apply(&c->sampling, SAMPLING_SERVER, &s, err));
    *p = s.params;
    return 0;
}

static bool is_server_name(const char *s) {
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789");
    return n > 0 && n <= SERVER_NAME_MAX && !s[n];
}

int serve_config_check(const struct serve_config *c, struct err *err) {
    TRY(check_host(c, err));
    TRY(origin_list_check(c->allowed_origins, err));
    TRY(host_list_check(c->allowed_hosts, err));
    if (*c->server_name && !is_server_name(c->server_name))
        return err_set(err, E_INVAL, "server_name '%.64s' is not 1 to %d small letters and digits",
                       c->server_name, SERVER_NAME_MAX);
    if (c->parts.first && c->instances > 1)
        return err_set(err, E_INVAL,
                       "instances (%lld) and sections [instance NAME] exclude each other: write a "
                       "section for each instance",
                       (long long)c->instances);
    if (!*c->model.model && !c->parts.first)
        return err_set(err, E_INVAL, "no model: set its folder with --model DIR");
    if (c->port && c->port == c->grpc_port)
        return err_set(err, E_INVAL, "port and grpc_port are both %lld: choose another grpc_port",
                       (long long)c->port);
    if (!*c->db) return err_set(err, E_INVAL, "no database: set a file with --db FILE");
    if (!*c->tls_cert != !*c->tls_key)
        return err_set(err, E_INVAL, "tls_cert and tls_key must be set together: %s is missing",
                       *c->tls_cert ? "tls_key" : "tls_cert");
    if (c->model.block_tokens & (c->model.block_tokens - 1))
        return err_set(err, E_INVAL, "block_tokens must be a power of two, not %lld",
                       (long long)c->model.block_tokens);
    if (c->model.memory_len && c->model.sink_len >= c->model.memory_len)
        return err_set(err, E_INVAL, "sink_len (%lld) must be less than memory_len (%lld)",
                       (long long)c->model.sink_len, (long long)c->model.memory_len);
    struct volatile_text *patterns;
    TRY(volatile_text_new(&patterns, c->volatile_patterns, err));
    volatile_text_free(patterns);
    if (c->message_burst && c->message_burst < c->messages_per_second)
        return err_set(err, E_INVAL,
                       "message_burst (%lld) must not be less than messages_per_second (%lld)",
                       (long long)c->message_burst, (long long)c->messages_per_second);
    struct sampling_params p;
    sampling_params_init(&p);
    return serve_config_sampling(c, &p, err);
}
