// Every setting of `parley serve`: one table (base/config.h) drives the ini file, the command line,
// --help, configs/demo.ini and GET /config. Code reads the fields of struct serve_config, never a
// setting by name.
#pragma once
#include "base/config_parts.h"
#include "sessions/state/owners.h"
#include "ws/model_settings.h"
#include "ws/sampling_options.h"
#include <stdbool.h>

#define SERVE_DURABLE "turn|delta|power" // the order of enum sessions_durable
enum { SERVE_PROCESS_AUTO, SERVE_PROCESS_ON, SERVE_PROCESS_OFF };
#define SERVE_PROCESS "auto|on|off" // their order
enum { SERVE_TOKEN_CANCEL, SERVE_TOKEN_FINISH };
#define SERVE_TOKEN_REMOVED "cancel|finish"          // their order
#define SERVE_LOG_LEVELS "debug|info|warn|error|off" // the order of enum log_level

struct serve_config {
    // server
    char *host, *db, *control_socket, *server_name, *token_file, *tls_cert, *tls_key,
        *allowed_origins, *allowed_hosts;
    int64_t port, grpc_port; // grpc_port -1: none
    int64_t max_connections, max_connections_per_ip;
    int64_t max_message_bytes, max_conversation_bytes, max_infer_bytes, messages_per_second,
        message_burst;
    double ping_interval, slow_reader_timeout, hello_timeout, drain_timeout; // seconds
    bool run_ahead, decoupled, sharing;
    int on_token_removed;
    int log_level;
    // engine
    struct model_settings model;
    char *model_name, *snapshot_dir;
    int64_t host_cache_bytes, snapshot_bytes, max_sequences, max_queued_turns, instances;
    int engine_process;
    double engine_timeout, engine_backoff, moved_turn_timeout; // seconds
    // sessions
    int64_t max_sequence_idle_microseconds, max_queued_turns_per_session, max_resident_sessions,
        max_session_age, max_sessions, commit_interval_us;
    int durable;
    char *volatile_patterns;
    struct owner_limits owner;        // of each owner whose line of token_file says nothing else
    struct sampling_options sampling; // the server's defaults; not given: the model's
    struct config_parts parts;        // the sections [instance NAME]
};

// Defaults. serve_config_release frees all.
int serve_config_init(struct serve_config *c, struct err *err);
void serve_config_release(struct serve_config *c);
int serve_config_load(struct serve_config *c, const char *path, struct err *err); // an ini file

const struct config_table *serve_config_table(void); // the first call on the main thread

// Checks that involve several settings: model and database are set, a certificate has its key, an
// address other than loopback has a token file, sinks fit memory_len, sampling values are in range.
int serve_config_check(const struct serve_config *c, struct err *err);

// message_burst, or twice messages_per_second if it is 0.
int64_t serve_config_burst(const struct serve_config *c);

// Puts the settings' sampling values over *p.
int serve_config_sampling(const struct serve_config *c, struct sampling_params *p, struct err *err);
