// parley sessions: works on the sessions of a database. Reading and importing work while a server
// runs on it; removing and moving away do not.
#include "base/clock.h"
#include "base/json_form.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/backup.h"
#include "sessions/archive/doctor.h"
#include "sessions/state/record_view.h"
#include "ws/cli/cli.h"
#include "ws/cli/terminal.h"
#include "ws/parley/protocol.h"
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct settings {
    char *db, *to, *query, *forked_from, *owner, *output;
    int64_t limit;
    bool json, new_id, keep_owner, repair;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", db, "parley.db", "FILE", "Database file."),
    TEXT("", to, "", "FILE",
         "move: the other server's database, created if missing; a server may run on it."),
    TEXT("", query, "", "WORDS", "list: only sessions that contain all of these words."),
    TEXT("", forked_from, "", "SESSION", "list: only copies of this session."),
    INT("", limit, 0, 1e9, "0", "list: maximum number of sessions; 0 means all."),
    BOOL("", json, "off", "list, show, import, move, doctor: print JSON."),
    BOOL("", new_id, "off", "import: use a new id if the session's own id exists."),
    TEXT("", owner, "", "NAME",
         "import: who owns the session from now on (the name of a token, or local). list, move: "
         "only this owner's sessions. show, export, rm: whose session, if several owners have one "
         "of this id."),
    BOOL("", keep_owner, "off",
         "import: the owner in the file, which anyone can have written, owns the session."),
    TEXT("", output, "", "PATH",
         "export, backup: file to create. doctor: folder to export every readable session to."),
    BOOL("", repair, "off", "doctor: repair faults (not while a server runs on the database)."),
};

// NULL: not given.
static const char *owner_of(const struct settings *s) {
    return s->owner[0] ? s->owner : NULL;
}

