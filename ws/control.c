// The control socket. See control.h.
#include "ws/control.h"
#include "base/json_form.h"
#include "base/log.h"
#include "ws/hosting.h"
#include "ws/service.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <utlist.h>

#define LINE_MAX_BYTES (64 << 10)
#define ANSWER_MAX_BYTES (1 << 20)
#define LINE_US 10000000 // for a line to be complete
#define TICK_MS 50
#define MAX_CALLERS 32

//   READS --line--> WAITS --done--> ANSWERED --written--> (closed)
enum caller_state { READS, WAITS, ANSWERED };

struct caller {
    struct control *control;
    enum caller_state state;
    uv_pipe_t pipe;
    struct buf line, answer;
    int64_t since_us;
    char name[INSTANCE_NAME_MAX + 1]; // WAITS: for this instance
    enum hosting_goal goal;
    uv_write_t write;
    struct caller *prev, *next;
};
struct control {
    struct hosting *hosting;
    struct service *service;
    uv_pipe_t listener;
    uv_timer_t tick; // while there are callers
    struct caller *callers;
    int n_callers;
    int n_parts; // listener and tick, until they are closed
    char path[CONTROL_PATH_MAX];
    struct stat file; // as it was made: another server may have replaced it
};

const char *control_path(const char *setting, const char *db, char out[CONTROL_PATH_MAX]) {
    bool is_auto = strcmp(setting, "auto") == 0;
    bool none = strcmp(setting, "off") == 0 || (is_auto && strcmp(db, ":memory:") == 0);
    if (none)
        out[0] = '\0';
    else
        snprintf(out, CONTROL_PATH_MAX, is_auto ? "%.4200s.control" : "%.4200s",
                 is_auto ? db : setting);
    return out;
}

// --- answers ---

static void on_caller_closed(uv_handle_t *handle) {
    struct caller *c = handle->data;
    buf_release(&c->line);
    buf_release(&c->answer);
    free(c);
}

static void caller_close(struct caller *c) {
    struct control *ctl = c->control;
    DL_DELETE(ctl->callers, c);
    if (--ctl->n_callers == 0) uv_timer_stop(&ctl->tick);
    uv_close((uv_handle_t *)&c->pipe, on_caller_closed);
}

static void on_written(uv_write_t *write, int status) {
    struct caller *c = write->data;
    if (!uv_is_closing((uv_handle_t *)&c->pipe)) caller_close(c);
}

static void answer(struct caller *c, const struct err *err) {
    struct json_writer w;
    json_writer_init(&w, &c->answer);
    json_form(&w, "{ok:%hhd", err->code == 0);
    if (err->code != 0) {
        json_form(&w, "code:%s,message:%s", err_name(err->code), err->text);
    }
    json_open(&w, "instances", '[');
    hosting_put(c->control->hosting, &w);
    json_form(&w, "]}");
    buf_addc(&c->answer, '\n');
    c->state = ANSWERED;
    uv_buf_t out = uv_buf_init((char *)buf_z(&c->answer), (unsigned)c->answer.len);
    c->write.data = c;
    if (c->answer.error < 0 ||
        uv_write(&c->write, (uv_stream_t *)&c->pipe, &out, 1, on_written) < 0)
        caller_close(c);
}

// --- requests ---

static int begin(struct caller *c, const cJSON *m, bool *done, struct err *err) {
    struct hosting *h = c->control->hosting;
    const char *command = "", *name = NULL;
    const cJSON *settings = NULL;
    bool wait = true, last = false;
    TRY(json_get_string(m, "command", &command, err));
    TRY(json_get_string(m, "instance", &name, err));
    TRY(json_get_object(m, "settings", &settings, err));
    TRY(json_get_bool(m, "wait", &wait, err));
    TRY(json_get_bool(m, "last", &last, err));
    *done = !wait;
    if (strcmp(command, "list") == 0) {
        *done = true;
        return 0;
    }
    if (!name || strlen(name) > INSTANCE_NAME_MAX)
        return err_set(err, E_INVAL, "'instance' is missing: the name of an instance");
    strcpy(c->name, strcmp(name, "-") == 0 ? "" : name); // the only one, which has no name
    if (strcmp(command, "load") == 0) {
        c->goal = HOSTING_SERVES;
        return hosting_load(h, c->name, settings, err);
    }
    if (strcmp(command, "drain") == 0) {
        c->goal = HOSTING_DRAINED;
        return hosting_drain(h, c->name, last, err);
    }
    if (strcmp(command, "unload") == 0) {
        c->goal = HOSTING_GONE;
        return hosting_unload(h, c->name, last, err);
    }
    return err_set(err, E_INVAL, "'command' must be list, load, drain or unload");
}

