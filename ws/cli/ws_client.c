// The client's thread owns the libwebsockets context. The caller uses only the queues and
// lws_cancel_service, the one call that other threads may make.
#include "ws/cli/ws_client.h"
#include "base/buf.h"
#include "base/queue.h"
#include <libwebsockets.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { QUEUE_FRAMES = 4096, FRAME_MAX = 16 << 20 };

struct frame {
    char *text; // outgoing frames begin with LWS_PRE spare bytes
    size_t len;
};
enum status { CONNECTING, OPEN, GONE };

struct ws_client {
    pthread_t thread;
    struct lws_context *context;
    struct lws *wsi;
    struct queue in, out, opened; // opened: one item, the result of connecting
    struct buf receiving;
    char *token;
    char reason[256];
    int answer;         // HTTP's status where it was no WebSocket; 0: none came
    enum status status; // client's thread
    atomic_bool stop;
};

static void settle(struct ws_client *c, enum status status) {
    if (c->status == CONNECTING) queue_try_push(&c->opened, &status);
    c->status = status;
    if (status == GONE) {
        queue_close(&c->in);
        queue_close(&c->out);
    }
}

static int receive(struct ws_client *c, struct lws *wsi, const void *bytes, size_t len) {
    if (buf_add(&c->receiving, bytes, len) < 0) return -1;
    if (!lws_is_final_fragment(wsi)) return 0;
    struct frame f;
    f.text = buf_take(&c->receiving, &f.len);
    if (!f.text) return -1;
    if (queue_push(&c->in, &f) < 0) free(f.text);
    return 0;
}

static int send_next(struct ws_client *c, struct lws *wsi) {
    struct frame f;
    if (queue_try_pop(&c->out, &f) != 1) return 0;
    int n = lws_write(wsi, (unsigned char *)f.text + LWS_PRE, f.len, LWS_WRITE_TEXT);
    free(f.text);
    if (n < 0) return -1;
    if (queue_count(&c->out)) lws_callback_on_writable(wsi);
    return 0;
}

static int add_token(struct ws_client *c, struct lws *wsi, void *in, size_t len) {
    if (!c->token) return 0;
    char value[1100];
    int n = snprintf(value, sizeof value, "Bearer %s", c->token);
    unsigned char **p = in;
    return n >= (int)sizeof value ||
           lws_add_http_header_by_token(wsi, WSI_TOKEN_HTTP_AUTHORIZATION, (unsigned char *)value,
                                        n, p, *p + len);
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len) {
    struct ws_client *c = lws_context_user(lws_get_context(wsi));
    switch (reason) {
    case LWS_CALLBACK_CLIENT_APPEND_HANDSHAKE_HEADER:
        return add_token(c, wsi, in, len) ? -1 : 0;
    case LWS_CALLBACK_CLIENT_ESTABLISHED:
        settle(c, OPEN);
        return 0;
    case LWS_CALLBACK_CLIENT_RECEIVE:
        return receive(c, wsi, in, len);
    case LWS_CALLBACK_CLIENT_WRITEABLE:
        return send_next(c, wsi);
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        if (c->status == OPEN && c->wsi) lws_callback_on_writable(c->wsi);
        return 0;
    case LWS_CALLBACK_CLIENT_CONNECTION_ERROR:
        c->answer = (int)lws_http_client_http_response(wsi);
        if (c->answer == 101) c->answer = 0;
        snprintf(c->reason, sizeof c->reason, "%.*s", in ? (int)len : 0,
                 in ? (const char *)in : "");
        c->wsi = NULL;
        settle(c, GONE);
        return 0;
    case LWS_CALLBACK_CLIENT_CLOSED:
        c->wsi = NULL;
        settle(c, GONE);
        return 0;
    default:
        return 0;
    }
}

static const struct lws_protocols protocols[] = {
    {.name = "parley.v1", .callback = callback, .rx_buffer_size = 65536},
    {.name = NULL},
};

static void *serve(void *arg) {
    struct ws_client *c = arg;
    while (!atomic_load(&c->stop) && c->status != GONE)
        if (lws_service(c->context, 0) < 0) break;
    settle(c, GONE);
    return NULL;
}

static int fail_connect(const struct ws_client *c, const char *url, struct err *err) {
    if (c->answer == 401 || c->answer == 403)
        return err_set(err, E_DENIED, "the server at %s does not know %s", url,
                       c->token ? "this token (--token-file)"
                                : "a client without a token: --token-file FILE");
    if (c->answer == 429)
        return err_set(err, E_DENIED,
                       "the server at %s takes no more requests for now (HTTP 429); try again in a "
                       "minute",
                       url);
    if (c->answer)
        return err_set(err, E_IO,
                       "a server is at %s, and answers HTTP %d there: is it `parley serve`, and "
                       "the path right?",
                       url, c->answer);
    return err_set(
        err, E_IO,
        "cannot connect to %s%s%s. Does a server run there? `parley serve` starts one and "
        "prints its address; --url takes it as ws://HOST:PORT/ws",
        url, c->reason[0] ? ": " : "", c->reason);
}