static void format_time(int64_t ms, char out[20]) {
    time_t seconds = (time_t)(ms / 1000);
    struct tm tm;
    strftime(out, 20, "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &tm));
}

static const char *plural(int64_t n) {
    return n == 1 ? "" : "s";
}

struct listing {
    struct json_writer *w; // NULL: as text
    int64_t n;
};

static int list_one(void *ctx, const struct session_record *row) {
    struct listing *l = ctx;
    char when[20];
    l->n++;
    if (l->w) {
        struct session_view view;
        record_session_view(row, &view);
        protocol_put_session(l->w, NULL, &view);
    } else {
        format_time(row->updated_ms, when);
        printf("%-32s  %s  %5lld turn%-1s  %7lld token%-1s  ", row->id, when,
               (long long)row->n_turns, plural(row->n_turns), (long long)row->n_tokens,
               plural(row->n_tokens));
        terminal_line(stdout, row->title, strlen(row->title));
    }
    return 0;
}

static int list(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    struct cli_json j;
    struct listing l = {.w = s->json ? &j.w : NULL};
    cli_json_begin(&j);
    json_open(&j.w, "sessions", '[');
    int rc = archive_list(a, owner_of(s), s->query[0] ? s->query : NULL,
                          s->forked_from[0] ? s->forked_from : NULL, s->limit, list_one, &l, err);
    json_close(&j.w, ']');
    if (rc == 0 && s->json) return cli_json_end(&j, err);
    buf_release(&j.out);
    if (rc == 0 && l.n == 0) puts("no sessions");
    return rc;
}

static void show_turn(const struct stored_turn *stored, bool on_path) {
    struct turn_view t;
    char when[20];
    stored_turn_view(stored, &t);
    format_time(t.created_ms, when);
    printf("\n-- turn %lld", (long long)t.turn);
    if (t.parent < 0)
        fputs(" (first)", stdout);
    else if (t.parent != t.turn - 1)
        printf(" after %lld", (long long)t.parent);
    if (!on_path) fputs(", not on the current path", stdout);
    printf(", %s, seed %llu, %lld + %lld tokens, cache %s", when, (unsigned long long)t.seed,
           (long long)t.numbers.input_tokens, (long long)t.numbers.output_tokens,
           engine_cache_source_name(t.numbers.source));
    if (t.numbers.resume_us > 0)
        printf("%s in %.1f ms", t.numbers.source == CACHE_RECOMPUTED ? "" : ", restored",
               (double)t.numbers.resume_us / 1e3);
    if (t.numbers.decode_us > 0)
        printf(", first token %.1f ms, %.0f tokens/s", (double)t.numbers.first_token_us / 1e3,
               (double)(t.numbers.output_tokens - 1) * 1e6 / (double)t.numbers.decode_us);
    if (t.numbers.paused_us > 0)
        printf(", paused for others %.1f ms", (double)t.numbers.paused_us / 1e3);
    printf(", finish reason %s\n", t.finish_reason ? t.finish_reason : "nothing yet");
    fputs("> ", stdout);
    if (t.input.kind == INPUT_CONTINUE)
        puts("(continued)");
    else if (t.input.kind == INPUT_IDS)
        printf("(%zu token ids)\n", t.input.n_ids);
    else
        terminal_line(stdout, t.input.text, t.input.text_len);
    terminal_line(stdout, t.text, t.text_len);
    if (!t.error_message) return;
    fputs("error: ", stdout);
    terminal_line(stdout, t.error_message, strlen(t.error_message));
}

static int show_copy(void *ctx, const struct session_record *copy) {
    if (copy->forked_turn >= 0)
        printf("copied up to turn %lld into %s\n", (long long)copy->forked_turn, copy->id);
    else
        printf("its settings copied into %s\n", copy->id);
    return 0;
}

static bool is_on_path(const struct stored_session *s, int64_t turn) {
    // In a damaged record a parent may have any number, so only smaller ones are followed.
    int64_t at = s->rec.head;
    while (at > turn && at < (int64_t)s->n_turns && s->turns[at].rec.parent < at)
        at = s->turns[at].rec.parent;
    return at == turn;
}

static int show_json(const struct stored_session *stored, const struct session_view *view,
                     struct err *err) {
    struct cli_json j;
    cli_json_begin(&j);
    protocol_put_session(&j.w, "session", view);
    json_open(&j.w, "turns", '[');
    for (size_t i = 0; i < stored->n_turns; i++) {
        struct turn_view t;
        stored_turn_view(&stored->turns[i], &t);
        protocol_put_turn(&j.w, NULL, &t);
    }
    json_close(&j.w, ']');
    return cli_json_end(&j, err);
}

static int show_text(const struct stored_session *stored, const struct session_view *view,
                     struct archive *a, struct err *err) {
    printf("%s: ", view->rec.id);
    terminal_line(stdout, view->rec.title, strlen(view->rec.title));
    terminal_write(stdout, view->rec.model, strlen(view->rec.model));
    printf(", %lld turn%s, %lld of %lld tokens, memory %d with %d sinks\n",
           (long long)view->rec.n_turns, plural(view->rec.n_turns), (long long)view->rec.n_tokens,
           (long long)view->rec.session_len, view->rec.memory_len, view->rec.sink_len);
    if (view->rec.prompt_hash)
        printf("prompt task: %s, %lld virtual tokens, table %s\n",
               view->rec.prompt_task ? view->rec.prompt_task : "a client's own table",
               (long long)view->rec.prompt_rows, view->rec.prompt_hash);
    if (view->rec.system) {
        fputs("system: ", stdout);
        terminal_line(stdout, view->rec.system, strlen(view->rec.system));
    }
    if (view->rec.forked_from)
        printf("forked from %s at turn %lld\n", view->rec.forked_from,
               (long long)view->rec.forked_turn);
    TRY(archive_list(a, stored->rec.owner, NULL, view->rec.id, 0, show_copy, NULL, err));
    for (size_t i = 0; i < stored->n_turns; i++)
        show_turn(&stored->turns[i], is_on_path(stored, (int64_t)i));
    return 0;
}

static int show(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    struct stored_session *stored;
    struct session_view view;
    TRY(archive_load(a, owner_of(s), id, &stored, err));
    record_session_view(&stored->rec, &view);
    int rc = s->json ? show_json(stored, &view, err) : show_text(stored, &view, a, err);
    stored_session_free(stored);
    return rc;
}

static int export(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    struct stored_session *stored;
    struct buf out;
    TRY(archive_load(a, owner_of(s), id, &stored, err));
    if (s->output[0]) {
        int written = archive_export_file(stored, s->output, err);
        stored_session_free(stored);
        return written;
    }
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

static int report_imported(const struct settings *s, const struct session_record *r,
                           struct err *err) {
    struct session_view view;
    struct cli_json j;
    record_session_view(r, &view);
    if (!s->json) {
        printf("imported %s of owner %s into %s: %lld turn%s, %lld token%s\n", r->id, r->owner,
               s->db, (long long)r->n_turns, plural(r->n_turns), (long long)r->n_tokens,
               plural(r->n_tokens));
        return 0;
    }
    cli_json_begin(&j);
    protocol_put_session(&j.w, "session", &view);
    json_put_string(&j.w, "owner", r->owner);
    return cli_json_end(&j, err);
}

// An error in the file's content is prefixed with the file's name. Errors of a database name it
// themselves.
static int read_import(const char *path, struct stored_session **out, struct err *err) {
    bool standard_input = !strcmp(path, "-");
    size_t max = json_limits_file.max_bytes;
    struct err reason = {0};
    struct buf text;
    int rc =
        standard_input ? cli_read_stdin(&text, max, err) : buf_read_file(&text, path, max, err);
    if (rc == 0) {
        int64_t now_ms = clock_wall_us(&clock_system) / 1000;
        rc = archive_read(out, buf_z(&text), text.len, now_ms, &reason);
        if (rc < 0)
            err_set(err, rc, "%s: %s", standard_input ? "standard input" : path, reason.text);
    }
    buf_release(&text);
    return rc;
}

static int import(const struct settings *s, struct archive *a, const char *path, struct err *err) {
    struct stored_session *stored;
    struct archive_import o = {.new_id = s->new_id, .owner = owner_of(s)};
    TRY(read_import(path, &stored, err));
    // A file may name any owner; `local` is who imports: the user of this machine.
    int rc = o.owner || s->keep_owner || strcmp(stored->rec.owner, "local") == 0
                 ? archive_import(s->db, stored, &o, err)
                 : err_set(err, E_INVAL,
                           "the file says that '%.100s' owns the session: --keep-owner imports it "
                           "for that owner, --owner NAME for another",
                           stored->rec.owner);
    if (rc == E_EXISTS && !s->new_id) {
        struct err reason = *err;
        err_set(err, rc, "%s; --new-id imports it under a new id", reason.text);
    }
    if (rc == 0) rc = report_imported(s, &stored->rec, err);
    stored_session_free(stored);
    return rc;
}

static int backup(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    if (!s->output[0]) return cli_usage(err, "--output is missing: the file to create");
    return backup_database(s->db, s->output, cli_progress, "copying", err);
}

static void print_fault(const struct doctor_fault *f) {
    if (f->session) {
        fputs("session ", stdout);
        terminal_write(stdout, f->session, strlen(f->session));
        fputs(": ", stdout);
    }
    terminal_write(stdout, f->what, strlen(f->what));
    puts(f->repaired ? " (repaired)" : "");
}

static void print_report(const struct doctor_report *r) {
    size_t n_repaired = r->n_faults - r->n_left;
    for (size_t i = 0; i < r->n_faults; i++) print_fault(&r->faults[i]);
    printf("%lld session%s, ", (long long)r->n_sessions, plural(r->n_sessions));
    if (r->n_faults == 0)
        fputs("no faults", stdout);
    else
        printf("%zu fault%s, %zu of them repaired", r->n_faults, plural(r->n_faults), n_repaired);
    if (r->n_exported > 0)
        printf(", %lld session%s exported", (long long)r->n_exported, plural(r->n_exported));
    putchar('\n');
}

static int print_report_json(const struct doctor_report *r, struct err *err) {
    struct cli_json j;
    cli_json_begin(&j);
    json_form(&j.w, "sessions:%ld,faults:[", r->n_sessions);
    for (size_t i = 0; i < r->n_faults; i++) {
        json_form(&j.w, "{session:%s,fault:%s,repaired:%hhd}", r->faults[i].session,
                  r->faults[i].what, r->faults[i].repaired);
    }
    json_form(&j.w, "],left:%zu,exported:%ld", r->n_left, r->n_exported);
    return cli_json_end(&j, err);
}

static int doctor(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    struct doctor_report report;
    struct doctor_options o = {.repair = s->repair,
                               .folder = s->output[0] ? s->output : NULL,
                               .progress = cli_progress,
                               .progress_ctx = "examining"};
    int rc = doctor_examine(s->db, &o, &report, err);
    if (rc == 0 && !s->json) print_report(&report);
    if (rc == 0 && s->json) rc = print_report_json(&report, err);
    if (rc == 0 && report.n_left > 0)
        rc = err_set(err, E_CORRUPT, "%s: %zu fault%s%s%s", s->db, report.n_left,
                     plural(report.n_left), s->repair ? " could not be repaired" : "",
                     s->output[0] ? ""
                     : s->repair  ? "; --output FOLDER exports readable sessions"
                                 : "; --repair repairs, --output FOLDER exports readable sessions");
    doctor_report_release(&report);
    return rc;
}

static int rm(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    return archive_remove(s->db, owner_of(s), id, err);
}

static void report_left(void *ctx, const struct session_record *row, const char *why) {
    fprintf(stderr, "parley: session %s of owner %s stays: %s\n", row->id, row->owner, why);
}

static int move(const struct settings *s, struct archive *a, const char *id, struct err *err) {
    struct archive_move o = {.owner = owner_of(s), .id = id, .left = report_left};
    struct archive_moved moved;
    if (!s->to[0]) return cli_usage(err, "--to is missing: the other database");
    TRY(archive_move(s->db, s->to, &o, &moved, err));
    if (s->json)
        printf("{\"moved\":%lld,\"left\":%lld}\n", (long long)moved.n_moved,
               (long long)moved.n_left);
    else
        printf("moved %lld session%s to %s\n", (long long)moved.n_moved, plural(moved.n_moved),
               s->to);
    if (moved.n_left == 0) return 0;
    return err_set(err, E_EXISTS, "%lld session%s stayed in %s", (long long)moved.n_left,
                   plural(moved.n_left), s->db);
}

static const struct action {
    const char *name;
    int (*run)(const struct settings *s, struct archive *a, const char *id, struct err *err);
    const char *takes;   // its word; NULL: none
    bool reads;          // gets an open archive; the others open the database themselves
    const char *options; // beside --db, each between spaces
} actions[] = {
    {"list", list, NULL, true, " owner query forked_from limit json "},
    {"show", show, "a session's id", true, " owner json "},
    {"export", export, "a session's id", true, " owner output json "},
    {"import", import, "a file", false, " owner keep_owner new_id json "},
    {"move", move, NULL, false, " to owner json "},
    {"rm", rm, "a session's id", false, " owner "},
    {"backup", backup, NULL, false, " output "},
    {"doctor", doctor, NULL, false, " output repair json "},
};

static bool is_given(const struct settings *s, const struct config_key *key) {
    const char *at = (const char *)s + key->offset;
    if (key->type == CONFIG_BOOL) return *(const bool *)at;
    if (key->type == CONFIG_INT) return *(const int64_t *)at != 0;
    return (*(char *const *)at)[0] != '\0';
}

// An option that means nothing to the action may have been meant to limit it.
static int check_options(const struct action *x, const struct settings *s, struct err *err) {
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char option[32];
        snprintf(option, sizeof option, " %s ", keys[i].name);
        if (!strcmp(option, " db ") || !is_given(s, &keys[i]) || strstr(x->options, option))
            continue;
        for (char *c = option; *c; c++)
            if (*c == '_') *c = '-';
        option[strlen(option) - 1] = '\0';
        return cli_usage(err, "%s does not take --%s", x->name, option + 1);
    }
    return 0;
}

static const char *action_name(int i) {
    return i < (int)(sizeof actions / sizeof *actions) ? actions[i].name : NULL;
}

static int run(void *settings, char **words, struct err *err) {
    const struct settings *s = settings;
    const int i = cli_word(&command_sessions, words[0]);
    struct archive *a = NULL;
    if (i < 0)
        return cli_unknown_action(words[0],
                                  "list, show, export, import, move, rm, backup or doctor", err);
    const struct action *x = &actions[i];
    if (x->takes && !words[1]) return cli_usage(err, "%s takes %s", x->name, x->takes);
    if (!x->takes && words[1] && x->run != move)
        return cli_usage(err, "%s does not take '%.60s'", x->name, words[1]);
    if (check_options(x, s, err) != 0) return CLI_USAGE;
    if (!s->db[0]) return cli_usage(err, "--db is empty: the server's database file");
    int rc = x->reads ? archive_open(&a, s->db, err) : 0;
    if (rc == 0) rc = x->run(s, a, words[1], err);
    if (a) archive_close(a);
    if (rc < 0 && access(s->db, F_OK) < 0 && errno == ENOENT && strstr(err->text, s->db)) {
        struct err reason = *err;
        err_set(err, rc, "%.300s. --db FILE names the server's database", reason.text);
    }
    return rc;
}

const struct cli_command command_sessions = {
    .name = "sessions",
    .summary = "list, show, move, back up, repair and remove sessions",
    .usage = "sessions list | show|export|rm SESSION | import FILE | move --to FILE | "
             "backup | doctor --db FILE",
    .about =
        "list    list all sessions, newest first\n"
        "show    show one session's turns\n"
        "export  print one session's complete record as JSON, or write it to a new file "
        "(--output)\n"
        "import  import an exported session from a file or from - (standard input); one of another "
        "owner\n"
        "        than local needs --owner or --keep-owner. A server that runs on the database can "
        "open it\n"
        "move    move all sessions (or one, or those of --owner) unchanged to another database; "
        "not\n"
        "        while a server runs on --db. After an interruption the same command finishes it\n"
        "rm      delete one session permanently (not while a server runs on the database)\n"
        "backup  copy the database; a server may run on it\n"
        "doctor  find damage, repair it (--repair), export readable sessions (--output)",
    CLI_SETTINGS(keys),
    .max_words = 2,
    .word = action_name,
    .run = run,
};
