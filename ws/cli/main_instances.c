// parley instances: the engines of a running server, over its control socket.
#include "base/json_form.h"
#include "base/path.h"
#include "ws/cli/cli.h"
#include "ws/control.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES ((size_t)1 << 20)

struct settings {
    char *db, *control_socket, *model, *set;
    bool json, last, wait;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", db, "parley.db", "FILE", "Database of the server."),
    TEXT("", control_socket, "auto", "FILE",
         "Control socket of the server; auto is the database's path with .control behind it."),
    TEXT("", model, "", MODEL_VALUE,
         "load: model, " MODEL_VALUE_HELP
         "; this command downloads it. If not given: the server's."),
    TEXT("", set, "", "LIST",
         "load: other settings of the instance, as in its section of the ini file: "
         "KEY=VALUE,KEY=VALUE. Without --model and --set an instance gets those of its section."),
    BOOL(
        "", last, "off",
        "drain, unload: also where no other instance of the model serves; turns are refused then."),
    BOOL("", wait, "on", "Wait until it is done."),
    BOOL("", json, "off", "Print the server's answer as JSON."),
};

static const char *action_name(int i) {
    static const char *const names[] = {"list", "load", "drain", "unload"};
    return i < 4 ? names[i] : NULL;
}

// A part without = belongs to the value before it: device=cuda:0,cuda:1,threads=2 are two settings.
static char *next_setting(char **rest) {
    char *one = *rest, *end = strchr(one, ',');
    while (end && end[strcspn(end + 1, ",=") + 1] != '=') end = strchr(end + 1, ',');
    *rest = end ? end + 1 : NULL;
    if (end) *end = '\0';
    return one;
}

// The server may run in another folder.
static int put_model(struct json_writer *w, const char *model, struct err *err) {
    char absolute[PATH_MAX];
    struct err why = {0};
    int rc = path_absolute(absolute, model, &why);
    if (rc < 0) return err_set(err, rc, "--model %s", why.text);
    json_put_string(w, "model", absolute);
    return 0;
}

static int put_settings(struct json_writer *w, const struct settings *s, struct err *err) {
    char *rest = s->set;
    if (!*s->model && !*s->set) return 0;
    json_open(w, "settings", '{');
    if (*s->model) TRY(put_model(w, s->model, err));
    for (char *one; rest && (one = next_setting(&rest)) && *one;) {
        char *value = strchr(one, '=');
        if (!value) return err_set(err, E_INVAL, "--set: '%s' is not KEY=VALUE", one);
        *value++ = '\0';
        json_put_string(w, one, value);
    }
    json_close(w, '}');
    return 0;
}

static int connect_to(const char *path, int *fd, struct err *err) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof at.sun_path)
        return err_set(err, E_LIMIT, "%s is too long for a socket's path", path);
    strcpy(at.sun_path, path);
    *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && connect(*fd, (const struct sockaddr *)&at, sizeof at) == 0) return 0;
    bool none = errno == ENOENT || errno == ECONNREFUSED;
    int rc =
        none ? err_set(err, E_NOTFOUND,
                       "no server listens at %s; --db names the database of a running server", path)
             : err_errno(err, "%s", path);
    if (*fd >= 0) close(*fd);
    return rc;
}

static int exchange(int fd, struct buf *text, struct err *err) {
    for (size_t at = 0; at < text->len;) {
        ssize_t n = send(fd, buf_z(text) + at, text->len - at, MSG_NOSIGNAL);
        if (n < 0 && errno != EINTR) return err_errno(err, "the server does not listen");
        if (n > 0) at += (size_t)n;
    }
    buf_reset(text);
    for (;;) {
        char piece[4096];
        ssize_t n = read(fd, piece, sizeof piece);
        if (n == 0) break;
        if (n < 0 && errno != EINTR) return err_errno(err, "the server does not answer");
        if (n > 0 && buf_add(text, piece, (size_t)n) < 0)
            return err_set(err, E_NOMEM, "the server's answer is too long");
    }
    if (text->len > 0) return 0;
    return err_set(err, E_CLOSED, "the server ended before it answered");
}

static const char *text_of(const cJSON *object, const char *key) {
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
    return text ? text : "";
}

