// parley sessions: what a database holds, for people and programs. Reading goes on beside a running
// server; removing needs the database to itself.
#include "base/json.h"
#include "sessions/archive.h"
#include "ws/cli/cli.h"
#include "ws/protocol.h"
#include <string.h>
#include <time.h>

struct settings {
    char *db, *query;
    int64_t limit;
    bool json;
};
static const struct config_key keys[] = {
    {"", "db", CONFIG_STRING, offsetof(struct settings, db), 0, 0, "FILE", "parley.db",
     "Database file.", 0},
    {"", "query", CONFIG_STRING, offsetof(struct settings, query), 0, 0, "WORDS", "",
     "list: only sessions that hold all of these words.", 0},
    {"", "limit", CONFIG_INT, offsetof(struct settings, limit), 0, 1e9, 0, "0",
     "list: at most so many; 0 is all.", 0},
    {"", "json", CONFIG_BOOL, offsetof(struct settings, json), 0, 0, 0, "off",
     "list, show: print JSON.", 0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

static void format_time(int64_t ms, char out[20]) {
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    strftime(out, 20, "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &tm));
}

struct listing {
    struct json_writer *w; // NULL: as text
    int64_t n;
};

static int list_one(void *ctx, const char *owner, const struct session_view *view) {
    struct listing *l = ctx;
    char when[20];
    l->n++;
    if (l->w) {
        protocol_put_session(l->w, NULL, view);
    } else {
        format_time(view->updated_ms, when);
        printf("%-32s  %s  %5lld turns  %7lld tokens  %s\n", view->id, when,
               (long long)view->n_turns, (long long)view->n_tokens, view->title);
    }
    return 0;
}

static int list(const struct settings *s, struct archive *a, struct err *err) {
    struct buf out;
    struct json_writer w;
    struct listing l = {.w = s->json ? &w : NULL};
    buf_init(&out, 1 << 30);
    json_writer_init(&w, &out);
    json_open(&w, NULL, '{');
    json_open(&w, "sessions", '[');
    int rc = archive_list(a, NULL, s->query[0] ? s->query : NULL, s->limit, list_one, &l, err);
    json_close(&w, ']');
    json_close(&w, '}');
    if (rc == 0 && out.error) rc = err_set(err, out.error, "the list is too long to hold");
    if (rc == 0 && s->json)
        cli_print_json(&out);
    else
        buf_release(&out);
    if (rc == 0 && !s->json && l.n == 0) puts("no sessions");
    return rc;
}

static void show_turn(const struct stored_turn *stored) {
    struct turn_view t;
    char when[20];
    archive_turn_view(stored, &t);
    format_time(t.created_ms, when);
    printf("\n-- turn %lld, %s, seed %llu, %lld + %lld tokens, cache %s", (long long)t.turn, when,
           (unsigned long long)t.seed, (long long)t.numbers.input_tokens,
           (long long)t.numbers.output_tokens, engine_cache_source_name(t.numbers.source));
    if (t.numbers.decode_us > 0)
        printf(", first token %.1f ms, %.0f tokens/s", (double)t.numbers.first_token_us / 1e3,
               (double)(t.numbers.output_tokens - 1) * 1e6 / (double)t.numbers.decode_us);
    printf(", ended by %s\n", t.finish_reason ? t.finish_reason : "nothing yet");
    if (t.input.kind == INPUT_IDS)
        printf("> (%zu token ids)\n", t.input.n_ids);
    else
        printf("> %.*s\n", (int)t.input.text_len, t.input.text);
    printf("%.*s\n", (int)t.text_len, t.text);
    if (t.error_message) printf("(error: %s)\n", t.error_message);
}

static int show(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    struct stored_session *stored;
    struct session_view view;
    TRY(archive_load(a, id, &stored, err));
    archive_session_view(&stored->rec, &view);
    if (s->json) {
        struct buf out;
        struct json_writer w;
        buf_init(&out, 1 << 30);
        json_writer_init(&w, &out);
        json_open(&w, NULL, '{');
        protocol_put_session(&w, "session", &view);
        json_open(&w, "turns", '[');
        for (size_t i = 0; i < stored->n_turns; i++) {
            struct turn_view t;
            archive_turn_view(&stored->turns[i], &t);
            protocol_put_turn(&w, &t);
        }
        json_close(&w, ']');
        json_close(&w, '}');
        cli_print_json(&out);
    } else {
        printf("%s: %s\n%s, %lld turns, %lld of %lld tokens, memory %d with %d sinks\n", view.id,
               view.title, view.model, (long long)view.n_turns, (long long)view.n_tokens,
               (long long)view.session_len, view.memory_len, view.sink_len);
        if (view.system) printf("system: %s\n", view.system);
        for (size_t i = 0; i < stored->n_turns; i++) show_turn(&stored->turns[i]);
    }
    stored_session_free(stored);
    return 0;
}

static int export(struct archive *a, const char *id, struct err *err) {
    struct stored_session *stored;
    struct buf out;
    TRY(archive_load(a, id, &stored, err));
    buf_init(&out, (size_t)1 << 31);
    int rc = archive_export(stored, &out);
    if (rc < 0)
        err_set(err, rc, "session %s is too large to export", id);
    else
        cli_print_json(&out);
    if (rc < 0) buf_release(&out);
    stored_session_free(stored);
    return rc;
}

static int run(const struct settings *s, const char *verb, const char *id, struct err *err) {
    struct archive *a;
    if (!strcmp(verb, "rm")) return archive_remove(s->db, id, err);
    TRY(archive_open(&a, s->db, err));
    int rc = !strcmp(verb, "list")   ? list(s, a, err)
             : !strcmp(verb, "show") ? show(s, a, id, err)
                                     : export(a, id, err);
    archive_close(a);
    return rc;
}

int main_sessions(int argc, char **argv) {
    struct settings s;
    struct err err = {0};
    char *words[2] = {NULL, NULL};
    int n_words,
        rc = cli_parse(
            &table, &s, argc, argv, "sessions list|show|export|rm [SESSION] --db FILE [--json]",
            "list    all sessions, newest first\n"
            "show    one session's turns\n"
            "export  one session with everything recorded, as JSON\n"
            "rm      remove one session for good (not while a server runs on the database)",
            words, 2, &n_words);
    if (rc != CLI_PARSED) return rc == CLI_HELP_SHOWN ? CLI_OK : rc;
    const char *verb = words[0] ? words[0] : "";
    bool is_list = !strcmp(verb, "list");
    if (!is_list && strcmp(verb, "show") && strcmp(verb, "export") && strcmp(verb, "rm"))
        rc = cli_usage(argv[0], "say what to do: list, show, export or rm");
    else if (!is_list && !words[1])
        rc = cli_usage(argv[0], "%s takes a session's id", verb);
    else
        rc = run(&s, verb, words[1], &err) < 0 ? cli_fail(&err) : CLI_OK;
    config_release(&table, &s);
    return rc;
}
