// A chat with a running server over parley.v1. The server stores the session; after a lost
// connection the chat attaches again from the last seq it saw.
#include "base/json_form.h"
#include "base/random_id.h"
#include "ws/cli/chat.h"
#include "ws/cli/terminal.h"
#include "ws/cli/ws_client.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct server_peer {
    struct chat_peer peer;
    const struct chat_settings *settings;
    struct turn_sampling sampling; // as given by options
    struct ws_client *client;
    char token[1024];
    char session[72];
    char description[512]; // the model and the address, `described` bytes; then the session
    size_t described;
    int64_t seq; // last event seen
    int64_t session_len;
    bool stalled;   // and the user was shown why
    struct buf out; // the frame being written
};

static void begin(struct server_peer *p, struct json_writer *w, const char *type) {
    buf_reset(&p->out);
    json_writer_init(w, &p->out);
    json_form(w, "{type:%s", type);
    if (p->session[0]) json_put_string(w, "session", p->session);
}

static int finish(struct server_peer *p, struct json_writer *w) {
    json_close(w, '}');
    return p->out.error ? p->out.error : ws_client_send(p->client, p->out.data, p->out.len);
}

static const cJSON *at(const cJSON *frame, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(frame, key);
}

static const char *text_of(const cJSON *frame, const char *key) {
    const cJSON *item = at(frame, key);
    return cJSON_IsString(item) ? item->valuestring : "";
}

