// parley replay: recomputes a recorded session and compares it with the record, or runs it with
// other sampling parameters. It only reads the database, which a running server may use.
#include "sessions/archive/archive.h"
#include "ws/cli/cli.h"
#include "ws/cli/replay_report.h"
#include "ws/version.h"
#include <stdlib.h>
#include <string.h>

struct settings {
    struct model_settings model;
    char *db, *owner, *what_if, *export;
    int64_t turn, from_turn;
    bool json, other_model;
};
#define SETTINGS struct settings
static const struct config_key keys[] = {
    TEXT("", db, "parley.db", "FILE", "Database file."),
    TEXT("", owner, "", "NAME", "Whose session, if several owners have one of this id."),
    INT("", turn, -1, 1e9, "-1", "Replay only this turn (the first is 0); -1 means all."),
    TEXT("", export, "", "FILE",
         "Write the session to this new file instead of replaying it, for `parley sessions "
         "import`."),
    BOOL("", json, "off", "Print one JSON object."),
    TEXT("", what_if, "", "KEY=VALUE,...",
         "Run the session with these sampling parameters in place of the recorded ones and show "
         "both answers. Also takes a JSON object: {\"stop\":[\"a, b\"]}."),
    INT("", from_turn, -1, 1e9, "-1",
        "First turn of --what-if; -1 means the first turn of the current path."),
    BOOL("", other_model, "off", "Continue if the model differs from the recorded one."),
};

// --- what-if's text ----------------------------------------------------------

static int take_pair(struct turn_sampling *to, char *pair, struct err *err) {
    char *value = strchr(pair, '=');
    if (!value || value == pair)
        return err_set(err, E_INVAL, "--what-if takes KEY=VALUE,..., not '%.60s'", pair);
    *value++ = '\0';
    const struct sampling_row *row = sampling_row_find(pair);
    if (!row) return err_set(err, E_INVAL, "there is no sampling parameter '%.60s'", pair);
    return sampling_text_apply(to, row, value, err);
}

// "temperature=0.2,top_p=1" as a JSON object, to be freed. NULL on error.
static char *changes_json(const char *text, struct err *err) {
    struct turn_sampling changes = {0};
    char *copy = strdup(text), *rest = copy, *pair;
    int rc = copy ? 0 : err_set(err, E_NOMEM, "out of memory for --what-if");
    while (rc == 0 && (pair = strsep(&rest, ","))) rc = take_pair(&changes, pair, err);
    free(copy);
    char *json = rc < 0 ? NULL : sampling_json_text(&changes, changes.set, err);
    turn_sampling_release(&changes);
    return json;
}

// --- runs --------------------------------------------------------------------

static int check_turn(const struct stored_session *s, const char *option, int64_t turn,
                      struct err *err) {
    if (turn < (int64_t)s->n_turns) return 0;
    return err_set(err, E_INVAL, "%s %lld: the session has %zu turns, numbered from 0", option,
                   (long long)turn, s->n_turns);
}

// The first turn of the current path; TURN_NONE: no turn. In a damaged record a parent may have any
// number, so only smaller ones are followed.
static int64_t first_of_path(const struct stored_session *s) {
    int64_t at = s->rec.head;
    while (at >= 0 && at < (int64_t)s->n_turns && s->turns[at].rec.parent >= 0 &&
           s->turns[at].rec.parent < at)
        at = s->turns[at].rec.parent;
    return at;
}

static int check_model(const struct settings *s, const struct session_record *r,
                       const struct engine_info *info, struct err *err) {
    if (s->other_model || !strcmp(r->fingerprint, info->fingerprint)) return 0;
    return err_set(
        err, E_INVAL,
        "the session was recorded with model '%.80s' (fingerprint %.40s); this is '%.80s' (%s), a "
        "different model or different weights. --other-model replays it anyway",
        r->model, r->fingerprint, info->model_name, info->fingerprint);
}

// Runs the turns on an engine with the compute_dtype of the record. The turns of one session may have been
// recorded with several.
struct runner {
    struct engine *engine;
    struct replay *replay;
    const char *compute; // the record's; NULL: that of the settings
    char instance[RECORD_INSTANCE_MAX];
};