// The file's mode keeps others out; this holds also where it was changed.
static bool is_owner(const uv_pipe_t *pipe) {
    struct ucred peer;
    socklen_t len = sizeof peer;
    uv_os_fd_t fd;
    if (uv_fileno((const uv_handle_t *)pipe, &fd) < 0) return false;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0) return false;
    return peer.uid == geteuid() || peer.uid == 0;
}

static void take_line(struct caller *c, size_t len) {
    struct err err = {0};
    bool done = true;
    if (!is_owner(&c->pipe))
        err_set(&err, E_DENIED, "only the user who runs the server may use this socket");
    else if (c->control->n_callers > MAX_CALLERS)
        err_set(&err, E_BUSY, "%d callers wait already", MAX_CALLERS);
    cJSON *m = err.code ? NULL : json_parse(buf_z(&c->line), len, &json_limits_message, &err);
    if (m && !cJSON_IsObject(m)) err_set(&err, E_FORMAT, "a request is a JSON object");
    if (err.code == 0) (void)begin(c, m, &done, &err);
    cJSON_Delete(m);
    c->state = WAITS;
    if (err.code != 0 || done) answer(c, &err);
}

static void check_goal(struct caller *c) {
    struct err err = {0};
    if (hosting_reached(c->control->hosting, c->name, c->goal, &err) != 0) answer(c, &err);
}

static void on_tick(uv_timer_t *handle) {
    struct control *ctl = handle->data;
    struct caller *c, *next;
    int64_t now = net_now_us();
    DL_FOREACH_SAFE(ctl->callers, c, next) {
        if (c->state == READS && now - c->since_us > LINE_US)
            caller_close(c);
        else if (c->state == WAITS)
            check_goal(c);
    }
}

// --- connections ---

static void on_room(uv_handle_t *handle, size_t hint, uv_buf_t *out) {
    static char room[16 << 10]; // one read at a time
    *out = uv_buf_init(room, sizeof room);
}

// A caller sends one line. When its connection ends, the caller no longer waits.
static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *in) {
    struct caller *c = stream->data;
    struct err err = {0};
    if (n < 0) {
        if (c->state != ANSWERED) caller_close(c);
        return;
    }
    if (c->state != READS) return;
    buf_add(&c->line, in->base, (size_t)n);
    if (c->line.error < 0) {
        err_set(&err, E_LIMIT, "a request is one line of at most %d bytes", LINE_MAX_BYTES);
        answer(c, &err);
        return;
    }
    const char *end = memchr(buf_z(&c->line), '\n', c->line.len);
    if (end) take_line(c, (size_t)(end - buf_z(&c->line)));
}

static void on_connection(uv_stream_t *listener, int status) {
    struct control *ctl = listener->data;
    struct caller *c = status < 0 ? NULL : calloc(1, sizeof *c);
    if (!c) return;
    c->control = ctl;
    buf_init(&c->line, LINE_MAX_BYTES);
    buf_init(&c->answer, ANSWER_MAX_BYTES);
    uv_pipe_init(listener->loop, &c->pipe, 0);
    c->pipe.data = c;
    c->since_us = net_now_us();
    DL_APPEND(ctl->callers, c);
    ctl->n_callers++;
    if (uv_accept(listener, (uv_stream_t *)&c->pipe) < 0) {
        caller_close(c);
        return;
    }
    uv_timer_start(&ctl->tick, on_tick, TICK_MS, TICK_MS);
    if (uv_read_start((uv_stream_t *)&c->pipe, on_room, on_read) < 0) caller_close(c);
}

