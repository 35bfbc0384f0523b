// The peer of a terminal chat: a running server (chat_server.c) or an engine in this process
// (chat_engine.c).
#pragma once
#include "base/err.h"
#include "engine/engine.h"
#include "ws/cli/cli.h"
#include <signal.h>

struct chat_settings {
    struct model_settings model;
    struct sampling_options sampling;
    char *url, *session, *system, *token_file;
};

struct chat_stats { // of the last answer
    int64_t n_tokens, log_tokens, session_len;
    double tokens_per_second, first_token_ms;
    char finish[32], cache[32];
};

enum chat_what {
    CHAT_MESSAGE,
    CHAT_AGAIN,   // another answer to the last message
    CHAT_CONTINUE // the rest of an answer that was cut off
};

struct chat_call {
    enum chat_what what;
    const char *text; // MESSAGE
    void (*print)(const char *text, size_t len);
    const volatile sig_atomic_t *interrupted; // nonzero stops the answer
    struct chat_stats stats;                  // set at its end
};

struct chat_peer;
struct chat_peer_ops {
    // Streams the answer to print() and returns when it ends. E_CLOSED: the connection is lost for
    // good.
    int (*say)(struct chat_peer *p, struct chat_call *call, struct err *err);
    // Returns to before the last n messages. NULL, as fork, if the peer stores no turns; then say takes
    // messages only.
    int (*back)(struct chat_peer *p, int64_t n, struct err *err);
    int (*fork)(struct chat_peer *p, struct err *err);  // continues in a copy of the session
    int (*renew)(struct chat_peer *p, struct err *err); // starts a new session
    const char *(*describe)(struct chat_peer *p);       // "demo-model at ws://..., session 8c6f..."
    void (*close)(struct chat_peer *p);
};
struct chat_peer {
    const struct chat_peer_ops *ops;
};

// The peer borrows the settings. The caller ends it with ops->close.
int chat_server_open(struct chat_peer **out, const struct chat_settings *s, struct err *err);
int chat_engine_open(struct chat_peer **out, const struct chat_settings *s, struct err *err);