static void runner_close(struct runner *r) {
    replay_free(r->replay);
    engine_close(r->engine);
    r->replay = NULL;
    r->engine = NULL;
}

// compute: from record_compute_dtype. A device without it computes in f32; the report then says that the
// device differs.
static int runner_open(struct runner *r, const struct settings *s, const char *compute,
                       const struct stored_session *stored, const struct replay_window *w,
                       struct err *err) {
    struct model_settings m = s->model;
    char recorded[8], f32[] = "f32";
    snprintf(recorded, sizeof recorded, "%s", compute ? compute : "");
    if (compute) m.compute_dtype = recorded;
    r->compute = compute;
    // A cache with room for the log, each branch, and a search's best.
    int n_branches = replay_branches(stored), places = n_branches > 1 ? n_branches + 2 : 1;
    int rc = cli_engine_open(&r->engine, &m, places, err);
    if (rc == E_UNSUPPORTED && compute && strcmp(compute, f32) != 0) {
        m.compute_dtype = f32;
        *err = (struct err){0};
        rc = cli_engine_open(&r->engine, &m, places, err);
    }
    TRY(rc);
    record_instance(r->instance, engine_info(r->engine));
    return replay_new(&r->replay, r->engine, stored, w, err);
}

// The compute_dtype of a recorded turn; NULL if the user set one.
static const char *compute_of(const struct settings *s, const struct stored_session *stored,
                              size_t turn) {
    if (s->model.compute_dtype[0] || turn >= stored->n_turns) return NULL;
    return record_compute_dtype(stored->turns[turn].rec.instance);
}

static bool same_compute(const char *a, const char *b) {
    return a == b || (a && b && !strcmp(a, b));
}

static int verify(const struct settings *s, struct runner *r, struct replay_report *report,
                  const struct replay_window *w, bool *equal, struct err *err) {
    const struct stored_session *stored = report->stored;
    size_t first = s->turn < 0 ? 0 : (size_t)s->turn;
    size_t end = s->turn < 0 ? stored->n_turns : first + 1;
    struct replay_turn found;
    replay_report_begin(report);
    for (size_t i = first; i < end; i++) {
        const char *compute = compute_of(s, stored, i);
        if (!same_compute(compute, r->compute)) {
            runner_close(r);
            TRY(runner_open(r, s, compute, stored, w, err));
            replay_report_now(report, r->engine, r->instance);
        }
        // Alternatives are computed for the first divergence only: later ones may follow from it,
        // and each costs a prefill.
        TRY(replay_one(r->replay, i, !report->has_first, &found, err));
        replay_report_turn(report, &stored->turns[i], &found);
        cli_progress("replaying", (int64_t)(i - first + 1), (int64_t)(end - first));
    }
    return replay_report_end(report, equal, err);
}

static int what_if(const struct settings *s, struct replay *r, struct replay_report *report,
                   const char *changes, bool *done, struct err *err) {
    struct replay_pair pair;
    int rc;
    TRY(replay_what_if(r, s->from_turn, changes, err));
    what_if_report_begin(report, changes, s->from_turn);
    *done = true;
    while ((rc = replay_next(r, &pair, err)) == 1) {
        what_if_report_pair(report, &pair);
        *done = *done && !pair.failed;
    }
    return rc < 0 ? rc : what_if_report_end(report, err);
}

static int with_engine(struct settings *s, const struct stored_session *stored, struct runner *r,
                       const struct replay_window *w, const char *changes, bool *good,
                       struct err *err) {
    char build[VERSION_BUILD_MAX];
    const struct engine_info *info = engine_info(r->engine);
    char *model = strdup(info->model_name), *fingerprint = strdup(info->fingerprint);
    int rc = model && fingerprint ? check_model(s, &stored->rec, info, err)
                                  : err_set(err, E_NOMEM, "out of memory");
    version_build(build);
    struct replay_report report = {
        .json = s->json,
        .engine = r->engine,
        .stored = stored,
        .now = {model, fingerprint, build, r->instance},
    };
    if (rc == 0)
        rc = changes ? what_if(s, r->replay, &report, changes, good, err)
                     : verify(s, r, &report, w, good, err);
    if (rc < 0) buf_release(&report.out.out);
    free(model);
    free(fingerprint);
    return rc;
}

