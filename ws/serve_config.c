// The table of settings and the checks that span several of them.
#include "ws/serve_config.h"
#include "engine/engine.h"
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#define AT(field) offsetof(struct serve_config, field)
#define TEXT(section, name, fallback, metavar, help)                                               \
    { section, #name, CONFIG_STRING, AT(name), 0, 0, metavar, fallback, help, 0 }
#define INT(section, name, min, max, fallback, help)                                               \
    { section, #name, CONFIG_INT, AT(name), min, max, NULL, fallback, help, 0 }
#define FLOAT(section, name, min, max, fallback, help)                                             \
    { section, #name, CONFIG_FLOAT, AT(name), min, max, NULL, fallback, help, 0 }
#define BYTES(section, name, min, max, fallback, help)                                             \
    { section, #name, CONFIG_BYTES, AT(name), min, max, NULL, fallback, help, 0 }
#define CHOICE(section, name, choices, fallback, help)                                             \
    { section, #name, CONFIG_CHOICE, AT(name), 0, 0, choices, fallback, help, 0 }

#define GIB (1024.0 * 1024 * 1024)

static const struct config_key keys[] = {
    TEXT("server", host, "127.0.0.1", "ADDRESS",
         "Address to listen on. Any other than loopback needs a token_file."),
    INT("server", port, 0, 65535, "8080", "Port; 0 takes a free one and says which."),
    TEXT("server", db, "parley.db", "FILE",
         "SQLite database of all sessions, made when it is not there; :memory: keeps nothing."),
    TEXT("server", token_file, "", "FILE",
         "Who may come in: one name:token, or a bare token, per line. Sessions belong to the name. "
         "Read again on SIGHUP."),
    TEXT("server", tls_cert, "", "FILE",
         "PEM certificate chain; with tls_key the server speaks https and wss only. Read again on "
         "SIGHUP."),
    TEXT("server", tls_key, "", "FILE", "PEM private key of tls_cert."),
    TEXT("server", allowed_origins, "", "LIST",
         "Further web origins whose pages may connect, separated by commas: https://chat.example. "
         "The server's own page always may."),
    TEXT("server", allowed_hosts, "", "LIST",
         "Host names by which clients reach this server, separated by commas. IP addresses and "
         "localhost always work; other names are refused because of DNS rebinding."),
    INT("server", max_connections, 1, 1000000, "4096", "Most open connections; more are refused."),
    INT("server", max_connections_per_ip, 1, 1000000, "64",
        "Most open connections from one address (one /64 of IPv6). Raise it behind a reverse "
        "proxy."),
    BYTES("server", max_message_bytes, 1024, 16.0 * 1024 * 1024, "1MiB",
          "Longest WebSocket message from a client; a longer one closes its connection (1009)."),
    INT("server", messages_per_second, 1, 100000, "20",
        "Messages a connection may send per second in the long run. A long one counts once more "
        "for each 64 KiB."),
    INT("server", message_burst, 0, 1000000, "0",
        "Messages it may send at once after a pause; 0: twice messages_per_second."),
    FLOAT("server", ping_interval, 1, 3600, "20",
          "Seconds of silence after which a connection is pinged; it is closed after the same time "
          "without an answer."),
    FLOAT("server", slow_reader_timeout, 1, 3600, "30",
          "Seconds a client may take to accept waiting data; then it is cut off (4001) and can "
          "attach "
          "again without loss."),
    FLOAT("server", hello_timeout, 1, 600, "5",
          "Seconds a connection without a token in its headers has to send it in hello."),
    FLOAT("server", drain_timeout, 0, 86400, "30",
          "Seconds that running turns get to finish after SIGTERM; what still runs is recorded as "
          "interrupted."),
    {"server", "run_ahead", CONFIG_BOOL, AT(run_ahead), 0, 0, NULL, "on",
     "Let the threads of connections and database run ahead of those that compute, so that a token "
     "does not wait for a core; where the system allows it (root, CAP_SYS_NICE, an rtprio limit).",
     0},
    CHOICE("server", log_level, SERVE_LOG_LEVELS, "info",
           "Least severity that is logged. Words of users are never logged at info or above."),

    TEXT("engine", model, "", "DIR", "Model folder."),
    TEXT("engine", chat_template, "", "NAME|FILE",
         "Built-in chat form or template file to use instead of the model's own."),
    TEXT("engine", device, "auto", "DEVICE",
         "Where the model runs: cpu, cuda:0 (a GPU by number), or auto: the first GPU, and the CPU "
         "where there is none."),
    TEXT("engine", compute_dtype, "auto", "DTYPE",
         "What is computed in: f32, bf16, on a GPU f16, or auto: on a GPU the model's own; on the "
         "CPU bf16 where all matrices are bf16 and the processor has AVX512-BF16 or AMX, else f32. "
         "bf16 on the CPU rounds the input of each product with bf16 weights, which is twice as "
         "fast with many rows; `parley score --compare-compute bf16` says what it costs in "
         "accuracy."),
    {"engine", "deterministic", CONFIG_BOOL, AT(deterministic), 0, 0, NULL, "off",
     "On a GPU: the same bits for the same log and seed, whatever else is in the batch, at a cost "
     "in "
     "speed. On the CPU it is always so.",
     0},
    FLOAT("engine", gpu_memory_fraction, 0.05, 1, "0.9",
          "How much of a GPU's memory the weights, the work buffers and the KV cache may take "
          "together; the cache takes what the others leave."),
    TEXT("engine", isa, "auto", "ISA", "CPU instruction set: auto, portable, avx2, avx512 or amx."),
    INT("engine", threads, 0, 64, "0", "CPU threads; 0 takes every core."),
    CHOICE("engine", weight_dtype, WEIGHT_FORMATS, "model",
           "Number format of the weights: the model's own, or 8 bits with a scale for each output, "
           "made while loading: integers or, fp8, e4m3 floating point. They take half of bf16's "
           "memory and decode faster; `parley score --compare-weights int8` says what they cost in "
           "accuracy. Activations are not quantised."),
    CHOICE(
        "engine", kv_dtype, ENGINE_KV_DTYPES, "auto",
        "Number format of the KV cache; auto is what the backend computes in, f32 on the CPU. fp8 "
        "(e4m3) and int8 have a scale for each position and head: about half of bf16's memory, so "
        "that twice the sessions fit; `parley score --compare-kv int8` says what they cost in "
        "accuracy."),
    BYTES("engine", kv_cache_bytes, 0, 4096 * GIB, "0",
          "Size of the KV cache; 0 takes room for max_sequences full windows, at most half of the "
          "free memory; on a GPU, what gpu_memory_fraction leaves."),
    BYTES("engine", host_cache_bytes, 0, 4096 * GIB, "1GiB",
          "Host memory for the caches of sessions that must leave the KV cache: they are parked "
          "there, "
          "the one used longest ago goes first, and come back by a copy instead of a computation. "
          "Taken as it is needed, on a GPU at the start (pinned); 0: none."),
    TEXT("engine", snapshot_dir, "", "DIR",
         "Folder for snapshots of caches, made when it is not there: a cache that leaves host "
         "memory, or the KV cache where host_cache_bytes is 0, is written there, and everything "
         "idle or parked at the server's end, for 8 s at most. Read again where that is faster "
         "than computing, also after a restart by the same build with the same model. Empty: none. "
         "What is in the files is as private as the database."),
    BYTES("engine", snapshot_bytes, 0, 65536 * GIB, "8GiB",
          "Most that all snapshots together may take; the one used longest ago goes first."),
    INT("engine", block_tokens, 8, 256, "64", "Positions in one cache block; a power of two."),
    INT("engine", max_sequences, 1, 4096, "16", "Turns that run at once; more wait."),
    INT("engine", max_queued_turns, 0, 65536, "256",
        "Turns that may wait for a place; more are answered with overloaded."),
    INT("engine", prefill_chunk_tokens, 0, 8192, "0",
        "Most prompt tokens of one step: the bound on what a long prompt costs everybody else; 0: "
        "256 "
        "on the CPU, 2048 on a GPU."),

    INT("sessions", session_len, 0, 1e9, "0",
        "Tokens a session may grow to when its opener does not say; 0: what the model can."),
    INT("sessions", memory_len, 0, 1e9, "0",
        "Tokens of keys and values a session keeps when its opener does not say; 0: what the model "
        "was "
        "trained for."),
    INT("sessions", sink_len, 0, 1e6, "4",
        "First tokens that stay visible for ever (attention sinks); 0 is FasterTransformer's "
        "rule."),
    INT("sessions", max_sequence_idle_microseconds, 1000, 1e15, "60000000",
        "Time after the end of a turn at which a session's cache leaves the KV cache: it is parked "
        "in "
        "host memory (host_cache_bytes), or given up; its words stay, and the next turn computes "
        "it "
        "again."),
    INT("sessions", max_queued_turns_per_session, 0, 64, "4",
        "Turns that may wait behind the running one of their session."),
    INT("sessions", max_resident_sessions, 16, 10000000, "4096",
        "Session objects kept in memory with neither a client nor a turn."),
    INT("sessions", commit_interval_us, 0, 1e7, "100000",
        "How long streamed tokens may wait for their commit. The end of a turn never waits."),
    CHOICE("sessions", durable, SERVE_DURABLE, "delta",
           "What is safe before a streamed token is told. With delta it has left the process, into "
           "a file beside the database, so that kill -9 takes nothing that was seen; with power it "
           "is on disk, so that power loss takes nothing either, but every token waits for the "
           "disk; with turn the last commit interval is at stake. The end of a turn is on disk "
           "first in any case."),
};

enum { N_KEYS = sizeof keys / sizeof *keys };

// The rows above, then those of the sampling parameters.
const struct config_table *serve_config_table(void) {
    static struct config_key all[N_KEYS + SAMPLING_OPTIONS_MAX];
    static struct config_table table = {.keys = all};
    if (!table.n_keys) {
        memcpy(all, keys, sizeof keys);
        table.n_keys = N_KEYS + sampling_option_keys(all + N_KEYS, SAMPLING_SERVER, AT(sampling));
    }
    return &table;
}

int64_t serve_config_burst(const struct serve_config *c) {
    return c->message_burst ? c->message_burst : 2 * c->messages_per_second;
}

bool serve_config_is_loopback(const char *host) {
    struct in_addr v4;
    struct in6_addr v6;
    if (strcasecmp(host, "localhost") == 0) return true;
    if (inet_pton(AF_INET, host, &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    return false;
}

int serve_config_sampling(const struct serve_config *c, struct sampling_params *p,
                          struct err *err) {
    struct turn_sampling s = {.params = *p};
    TRY(sampling_options_apply(&c->sampling, SAMPLING_SERVER, &s, err));
    *p = s.params;
    return 0;
}

int serve_config_check(const struct serve_config *c, struct err *err) {
    if (!*c->host) return err_set(err, E_INVAL, "host is empty: name an address to listen on");
    if (!*c->model) return err_set(err, E_INVAL, "no model: give its folder with --model DIR");
    if (!*c->db) return err_set(err, E_INVAL, "no database: give a file with --db FILE");
    if (!*c->tls_cert != !*c->tls_key)
        return err_set(err, E_INVAL, "tls_cert and tls_key go together: %s is missing",
                       *c->tls_cert ? "tls_key" : "tls_cert");
    if (!serve_config_is_loopback(c->host) && !*c->token_file)
        return err_set(
            err, E_DENIED,
            "host %s can be reached from outside: give a --token-file, or listen on 127.0.0.1",
            c->host);
    if (c->block_tokens & (c->block_tokens - 1))
        return err_set(err, E_INVAL, "block_tokens must be a power of two, not %lld",
                       (long long)c->block_tokens);
    if (c->memory_len && c->sink_len >= c->memory_len)
        return err_set(err, E_INVAL, "sink_len (%lld) must be less than memory_len (%lld)",
                       (long long)c->sink_len, (long long)c->memory_len);
    if (c->message_burst && c->message_burst < c->messages_per_second)
        return err_set(err, E_INVAL,
                       "message_burst (%lld) must not be less than messages_per_second (%lld)",
                       (long long)c->message_burst, (long long)c->messages_per_second);
    struct sampling_params p;
    sampling_params_init(&p);
    return serve_config_sampling(c, &p, err);
}
