// See rules.h.
#include "sessions/archive/rules.h"
#include "base/err.h"
#include "base/utf8.h"
#include "sessions/store/record.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SAMPLING_BYTES 65536

static bool is_text(const char *s, int64_t min, int64_t max) {
    size_t n = strnlen(s, (size_t)max + 1);
    return n >= (size_t)min && n <= (size_t)max && utf8_valid(s, n);
}

static bool is_end(const char *reason) {
    for (int i = 0; i < N_TURN_FINISHES; i++)
        if (strcmp(reason, turn_finish_names[i]) == 0) return true;
    return false;
}

static int check_number(const char *where, const struct column *c, int64_t v, struct err *err) {
    if (v >= c->min && v <= column_max(c)) return 0;
    return err_set(err, E_CORRUPT, "%s%s is %" PRId64 ", not from %" PRId64 " to %" PRId64, where,
                   column_name(c), v, c->min, column_max(c));
}

// Which ids the model has is for its server to know.
static int check_sampling(const char *where, const struct column *c, const char *json,
                          struct err *err) {
    struct turn_sampling read = {0};
    struct err reason = {0};
    if (!is_text(json, 0, SAMPLING_BYTES))
        return err_set(err, E_CORRUPT, "%s%s is not a text of at most %d bytes", where,
                       column_name(c), SAMPLING_BYTES);
    int rc = sampling_json_apply(&read, json, INT32_MAX, &reason);
    turn_sampling_release(&read);
    if (rc == 0) return 0;
    return err_set(err, E_CORRUPT, "%s%s: %s", where, column_name(c), reason.text);
}

static int check_text(const char *where, const struct column *c, const char *s, struct err *err) {
    const char *name = column_name(c);
    if (!s)
        return c->flags & COLUMN_NULL ? 0 : err_set(err, E_CORRUPT, "%s%s is missing", where, name);
    if (c->rule == RULE_SAMPLING) return check_sampling(where, c, s, err);
    if (c->rule == RULE_ID && !session_id_valid(s))
        return err_set(err, E_CORRUPT, "%s%s is not 1 to %d letters, digits, '-' or '_'", where,
                       name, SESSION_ID_MAX);
    if (c->rule == RULE_FOLDER && !session_folder_valid(s))
        return err_set(
            err, E_CORRUPT,
            "%s%s is not a text of 1 to %d characters, one of them visible, without control "
            "characters",
            where, name, SESSION_FOLDER_CHARS);
    if (c->type == COLUMN_OBJECT && s[0] != '{')
        return err_set(err, E_CORRUPT, "%s%s is no object", where, name);
    if (c->max && !is_text(s, c->min, c->max))
        return err_set(err, E_CORRUPT,
                       "%s%s is not a text of %" PRId64 " to %" PRId64 " bytes of UTF-8", where,
                       name, c->min, c->max);
    return 0;
}

static int check_column(const char *where, const struct column *c, const void *record,
                        struct err *err) {
    const void *p = column_field(c, record);
    switch (c->type) {
    case COLUMN_INT:
        return check_number(where, c, *(const int64_t *)p, err);
    case COLUMN_INT32:
        return check_number(where, c, *(const int32_t *)p, err);
    case COLUMN_TEXT:
    case COLUMN_OBJECT:
        return check_text(where, c, column_pointer(c, record), err);
    case COLUMN_SHORT:
        if (c->rule != RULE_END || is_end(p)) return 0;
        return err_set(err, E_CORRUPT, "%s%s is none that a turn can have", where, column_name(c));
    default: // any value is one
        return 0;
    }
}

static bool has_rule(const struct column *c) {
    return column_has_field(c) && !(c->flags & COLUMN_UNSENT);
}

int rules_check(const char *where, const struct record_table *t, const void *record,
                struct err *err) {
    for (size_t i = 0; i < t->n; i++)
        if (has_rule(&t->columns[i])) TRY(check_column(where, &t->columns[i], record, err));
    return 0;
}

static void put_fallback(const struct column *c, void *record, bool *failed) {
    void *p = column_field(c, record);
    const char *text = c->fallback_text || (c->flags & COLUMN_NULL) ? c->fallback_text : "";
    if (c->type == COLUMN_INT) *(int64_t *)p = c->fallback;
    if (c->type == COLUMN_INT32) *(int32_t *)p = (int32_t)c->fallback;
    if (c->type == COLUMN_SHORT) snprintf(p, c->len, "%s", text);
    if (c->type != COLUMN_TEXT && c->type != COLUMN_OBJECT) return;
    free(column_pointer(c, record));
    column_set_pointer(c, record, record_strdup(text, failed));
}

void rules_repair(const struct record_table *t, void *record, bool *failed) {
    for (size_t i = 0; i < t->n; i++) {
        const struct column *c = &t->columns[i];
        bool may = has_rule(c) && !(c->flags & COLUMN_IDENTITY);
        if (may && check_column("", c, record, NULL) < 0) put_fallback(c, record, failed);
    }
}