// The WebSocket's address by `url`, which may also be the page's, as `parley serve` prints it, or HOST:PORT. The caller frees
// it. NULL: out of memory.
static char *address_of(const char *url) {
    const char *found = strstr(url, "://"), *rest = found ? found + 3 : url;
    const bool of_page = !found || !strncmp(url, "http://", 7) || !strncmp(url, "https://", 8);
    const char *path = strchr(rest, '/');
    const bool bare = !path || !path[1], ends_in_ws = path && !strcmp(strrchr(path, '/'), "/ws");
    const char *more = (of_page && !ends_in_ws) || bare ? "ws" : "";
    const size_t len = strlen(rest);
    char *address;
    int rc = asprintf(&address, "%.*s%s%s%s%s", of_page ? 0 : (int)(rest - url), url,
                      !of_page                       ? ""
                      : !strncmp(url, "https://", 8) ? "wss://"
                                                     : "ws://",
                      rest, more[0] && (!len || rest[len - 1] != '/') ? "/" : "", more);
    return rc < 0 ? NULL : address;
}

static int connect_to(struct ws_client *c, const char *url, struct err *err) {
    char *copy = address_of(url), path[512];
    const char *scheme, *host, *rest;
    int port, rc = 0;
    if (!copy) return err_set(err, E_NOMEM, "out of memory");
    if (lws_parse_uri(copy, &scheme, &host, &port, &rest) ||
        (strcmp(scheme, "ws") && strcmp(scheme, "wss")))
        TRY_GOTO(out,
                 err_set(err, E_INVAL,
                         "'%s' is not a WebSocket address such as ws://127.0.0.1:8080/ws", url));
    snprintf(path, sizeof path, "/%s", rest);
    struct lws_client_connect_info info = {.context = c->context,
                                           .address = host,
                                           .port = port,
                                           .path = path,
                                           .host = host,
                                           .origin = NULL,
                                           .protocol = protocols[0].name,
                                           .local_protocol_name = protocols[0].name,
                                           .pwsi = &c->wsi,
                                           .ssl_connection =
                                               strcmp(scheme, "wss") ? 0 : LCCSCF_USE_SSL};
    char host_header[300];
    snprintf(host_header, sizeof host_header, "%s:%d", host, port);
    info.host = host_header;
    if (!lws_client_connect_via_info(&info) && c->status != GONE) rc = fail_connect(c, url, err);
out:
    free(copy);
    return rc;
}

static void release_frames(struct queue *q) {
    struct frame f;
    while (q->items && queue_try_pop(q, &f) == 1) free(f.text);
    queue_release(q);
}

// Frees what c has so far; the thread does not run.
static void release(struct ws_client *c) {
    if (c->context) lws_context_destroy(c->context);
    queue_release(&c->opened);
    release_frames(&c->in);
    release_frames(&c->out);
    buf_release(&c->receiving);
    free(c->token);
    free(c);
}

int ws_client_open(struct ws_client **out, const char *url, const char *token, struct err *err) {
    struct ws_client *c = calloc(1, sizeof *c);
    enum status status;
    int rc;
    if (!c) return err_set(err, E_NOMEM, "out of memory");
    buf_init(&c->receiving, FRAME_MAX);
    if (token && !(c->token = strdup(token)))
        TRY_GOTO(fail, err_set(err, E_NOMEM, "out of memory"));
    TRY_GOTO(fail, queue_init(&c->in, sizeof(struct frame), QUEUE_FRAMES, NULL, NULL, err));
    TRY_GOTO(fail, queue_init(&c->out, sizeof(struct frame), QUEUE_FRAMES, NULL, NULL, err));
    TRY_GOTO(fail, queue_init(&c->opened, sizeof status, 1, NULL, NULL, err));
    lws_set_log_level(0, NULL);
    struct lws_context_creation_info info = {.port = CONTEXT_PORT_NO_LISTEN,
                                             .protocols = protocols,
                                             .gid = (gid_t)-1,
                                             .uid = (uid_t)-1,
                                             .user = c,
                                             .options = LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT};
    c->context = lws_create_context(&info);
    if (!c->context) TRY_GOTO(fail, err_set(err, E_INTERNAL, "cannot start the WebSocket library"));
    TRY_GOTO(fail, connect_to(c, url, err));
    if (pthread_create(&c->thread, NULL, serve, c))
        TRY_GOTO(fail, err_set(err, E_NOMEM, "cannot start a thread"));
    if (queue_pop(&c->opened, &status, 10 * 1000000) == 1 && status == OPEN) {
        *out = c;
        return 0;
    }
    rc = fail_connect(c, url, err);
    ws_client_close(c);
    return rc;

fail:
    release(c);
    return rc;
}

void ws_client_close(struct ws_client *c) {
    if (!c) return;
    atomic_store(&c->stop, true);
    queue_close(&c->in); // the thread may wait for room in it
    lws_cancel_service(c->context);
    pthread_join(c->thread, NULL);
    release(c);
}

int ws_client_send(struct ws_client *c, const char *text, size_t len) {
    struct frame f = {malloc(LWS_PRE + len), len};
    if (!f.text) return E_NOMEM;
    memcpy(f.text + LWS_PRE, text, len);
    int rc = queue_push(&c->out, &f);
    if (rc < 0)
        free(f.text);
    else
        lws_cancel_service(c->context);
    return rc;
}

int ws_client_receive(struct ws_client *c, char **text, size_t *len, int64_t timeout_us) {
    struct frame f;
    int rc = queue_pop(&c->in, &f, timeout_us);
    if (rc == 1) {
        *text = f.text;
        *len = f.len;
    }
    return rc;
}
