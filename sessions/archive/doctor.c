// See doctor.h.
//
// An examination finds the faults. After a repair a second one runs; a fault that it does not find
// is repaired. SQLite checks the structure of the file, of which only indexes can be rebuilt. A
// file with other damage stays as it is; its sessions can be exported to the folder.
#include "sessions/archive/doctor.h"
#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/check.h"
#include "sessions/archive/repair.h"
#include "sessions/store/read.h"
#include "sessions/store/recover.h"
#include "sessions/store/tail.h"
#include "sessions/store/words.h"
#include "sessions/store/write.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_FAULTS 10000 // of one report

struct id {
    int64_t key;
    char *id;
    bool again; // another owner before it has a session of this id
};
struct examination {
    struct store_db *db;
    const struct doctor_options *o;
    struct doctor_report *report;
    struct id *ids; // (n_ids) every session
    size_t n_ids;
    bool words_wrong, file_damaged;
};

void doctor_report_release(struct doctor_report *r) {
    for (size_t i = 0; i < r->n_faults; i++) {
        free(r->faults[i].session);
        free(r->faults[i].what);
    }
    free(r->faults);
    *r = (struct doctor_report){0};
}

static int fault(struct examination *x, const char *session, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static int fault(struct examination *x, const char *session, const char *fmt, ...) {
    struct doctor_report *r = x->report;
    if (r->n_faults == MAX_FAULTS) return 0;
    TRY(ARRAY_RESIZE(r->faults, r->n_faults + 1));
    struct doctor_fault *f = &r->faults[r->n_faults++];
    *f = (struct doctor_fault){.session = session ? strdup(session) : NULL};
    va_list ap;
    va_start(ap, fmt);
    if (vasprintf(&f->what, fmt, ap) < 0) f->what = NULL;
    va_end(ap);
    r->n_left++;
    return f->what && (!session || f->session) ? 0 : E_NOMEM;
}

// --- the file ----------------------------------------------------------------

static int check_structure(struct examination *x) {
    sqlite3_stmt *s;
    int rc = 0;
    if (sqlite3_prepare_v2(x->db->sql, "PRAGMA integrity_check(100)", -1, &s, NULL) != SQLITE_OK) {
        x->file_damaged = true;
        return fault(x, NULL, "%s", sqlite3_errmsg(x->db->sql));
    }
    int step;
    while (rc == 0 && (step = sqlite3_step(s)) == SQLITE_ROW) {
        const char *text = (const char *)sqlite3_column_text(s, 0);
        if (!text || strcmp(text, "ok") == 0) continue;
        x->file_damaged = true;
        rc = fault(x, NULL, "%s", text);
    }
    if (rc == 0 && step != SQLITE_DONE) {
        x->file_damaged = true;
        rc = fault(x, NULL, "%s", sqlite3_errmsg(x->db->sql));
    }
    sqlite3_finalize(s);
    return rc;
}

// Each query counts rows that should not be.
static const struct rule {
    const char *what, *count;
    const char *repair; // NULL: the index of words is rebuilt
} rules[] = {
    {"sessions name a model that is not there",
     "SELECT count(*) FROM sessions WHERE model NOT IN (SELECT key FROM models)",
     "INSERT INTO models (key, fingerprint, name) SELECT DISTINCT model, 'unknown-' || model, "
     "'unknown' FROM sessions WHERE model NOT IN (SELECT key FROM models)"},
    {"turns belong to no session",
     "SELECT count(*) FROM turns WHERE session NOT IN (SELECT key FROM sessions)",
     "DELETE FROM turns WHERE session NOT IN (SELECT key FROM sessions)"},
    {"events belong to no session",
     "SELECT count(*) FROM events WHERE session NOT IN (SELECT key FROM sessions)",
     "DELETE FROM events WHERE session NOT IN (SELECT key FROM sessions)"},
    {"rows of tokens belong to no turn",
     "SELECT count(*) FROM tokens p WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.session = "
     "p.session AND t.turn = p.turn)",
     "DELETE FROM tokens WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.session = tokens.session "
     "AND t.turn = tokens.turn)"},
    {"titles are not in the index of words",
     "SELECT count(*) FROM sessions s WHERE NOT EXISTS (SELECT 1 FROM search WHERE rowid = -s.key "
     "AND substr(words, 2) = substr(" STORE_TITLE_WORDS ", 2))",
     NULL},
    {"turns are not in the index of words",
     "SELECT count(*) FROM turns t JOIN sessions s ON s.key = t.session WHERE NOT EXISTS (SELECT 1 "
     "FROM search WHERE rowid = t.key AND (t.finish_reason IS NULL OR "
     "substr(words, 2) = substr(" STORE_TURN_WORDS ", 2)))",
     NULL},
    {"entries of the index of words are of nothing",
     "SELECT count(*) FROM search WHERE (rowid > 0 AND rowid NOT IN (SELECT key FROM turns)) OR "
     "(rowid <= 0 AND -rowid NOT IN (SELECT key FROM sessions))",
     NULL},
};
#define N_RULES (sizeof rules / sizeof *rules)

static int check_rules(struct examination *x) {
    for (size_t i = 0; i < N_RULES; i++) {
        struct err reason = {0};
        int64_t n = 0;
        if (store_db_int(x->db, rules[i].count, &n, &reason) < 0)
            TRY(fault(x, NULL, "whether %s cannot be checked: %s", rules[i].what, reason.text));
        if (n == 0) continue;
        if (!rules[i].repair) x->words_wrong = true;
        TRY(fault(x, NULL, "%" PRId64 " %s", n, rules[i].what));
    }
    return 0;
}

// --- sessions ----------------------------------------------------------------

static int list_sessions(struct examination *x, struct err *err) {
    sqlite3_stmt *s;
    if (sqlite3_prepare_v2(x->db->sql,
                           "SELECT key, id, row_number() OVER (PARTITION BY id ORDER BY key) > 1 "
                           "FROM sessions ORDER BY key",
                           -1, &s, NULL) != SQLITE_OK)
        return store_db_error(x->db, err);
    int rc = 0;
    while (rc == 0 && sqlite3_step(s) == SQLITE_ROW) {
        const char *id = (const char *)sqlite3_column_text(s, 1);
        if (!id) {
            rc = fault(x, NULL, "session number %" PRId64 " has no id that can be read",
                       (int64_t)sqlite3_column_int64(s, 0));
            continue;
        }
        char *copy = ARRAY_RESIZE(x->ids, x->n_ids + 1) == 0 ? strdup(id) : NULL;
        if (!copy)
            rc = err_set(err, E_NOMEM, "no memory to list the sessions");
        else
            x->ids[x->n_ids++] =
                (struct id){sqlite3_column_int64(s, 0), copy, sqlite3_column_int(s, 2)};
    }
    sqlite3_finalize(s); // check_structure reports damage
    x->report->n_sessions = (int64_t)x->n_ids;
    return rc;
}

static int64_t now_ms(void) {
    return clock_wall_us(&clock_system) / 1000;
}

static int load_sound(struct store_db *db, int64_t key, struct stored_session **out,
                      struct err *reason) {
    TRY(store_read_session(db, key, out, reason));
    int rc = stored_session_interrupt(*out, now_ms(), reason);
    if (rc == 0) rc = stored_session_check(*out, reason);
    if (rc < 0) stored_session_free(*out);
    return rc;
}

static int load_salvaged(struct store_db *db, int64_t key, struct stored_session **out,
                         struct err *reason) {
    db->salvage = true;
    int rc = store_read_session(db, key, out, reason);
    db->salvage = false;
    if (rc < 0) return rc;
    rc = stored_session_repair(*out, now_ms(), reason);
    if (rc < 0) stored_session_free(*out);
    return rc;
}

static int export_session(struct examination *x, const struct stored_session *s,
                          const struct id *id, struct err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.json", x->o->folder, id->id);
    if (!session_id_valid(id->id) || id->again)
        snprintf(path, sizeof path, "%s/number-%" PRId64 ".json", x->o->folder, id->key);
    TRY(archive_export_file(s, path, err));
    x->report->n_exported++;
    return 0;
}

static int examine_session(struct examination *x, const struct id *id, bool to_folder,
                           struct err *err) {
    struct stored_session *s;
    struct err reason = {0};
    int rc = load_sound(x->db, id->key, &s, &reason);
    if (rc < 0) TRY(fault(x, id->id, "%s", reason.text));
    if (rc < 0 && to_folder) rc = load_salvaged(x->db, id->key, &s, &reason);
    if (rc < 0) return 0;
    rc = to_folder ? export_session(x, s, id, err) : 0;
    stored_session_free(s);
    return rc;
}

static int examine(struct examination *x, bool to_folder, struct err *err) {
    TRY(check_structure(x));
    TRY(check_rules(x));
    TRY(list_sessions(x, err));
    for (size_t i = 0; i < x->n_ids; i++) {
        TRY(examine_session(x, &x->ids[i], to_folder, err));
        if (x->o->progress) x->o->progress(x->o->progress_ctx, (int64_t)i + 1, (int64_t)x->n_ids);
    }
    return 0;
}

static void examination_release(struct examination *x) {
    for (size_t i = 0; i < x->n_ids; i++) free(x->ids[i].id);
    free(x->ids);
}

// --- repairs -----------------------------------------------------------------

// Deletes the session and inserts it repaired, under its number and id. The index is rebuilt later.
static int repair_session(struct store_db *db, const struct id *id, struct err *err) {
    struct stored_session *s;
    struct err reason = {0};
    if (load_sound(db, id->key, &s, &reason) == 0) {
        stored_session_free(s);
        return 0;
    }
    if (load_salvaged(db, id->key, &s, &reason) < 0) return 0; // stays, and is reported again
    int rc = store_write_delete(db, id->key, err);
    if (rc == 0) rc = store_write_session(db, s, err);
    stored_session_free(s);
    return rc;
}

static int repair_rows(struct store_db *db, void *ctx, struct err *err) {
    struct examination *x = ctx;
    // First: a stale entry may have the number of a row that is inserted below.
    TRY(store_words_clear(db, err));
    for (size_t i = 0; i < N_RULES; i++)
        if (rules[i].repair) TRY(store_db_exec(db, rules[i].repair, err));
    for (size_t i = 0; i < x->n_ids; i++) TRY(repair_session(db, &x->ids[i], err));
    TRY(store_words_clear(db, err));
    return store_words_fill(db, err);
}

static int make_indexes_anew(struct store_db *db, void *ctx, struct err *err) {
    return store_db_exec(db, "REINDEX", err);
}

static bool is_sound(struct store_db *db) {
    char verdict[8];
    int rc = store_db_text(db, "PRAGMA integrity_check(1)", verdict, sizeof verdict, NULL);
    return rc == 0 && strcmp(verdict, "ok") == 0;
}

// A repair that fails is one more fault of the report.
static int repair(struct examination *x) {
    struct err reason = {0};
    int64_t n;
    if (x->file_damaged &&
        (store_db_transaction(x->db, make_indexes_anew, NULL, &reason) < 0 || !is_sound(x->db)))
        return fault(x, NULL,
                     "the file itself is damaged and was left as it is: take what can be read out "
                     "of it (--output FOLDER) and import that into a new database");
    int rc = tail_recover(x->db, &n, &reason);
    if (rc == 0) rc = store_db_transaction(x->db, repair_rows, x, &reason);
    if (rc == 0) rc = store_recover(x->db, now_ms(), &n, &reason);
    return rc < 0 ? fault(x, NULL, "cannot be repaired: %s", reason.text) : 0;
}

static bool same_fault(const struct doctor_fault *a, const struct doctor_fault *b) {
    if (!a->session != !b->session) return false;
    return a->session ? strcmp(a->session, b->session) == 0 : strcmp(a->what, b->what) == 0;
}

// Marks which of the first n faults, found before the repair, are gone.
static void compare(struct doctor_report *before, size_t n, const struct doctor_report *after) {
    for (size_t i = 0; i < n; i++) {
        bool left = false;
        for (size_t k = 0; k < after->n_faults && !left; k++)
            left = same_fault(&before->faults[i], &after->faults[k]);
        before->faults[i].repaired = !left;
        if (!left) before->n_left--;
    }
}

static int repair_and_compare(struct examination *x, struct err *err) {
    struct doctor_report after = {0};
    struct examination again = {.db = x->db, .o = x->o, .report = &after};
    size_t n_found = x->report->n_faults;
    TRY(repair(x));
    int rc = examine(&again, false, err);
    if (rc == 0) compare(x->report, n_found, &after);
    examination_release(&again);
    doctor_report_release(&after);
    return rc;
}

int doctor_examine(const char *path, const struct doctor_options *o, struct doctor_report *out,
                   struct err *err) {
    struct store_db db;
    struct examination x = {.db = &db, .o = o, .report = out};
    struct err local = {0};
    if (!err) err = &local;
    *out = (struct doctor_report){0};
    if (o->folder && mkdir(o->folder, 0700) < 0 && errno != EEXIST)
        return err_errno(err, "%s", o->folder);
    int rc =
        o->repair ? store_db_open_damaged(&db, path, err) : store_db_open_salvage(&db, path, err);
    if (rc == E_CORRUPT && o->repair)
        err_set(
            err, rc,
            "%s: the file itself is damaged, and is left as it is: take what can be read out of "
            "it (--output FOLDER without --repair) and import that into a new database",
            path);
    if (rc < 0) return rc;
    rc = examine(&x, o->folder != NULL, err);
    if (rc == 0 && o->repair && out->n_faults > 0) rc = repair_and_compare(&x, err);
    if (rc == E_NOMEM && !err->code) err_set(err, rc, "no memory to examine %s", path);
    examination_release(&x);
    store_db_close(&db, o->repair);
    return rc;
}