static double number_of(const cJSON *frame, const char *key) {
    const cJSON *item = at(frame, key);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

// The server's error message, with the time to retry if it names one.
static int fail_with(const cJSON *frame, struct err *err) {
    double ms = number_of(frame, "retry_after_ms");
    if (ms <= 0) return err_set(err, E_DENIED, "%s", text_of(frame, "message"));
    return err_set(err, E_DENIED, "%s; retry in %.1f s", text_of(frame, "message"), ms / 1e3);
}

// Parses the next frame; the caller calls cJSON_Delete. Returns 1, 0 after timeout_us, or an error.
static int next_frame(struct server_peer *p, cJSON **frame, int64_t timeout_us, struct err *err) {
    char *text;
    size_t len;
    int rc = ws_client_receive(p->client, &text, &len, timeout_us);
    if (rc <= 0) return rc < 0 ? err_set(err, rc, "the server closed the connection") : 0;
    *frame = json_parse(text, len, &json_limits_file, err);
    free(text);
    return *frame ? 1 : err->code;
}

// Waits for a frame of this type and drops others. An error frame ends the wait.
static int await(struct server_peer *p, const char *type, cJSON **frame, struct err *err) {
    for (;;) {
        int rc = next_frame(p, frame, 15 * 1000000, err);
        if (rc == 0) return err_set(err, E_TIMEOUT, "the server did not answer within 15 s");
        if (rc < 0) return rc;
        if (!strcmp(text_of(*frame, "type"), type)) return 0;
        bool is_error = !strcmp(text_of(*frame, "type"), "error");
        if (is_error) fail_with(*frame, err);
        cJSON_Delete(*frame);
        if (is_error) return E_DENIED;
    }
}

// Sends the message that was begun and waits for its answer.
static int ask(struct server_peer *p, struct json_writer *w, const char *type, cJSON **frame,
               struct err *err) {
    TRY(finish(p, w));
    return await(p, type, frame, err);
}

static int connect_and_greet(struct server_peer *p, struct err *err) {
    cJSON *hello = NULL;
    TRY(ws_client_open(&p->client, p->settings->url, p->token[0] ? p->token : NULL, err));
    TRY(await(p, "hello", &hello, err));
    const cJSON *model = cJSON_GetArrayItem(at(hello, "models"), 0);
    const int n = snprintf(p->description, sizeof p->description, "%s at %s",
                           text_of(model, "name"), p->settings->url);
    p->described = n < (int)sizeof p->description ? (size_t)n : sizeof p->description - 1;
    cJSON_Delete(hello);
    return 0;
}

// Reads a session object; returns the session's last seq.
static int64_t take_session(struct server_peer *p, const cJSON *frame) {
    const cJSON *session = at(frame, "session");
    snprintf(p->session, sizeof p->session, "%s", text_of(session, "id"));
    p->session_len = (int64_t)number_of(session, "session_len");
    return (int64_t)number_of(session, "seq");
}

static int attach(struct server_peer *p, bool from_seq, struct err *err) {
    struct json_writer w;
    cJSON *frame;
    begin(p, &w, "session.attach");
    if (from_seq) json_put_int(&w, "after", p->seq);
    TRY(ask(p, &w, "session.attached", &frame, err));
    int64_t seq = take_session(p, frame);
    if (!from_seq || cJSON_IsTrue(at(frame, "reset"))) p->seq = seq;
    cJSON_Delete(frame);
    return 0;
}

static int server_renew(struct chat_peer *peer, struct err *err) {
    struct server_peer *p = (struct server_peer *)peer;
    const struct chat_settings *s = p->settings;
    struct json_writer w;
    cJSON *frame;
    if (p->session[0]) { // the old session stays on the server
        begin(p, &w, "session.detach");
        TRY(finish(p, &w));
    }
    p->session[0] = 0;
    begin(p, &w, "session.open");
    if (s->system[0]) json_put_string(&w, "system", s->system);
    if (s->model.session_len) json_put_int(&w, "session_len", s->model.session_len);
    if (s->model.memory_len) json_put_int(&w, "memory_len", s->model.memory_len);
    if (s->model.sink_len >= 0) json_put_int(&w, "sink_len", s->model.sink_len);
    TRY(ask(p, &w, "session.opened", &frame, err));
    p->seq = take_session(p, frame);
    cJSON_Delete(frame);
    return 0;
}

static int reconnect(struct server_peer *p, struct err *err) {
    ws_client_close(p->client);
    p->client = NULL;
    for (int attempt = 0; attempt < 20; attempt++) {
        usleep(attempt < 5 ? 200000 : 1000000);
        if (connect_and_greet(p, err) == 0) return attach(p, true, err);
        ws_client_close(p->client);
        p->client = NULL;
    }
    return E_CLOSED;
}

static void take_done(struct server_peer *p, const cJSON *frame, struct chat_stats *stats) {
    const cJSON *usage = at(frame, "usage");
    const cJSON *timings = at(frame, "timings");
    stats->n_tokens = (int64_t)number_of(usage, "output_tokens");
    stats->log_tokens = (int64_t)number_of(usage, "log_tokens");
    stats->session_len = p->session_len;
    stats->tokens_per_second = number_of(timings, "tokens_per_second");
    stats->first_token_ms = number_of(timings, "first_token_ms");
    snprintf(stats->finish, sizeof stats->finish, "%s", text_of(frame, "finish_reason"));
    snprintf(stats->cache, sizeof stats->cache, "%s", text_of(at(frame, "cache"), "source"));
}

// Prints why, once: the server repeats it at each failed attempt.
static void show_stalled(struct server_peer *p, const char *reason) {
    if (p->stalled) return;
    p->stalled = true;
    fputs("\nparley: the answer is paused, because the server cannot save it: ", stderr);
    terminal_line(stderr, reason, strlen(reason));
}

// Returns 1 at the end of the turn, 0 to continue, or the server's error.
static int take_frame(struct server_peer *p, const cJSON *frame, struct chat_call *call,
                      struct err *err) {
    const char *type = text_of(frame, "type"), *text = text_of(frame, "text");
    int64_t seq = (int64_t)number_of(frame, "seq");
    if (!strcmp(type, "error")) return fail_with(frame, err);
    if (strcmp(text_of(frame, "session"), p->session) || (seq && seq <= p->seq)) return 0;
    if (!strcmp(type, "session.stalled")) show_stalled(p, text_of(frame, "message"));
    if (!seq) return 0;
    p->stalled = false;
    p->seq = seq;
    bool done = !strcmp(type, "turn.done");
    if (!done && strcmp(type, "turn.delta")) return 0;
    call->print(text, strlen(text));
    if (!done) return 0;
    take_done(p, frame, &call->stats);
    if (!strcmp(call->stats.finish, "error"))
        return err_set(err, E_IO, "%s", text_of(at(frame, "error"), "message"));
    return 1;
}

// The request_id makes it safe to send again: the server does not start a turn twice.
static int send_start(struct server_peer *p, const struct chat_call *call, const char *request_id) {
    struct json_writer w;
    begin(p, &w, call->what == CHAT_AGAIN ? "turn.regenerate" : "turn.start");
    json_put_string(&w, "request_id", request_id);
    if (call->what != CHAT_AGAIN) {
        json_open(&w, "input", '{');
        if (call->what == CHAT_MESSAGE)
            json_put_string(&w, "content", call->text);
        else
            json_put_bool(&w, "continue", true);
        json_close(&w, '}');
    }
    sampling_json_put(&w, "sampling", &p->sampling, p->sampling.set);
    return finish(p, &w);
}

static int server_say(struct chat_peer *peer, struct chat_call *call, struct err *err) {
    struct server_peer *p = (struct server_peer *)peer;
    struct json_writer w;
    char request_id[RANDOM_ID_LEN + 1];
    bool cancelled = false;
    random_id(request_id);
    // The loop below notices a lost connection.
    int rc = send_start(p, call, request_id);
    if (rc < 0 && rc != E_CLOSED) return err_set(err, rc, "cannot send the message");
    for (;;) {
        cJSON *frame = NULL;
        rc = next_frame(p, &frame, 50000, err);
        if (rc == E_CLOSED) {
            TRY(reconnect(p, err));
            send_start(p, call, request_id); // the first copy may be lost
            cancelled = false;
            continue;
        }
        if (rc < 0) return rc;
        if (*call->interrupted && !cancelled) {
            begin(p, &w, "turn.cancel");
            finish(p, &w);
            cancelled = true;
        }
        if (!frame) continue;
        rc = take_frame(p, frame, call, err);
        cJSON_Delete(frame);
        if (rc) return rc < 0 ? rc : 0;
    }
}

// The turn before the last n turns of the path. -1: exactly n turns; E_NOTFOUND: fewer than n.
static int find_before(struct server_peer *p, int64_t n, int64_t *turn, struct err *err) {
    struct json_writer w;
    cJSON *frame;
    begin(p, &w, "session.get");
    json_put_int(&w, "last", n);
    TRY(ask(p, &w, "session.state", &frame, err));
    const cJSON *turns = at(frame, "turns");
    const cJSON *first = cJSON_GetArrayItem(turns, 0);
    int n_there = cJSON_GetArraySize(turns);
    const cJSON *parent = at(first, "parent");
    *turn = cJSON_IsNumber(parent) ? (int64_t)parent->valuedouble : -1;
    cJSON_Delete(frame);
    if (n_there == n) return 0;
    return err_set(err, E_NOTFOUND, "the session has only %d messages", n_there);
}

static int server_back(struct chat_peer *peer, int64_t n, struct err *err) {
    struct server_peer *p = (struct server_peer *)peer;
    struct json_writer w;
    cJSON *frame;
    int64_t turn, seq;
    TRY(find_before(p, n, &turn, err));
    begin(p, &w, "session.rewind");
    json_put_int_or_null(&w, "turn", turn);
    TRY(ask(p, &w, "session.rewound", &frame, err));
    seq = (int64_t)number_of(frame, "seq");
    if (seq > p->seq) p->seq = seq;
    cJSON_Delete(frame);
    return 0;
}

static int server_fork(struct chat_peer *peer, struct err *err) {
    struct server_peer *p = (struct server_peer *)peer;
    struct json_writer w;
    cJSON *frame;
    begin(p, &w, "session.fork");
    TRY(ask(p, &w, "session.opened", &frame, err));
    begin(p, &w, "session.detach"); // the original stays on the server
    int rc = finish(p, &w);
    p->seq = take_session(p, frame);
    cJSON_Delete(frame);
    return rc;
}

static const char *server_describe(struct chat_peer *peer) {
    struct server_peer *p = (struct server_peer *)peer;
    snprintf(p->description + p->described, sizeof p->description - p->described, ", session %s",
             p->session);
    return p->description;
}

static void server_close(struct chat_peer *peer) {
    struct server_peer *p = (struct server_peer *)peer;
    ws_client_close(p->client);
    buf_release(&p->out);
    turn_sampling_release(&p->sampling);
    free(p);
}

static const struct chat_peer_ops ops = {.say = server_say,
                                         .back = server_back,
                                         .fork = server_fork,
                                         .renew = server_renew,
                                         .describe = server_describe,
                                         .close = server_close};

// Reads the first line of a token file: a token or name:token.
static int read_token(struct server_peer *p, const char *path, struct err *err) {
    struct buf b;
    int rc = buf_read_file(&b, path, 65536, err);
    if (rc == 0) {
        const char *line = buf_z(&b), *colon = strchr(line, ':');
        size_t len = strcspn(line, "\r\n");
        if (colon && colon < line + len) {
            len -= (size_t)(colon + 1 - line);
            line = colon + 1;
        }
        if (len == 0 || len >= sizeof p->token)
            rc = err_set(err, E_FORMAT, "%s contains no token", path);
        else
            snprintf(p->token, sizeof p->token, "%.*s", (int)len, line);
    }
    buf_release(&b);
    return rc;
}

int chat_server_open(struct chat_peer **out, const struct chat_settings *s, struct err *err) {
    struct server_peer *p = calloc(1, sizeof *p);
    int rc;
    if (!p) return err_set(err, E_NOMEM, "out of memory");
    *p = (struct server_peer){.peer.ops = &ops, .settings = s};
    buf_init(&p->out, 16 << 20);
    TRY_GOTO(fail, sampling_options_apply(&s->sampling, SAMPLING_COMMAND, &p->sampling, err));
    if (s->token_file[0]) TRY_GOTO(fail, read_token(p, s->token_file, err));
    TRY_GOTO(fail, connect_and_greet(p, err));
    if (s->session[0]) {
        snprintf(p->session, sizeof p->session, "%s", s->session);
        TRY_GOTO(fail, attach(p, false, err));
    } else {
        TRY_GOTO(fail, server_renew(&p->peer, err));
    }
    *out = &p->peer;
    return 0;
fail:
    server_close(&p->peer);
    return rc;
}