// --- the socket's file ---

static int address_of(const char *path, struct sockaddr_un *out, struct err *err) {
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof out->sun_path)
        return err_set(err, E_LIMIT,
                       "control_socket: %s is longer than the %zu bytes of a socket's path; set "
                       "control_socket to a shorter one, or to off",
                       path, sizeof out->sun_path - 1);
    strcpy(out->sun_path, path);
    return 0;
}

// What is there: nothing, a dead server's socket, which is removed, or something to be left alone.
static int clear_path(const char *path, const struct sockaddr_un *at, struct err *err) {
    struct stat st;
    if (lstat(path, &st) < 0) return 0;
    if (!S_ISSOCK(st.st_mode))
        return err_set(err, E_EXISTS, "control_socket: %s exists and is no socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return err_errno(err, "control_socket");
    bool lives = connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 || errno == EAGAIN;
    close(fd);
    if (lives) return err_set(err, E_BUSY, "control_socket: another server listens at %s", path);
    if (unlink(path) < 0 && errno != ENOENT) return err_errno(err, "control_socket: %s", path);
    return 0;
}

static int bind_path(struct control *ctl, struct err *err) {
    struct sockaddr_un at;
    TRY(address_of(ctl->path, &at, err));
    TRY(clear_path(ctl->path, &at, err));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return err_errno(err, "control_socket");
    mode_t mask = umask(0177); // no other user may connect between bind and chmod
    int rc = bind(fd, (const struct sockaddr *)&at, sizeof at);
    int why = errno;
    umask(mask);
    errno = why;
    if (rc == 0) rc = listen(fd, MAX_CALLERS);
    if (rc == 0) rc = stat(ctl->path, &ctl->file);
    if (rc < 0) {
        rc = err_errno(err, "control_socket: %s", ctl->path);
        close(fd);
        return rc;
    }
    return fd;
}

int control_open(struct control **out, struct hosting *h, struct service *s, struct err *err) {
    struct control *ctl = calloc(1, sizeof *ctl);
    *out = NULL;
    if (!ctl) return err_set(err, E_NOMEM, "no memory for the server");
    if (!*control_path(s->config->control_socket, s->config->db, ctl->path)) {
        free(ctl);
        return 0;
    }
    struct err why = {0};
    int fd = bind_path(ctl, &why);
    if (fd < 0) {
        free(ctl);
        if (strcmp(s->config->control_socket, "auto") != 0) return err_set(err, fd, "%s", why.text);
        char quoted[1200]; // no setting asks for one: the server runs without
        log_warn("server.no_control_socket", "error=%s",
                 log_quote(quoted, sizeof quoted, why.text));
        return 0;
    }
    ctl->hosting = h;
    ctl->service = s;
    uv_loop_t *loop = &s->net->loop;
    uv_timer_init(loop, &ctl->tick);
    uv_pipe_init(loop, &ctl->listener, 0);
    ctl->tick.data = ctl->listener.data = ctl;
    ctl->n_parts = 2;
    int rc = uv_pipe_open(&ctl->listener, fd);
    if (rc == 0) rc = uv_listen((uv_stream_t *)&ctl->listener, MAX_CALLERS, on_connection);
    *out = ctl;
    return rc == 0 ? 0 : err_set(err, E_IO, "control_socket: %s", uv_strerror(rc));
}

// net_close() may close handles too, so neither waits for the other.
static void on_part_closed(uv_handle_t *handle) {
    struct control *ctl = handle->data;
    if (--ctl->n_parts == 0) free(ctl);
}

void control_close(struct control *ctl) {
    struct stat now;
    if (!ctl) return;
    while (ctl->callers) caller_close(ctl->callers);
    bool ours = lstat(ctl->path, &now) == 0 && now.st_ino == ctl->file.st_ino &&
                now.st_dev == ctl->file.st_dev;
    if (ours) unlink(ctl->path);
    uv_close((uv_handle_t *)&ctl->listener, on_part_closed);
    uv_close((uv_handle_t *)&ctl->tick, on_part_closed);
}