// Window and compute_dtype are those of the record.
static int replay(struct settings *s, const char *id, const char *changes, bool *good,
                  struct err *err) {
    struct archive *a;
    struct stored_session *stored;
    struct runner r = {0};
    struct replay_window w;
    TRY(archive_open(&a, s->db, err));
    int rc = archive_load(a, s->owner[0] ? s->owner : NULL, id, &stored, err);
    archive_close(a); // later changes of the database do not matter
    TRY(rc);
    if (s->export[0]) {
        rc = archive_export_file(stored, s->export, err);
        *good = rc == 0;
        goto out;
    }
    TRY_GOTO(out, changes ? check_turn(stored, "--from-turn", s->from_turn, err)
                          : check_turn(stored, "--turn", s->turn, err));
    if (changes && s->from_turn < 0) s->from_turn = first_of_path(stored);
    replay_window(stored, changes, &w);
    s->model.session_len = w.session_len;
    s->model.memory_len = w.memory_len;
    int64_t turn = changes ? s->from_turn : s->turn;
    rc = runner_open(&r, s, compute_of(s, stored, turn < 0 ? 0 : (size_t)turn), stored, &w, err);
    if (rc == 0) rc = with_engine(s, stored, &r, &w, changes, good, err);
    runner_close(&r);
out:
    stored_session_free(stored);
    return rc;
}

static int check_usage(const struct settings *s, const char *id, struct err *err) {
    const struct model_settings *m = &s->model;
    if (!id)
        return cli_usage(err, "the session's id is missing; `parley sessions list` shows the ids");
    if (s->export[0] && (s->what_if[0] || s->turn >= 0 || s->from_turn >= 0))
        return cli_usage(
            err, "--export writes the whole session; it takes no --turn, --from-turn or --what-if");
    if (!m->model[0] && !s->export[0]) return cli_usage(err, CLI_NO_MODEL);
    if (m->memory_len || m->sink_len != -1 || m->session_len)
        return cli_usage(err, "--memory-len, --sink-len and --session-len come from the record");
    if (s->what_if[0] && s->turn >= 0)
        return cli_usage(err, "use --from-turn with --what-if, not --turn");
    if (!s->what_if[0] && s->from_turn >= 0) return cli_usage(err, "--from-turn needs --what-if");
    return CLI_OK;
}

static int run(void *settings, char **words, struct err *err) {
    struct settings *s = settings;
    char *changes = NULL;
    bool good = false;
    int rc = check_usage(s, words[0], err);
    if (rc != CLI_OK) return rc;
    if (s->what_if[0]) {
        changes = s->what_if[0] == '{' ? strdup(s->what_if) : changes_json(s->what_if, err);
        if (!changes || replay_check_changes(changes, INT32_MAX, err) < 0) rc = CLI_USAGE;
    }
    if (rc == CLI_OK) rc = replay(s, words[0], changes, &good, err);
    free(changes);
    return rc == 0 && !good ? CLI_FAILED : rc;
}

const struct cli_command command_replay = {
    .name = "replay",
    .summary = "recompute a recorded session and compare every bit, or ask what if",
    .usage = "replay SESSION --db FILE --model MODEL [OPTIONS]",
    .about = "Recomputes the recorded turns from an empty cache, each on the recorded log, with "
             "the\n"
             "recorded window, sampling parameters and seeds, and compares every token and every\n"
             "bit of every log-probability. Exit status: 0 all equal, 1 something diverged or\n"
             "failed, 2 wrong usage. With --what-if: 0 if all turns ran. Only reads the database.",
    CLI_SETTINGS(keys),
    .compute = {CLI_COMPUTE_RECORDED},
    .max_words = 1,
    .run = run,
};