// Since when it is lost, and why it is lost or could not be loaded.
static void print_problem(const cJSON *one) {
    const cJSON *lost_ms = cJSON_GetObjectItemCaseSensitive(one, "lost_ms");
    const char *why = text_of(one, "error");
    char when[32];
    if (cJSON_IsNumber(lost_ms)) {
        time_t seconds = (time_t)(lost_ms->valuedouble / 1000);
        struct tm tm;
        strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &tm));
        printf("    lost since %s%s%s\n", when, *why ? ": " : "", why);
    } else if (*why) {
        printf("    %s\n", why);
    }
}

static void print(const cJSON *answer) {
    const cJSON *one;
    printf("%-16s %-10s %-20s %6s %9s\n", "NAME", "STATE", "MODEL", "TURNS", "SESSIONS");
    cJSON_ArrayForEach(one, cJSON_GetObjectItemCaseSensitive(answer, "instances")) {
        const char *name = text_of(one, "name"), *model = text_of(one, "model");
        printf("%-16s %-10s %-20s %6.0f %9.0f\n", *name ? name : "-", text_of(one, "state"),
               *model ? model : "-",
               cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(one, "turns")),
               cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(one, "sessions")));
        print_problem(one);
    }
}

static int show(const struct settings *s, const struct buf *text, struct err *err) {
    cJSON *answer = json_parse(buf_z(text), text->len, &json_limits_message, err);
    if (!answer) return err->code;
    int rc = 0;
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(answer, "ok")))
        rc = err_set(err, E_INVAL, "%s", text_of(answer, "message"));
    if (s->json)
        fwrite(buf_z(text), 1, text->len, stdout);
    else if (rc == 0)
        print(answer);
    cJSON_Delete(answer);
    return rc;
}

static int check_words(const struct settings *s, char **words, struct err *err) {
    bool lists = strcmp(words[0], "list") == 0, loads = strcmp(words[0], "load") == 0;
    if (lists && words[1]) return cli_usage(err, "list takes no name");
    if (!lists && !words[1]) return cli_usage(err, "%s takes the name of an instance", words[0]);
    if (!loads && (*s->model || *s->set))
        return cli_usage(err, "--model and --set are for load only");
    if (s->last && (lists || loads)) return cli_usage(err, "--last is for drain and unload only");
    return 0;
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    char path[CONTROL_PATH_MAX];
    struct json_writer w;
    struct buf text;
    int fd = -1;
    if (cli_word(&command_instances, words[0]) < 0)
        return cli_unknown_action(words[0], "list, load, drain or unload", err);
    int rc = check_words(s, words, err);
    if (rc != 0) return rc; // also a usage error, which is positive
    buf_init(&text, ANSWER_BYTES);
    json_writer_init(&w, &text);
    json_form(&w, "{command:%s", words[0]);
    if (words[1]) json_put_string(&w, "instance", words[1]);
    json_form(&w, "wait:%hhd,last:%hhd", s->wait, s->last);
    rc = strcmp(words[0], "load") == 0 ? put_settings(&w, s, err) : 0;
    json_close(&w, '}');
    buf_addc(&text, '\n');
    if (rc == 0) rc = text.error;
    if (rc == 0) rc = connect_to(control_path(s->control_socket, s->db, path), &fd, err);
    if (rc == 0) rc = exchange(fd, &text, err);
    if (rc == 0) rc = show(s, &text, err);
    if (fd >= 0) close(fd);
    buf_release(&text);
    return rc;
}

const struct cli_command command_instances = {
    .name = "instances",
    .summary = "list, load, drain and unload the engines of a running server",
    .usage = "instances list | load NAME [--model MODEL] [--set LIST] | drain NAME | unload NAME",
    .about =
        "list    list the instances: their states, models, turns and sessions\n"
        "load    start another instance, of the server's model or of another one (--model)\n"
        "drain   give an instance no more turns; its turns end, and the caches of its sessions\n"
        "        move to other instances of the model without being computed again\n"
        "unload  drain, then close the instance and free its memory; the instance without a\n"
        "        name is called -\n\n"
        "A restart of the server forgets loaded instances. For an instance that stays, write a\n"
        "section [instance NAME] into the ini file.",
    CLI_SETTINGS(keys),
    .max_words = 2,
    .word = action_name,
    .run = run,
};
