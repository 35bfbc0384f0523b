// parley chat: a conversation in the terminal, or line by line from a pipe.
#include "ws/cli/chat.h"
#include "ws/cli/terminal.h"
#include <editline/readline.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SETTINGS struct chat_settings
static const struct config_key keys[] = {
    TEXT("chat", url, "ws://127.0.0.1:8080/ws", NULL,
         "Address of the server: ws://HOST:PORT/ws, or the page's, as `parley serve` prints it."),
    TEXT("chat", session, "", NULL, "Session on the server to continue; empty opens a new one."),
    TEXT("chat", token_file, "", NULL, "File whose first line is the access token for the server."),
    TEXT("chat", system, "", NULL, "System prompt of a new session."),
};

#define NEEDS_SERVER "this command needs a server (--url), which stores earlier answers"

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number) {
    interrupted = 1;
}

static void print(const char *text, size_t len) {
    terminal_or_pipe(stdout, text, len);
    fflush(stdout);
}

// Reads one line without its newline; the caller frees it. NULL at the end of input. A terminal has
// editing and history.
static char *read_line(bool terminal) {
    if (terminal) {
        char *line = readline("> ");
        if (line && *line) add_history(line);
        return line;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n') line[n - 1] = 0;
    return line;
}

static void show_stats(const struct chat_stats *s) {
    printf("\033[2m%lld tokens", (long long)s->n_tokens);
    if (s->tokens_per_second > 0) printf(", %.0f tokens/s", s->tokens_per_second);
    if (s->first_token_ms > 0) printf(", first token in %.0f ms", s->first_token_ms);
    printf(", session %lld of %lld", (long long)s->log_tokens, (long long)s->session_len);
    if (strcmp(s->finish, "eos")) printf(", finish reason %s", s->finish);
    if (!strcmp(s->cache, "recomputed")) printf(", cache recomputed");
    printf("\033[0m\n\n");
}

static void describe(struct chat_peer *peer) {
    const char *text = peer->ops->describe(peer); // contains names from a server
    terminal_line(stdout, text, strlen(text));
}

// Runs a command that needs stored turns. False: the line is another one.
static bool branch(struct chat_peer *peer, const char *line) {
    struct err err = {0};
    char *end = NULL;
    bool back = !strncmp(line, "/rewind", 7) && (!line[7] || line[7] == ' ');
    int64_t n = back && line[7] ? strtoll(line + 7, &end, 10) : 1;
    int rc;
    if (!back && strcmp(line, "/fork")) return false;
    if (!peer->ops->back)
        rc = err_set(&err, E_UNSUPPORTED, NEEDS_SERVER);
    else if (back && (n < 1 || n > 1000 || (end && *end)))
        rc = err_set(&err, E_INVAL, "/rewind takes a number of messages from 1 to 1000");
    else
        rc = back ? peer->ops->back(peer, n, &err) : peer->ops->fork(peer, &err);
    if (rc < 0)
        cli_fail(&err);
    else if (back)
        printf("Returned to before the last %s.\n\n", n == 1 ? "message" : "messages");
    else
        puts("Continuing in a copy of the session.\n");
    return true;
}

// Returns 1 after running a command, 0 for a line that asks for an answer, -1 to quit.
static int command(struct chat_peer *peer, const char *line) {
    struct err err = {0};
    if (line[0] != '/') return 0;
    if (!strcmp(line, "/quit") || !strcmp(line, "/exit")) return -1;
    if (!strcmp(line, "/new")) {
        if (peer->ops->renew(peer, &err) < 0)
            cli_fail(&err);
        else
            puts("New session.\n");
    } else if (!strcmp(line, "/info")) {
        describe(peer);
        putchar('\n');
    } else if (!strcmp(line, "/help")) {
        puts("/regenerate  another answer to the last message\n"
             "/continue    continue an answer that was cut off\n"
             "/rewind [N]  return to before the last message, or the last N\n"
             "/fork        continue in a copy of the session\n"
             "/new         start a new session\n"
             "/info        show model and session\n"
             "/quit        quit (also Ctrl-D)\n"
             "Ctrl-C stops an answer.\n");
    } else if (!branch(peer, line)) {
        // Other lines that begin with / are messages: a path, a formula. A word alone is a command mistyped.
        if (!line[1] || line[1 + strspn(line + 1, "abcdefghijklmnopqrstuvwxyz")]) return 0;
        if (!strcmp(line, "/regenerate") || !strcmp(line, "/continue")) return 0;
        fprintf(stderr, "parley: no command %s; /help lists them\n", line);
    }
    return 1;
}

static int answer(struct chat_peer *peer, struct chat_call *call, struct err *err) {
    interrupted = 0;
    if (!strcmp(call->text, "/regenerate")) call->what = CHAT_AGAIN;
    if (!strcmp(call->text, "/continue")) call->what = CHAT_CONTINUE;
    if (call->what != CHAT_MESSAGE && !peer->ops->back)
        return err_set(err, E_UNSUPPORTED, NEEDS_SERVER);
    return peer->ops->say(peer, call, err);
}

static int converse(struct chat_peer *peer, struct err *err) {
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    int rc = 0;
    char *line;
    if (terminal) {
        describe(peer);
        puts("/help lists the commands.\n");
    }
    while ((line = read_line(terminal))) {
        struct chat_call call = {.text = line, .print = print, .interrupted = &interrupted};
        int what = line[0] ? command(peer, line) : 1;
        if (what == 0) {
            rc = answer(peer, &call, err);
            putchar('\n');
            if (rc == 0 && terminal) show_stats(&call.stats);
            fflush(stdout);
        }
        free(line);
        if (what < 0) break;
        if (rc == E_CLOSED || (rc < 0 && !terminal)) return rc; // a pipe does not retry
        if (rc < 0) cli_fail(err);
        rc = 0;
        err->code = 0;
        err->text[0] = 0;
    }
    return 0;
}

static int run(void *settings, char **words, struct err *err) {
    const struct chat_settings *s = settings;
    struct chat_peer *peer = NULL;
    struct turn_sampling given = {0}; // checked before loading or connecting
    int bad = sampling_options_apply(&s->sampling, SAMPLING_COMMAND, &given, err);
    turn_sampling_release(&given);
    if (bad < 0) return CLI_USAGE;
    struct sigaction action = {.sa_handler = on_interrupt};
    sigaction(SIGINT, &action, NULL);
    TRY((s->model.model[0] ? chat_engine_open : chat_server_open)(&peer, s, err));
    int rc = converse(peer, err);
    peer->ops->close(peer);
    return rc;
}

const struct cli_command command_chat = {
    .name = "chat",
    .summary = "chat in the terminal, with a running server or a model folder",
    .usage = "chat [--url ws://HOST:PORT/ws | --model MODEL] [OPTIONS]",
    .about = "Sends each line of a terminal or a pipe and prints the answer.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_AUTO},
    .sampling_offset = offsetof(struct chat_settings, sampling),
    .run = run,
};
