// See columns.h. A table's rows stand in the order of an exported file.
#include "sessions/store/columns.h"
#include "base/buf.h"
#include "base/err.h"
#include "sessions/store/record.h"
#include <stdlib.h>
#include <string.h>

#define NAME_BYTES 1024 // models, fingerprints, owners, instances, builds
#define MESSAGE_BYTES 65536
#define MEMORY_LEN 4096 // of a session that does not say

static const char *input_kind_name(int kind) {
    return kind <= INPUT_CONTINUE ? turn_input_kind_name((enum turn_input_kind)kind) : NULL;
}

static const char *cache_source_name(int source) {
    return source <= CACHE_SNAPSHOT ? engine_cache_source_name((enum engine_cache_source)source)
                                    : NULL;
}

static const char *kind_name(int kind) {
    return kind < EVENT_KINDS ? event_kind_name(kind) : NULL;
}

#define NUMBER "INTEGER NOT NULL"
#define WORDS "TEXT NOT NULL"
#define DATA "BLOB NOT NULL"
#define OF_SESSION "INTEGER NOT NULL REFERENCES sessions(key) ON DELETE CASCADE"

// A row: name, declaration, type, since which version. The record's field is named like the column
// (C), has another name (F), or there is none (N).
#define C(name, ...) F(name, name, __VA_ARGS__)
#define F(name, field, ...) ROW(name, __VA_ARGS__, .at = offsetof(struct RECORD, field))
#define N(name, ...) ROW(name, __VA_ARGS__, .at = 0)
#define ROW(name, decl, type, ...)                                                                 \
    { ":" #name, decl, COLUMN_##type, __VA_ARGS__ }
#define COUNT(field) .len = offsetof(struct RECORD, field)
#define SIZE(field) .len = sizeof((struct RECORD *)NULL)->field
enum {
    FIXED = COLUMN_FIXED,
    UNSENT = COLUMN_UNSENT,
    IDENTITY = COLUMN_IDENTITY,
    LATE = COLUMN_LATE,
    NULLABLE = COLUMN_NULL,
    SPARSE = COLUMN_SPARSE,
};

static const struct column models[] = {
    N(key, "INTEGER PRIMARY KEY", ROWID, 1),
    N(fingerprint, "TEXT NOT NULL UNIQUE", PLACE, 1),
    N(name, WORDS, PLACE, 1),
};

#undef RECORD
#define RECORD session_record
static const struct column sessions[] = {
    C(key, "INTEGER PRIMARY KEY", INT, 1, .flags = FIXED | UNSENT),
    C(id, WORDS, TEXT, 1, .flags = FIXED | IDENTITY, .rule = RULE_ID),
    C(owner, WORDS, TEXT, 1, .flags = FIXED | IDENTITY, .min = 1, .max = NAME_BYTES),
    C(model, "INTEGER NOT NULL REFERENCES models(key)", TEXT, 1, .flags = FIXED | IDENTITY,
      .max = NAME_BYTES, .read = "m.name",
      .write = "(SELECT key FROM models WHERE fingerprint = :fingerprint)"),
    C(fingerprint, NULL, TEXT, 1, .flags = IDENTITY, .min = 1, .max = NAME_BYTES,
      .read = "m.fingerprint"),
    C(title, WORDS, TEXT, 1, .max = SESSION_TITLE_BYTES),
    C(auto_title, NUMBER, BOOL, 1),
    C(pinned, "INTEGER", BOOL, 12, .flags = SPARSE),
    C(archived, "INTEGER", BOOL, 12, .flags = SPARSE),
    C(folder, "TEXT", TEXT, 14, .flags = NULLABLE | SPARSE, .rule = RULE_FOLDER),
    // No file has it: who imports a session has not shared it.
    C(share, "TEXT", TEXT, 13, .flags = UNSENT | NULLABLE),
    C(system, "TEXT", TEXT, 1, .flags = FIXED | NULLABLE, .min = 1, .max = SESSION_SYSTEM_BYTES),
    C(sampling, WORDS, OBJECT, 1, .rule = RULE_SAMPLING, .fallback_text = "{}"),
    C(session_len, NUMBER, INT, 1, .flags = FIXED, .min = 2, .fallback = 2),
    C(memory_len, NUMBER, INT32, 1, .flags = FIXED, .min = 1, .fallback = MEMORY_LEN),
    C(sink_len, NUMBER, INT32, 1, .flags = FIXED),
    C(created_ms, NUMBER, INT, 1, .flags = FIXED),
    C(updated_ms, NUMBER, INT, 1),
    C(closed_ms, NUMBER, INT, 1),
    C(n_turns, NUMBER, INT, 1, .flags = UNSENT),
    C(n_tokens, NUMBER, INT, 1),
    C(head, NUMBER " DEFAULT -1", INT, 2, .min = TURN_NONE, .fallback = TURN_NONE),
    C(forked_from, "TEXT", TEXT, 2, .flags = FIXED | NULLABLE, .rule = RULE_ID),
    C(forked_turn, NUMBER " DEFAULT -1", INT, 2, .flags = FIXED, .min = TURN_NONE,
      .fallback = TURN_NONE),
    C(cancel_after_ms, NUMBER " DEFAULT 0", INT, 3, .max = SESSION_CANCEL_AFTER_MAX_MS),
    C(stored_bytes, NUMBER " DEFAULT 0", INT, 6, .flags = UNSENT),
    C(seq, NUMBER, INT, 1),
    C(seq_reserved, NUMBER, INT, 1, .flags = LATE),
    C(prompt_kind, "INTEGER", INT32, 8, .flags = FIXED | SPARSE, .max = RECORD_PROMPT_PREFIX),
    C(prompt_task, "TEXT", TEXT, 8, .flags = FIXED | NULLABLE | SPARSE, .min = 1,
      .max = PROMPT_NAME_MAX),
    C(prompt_hash, "TEXT", TEXT, 8, .flags = FIXED | NULLABLE | SPARSE, .min = PROMPT_HASH_DIGITS,
      .max = PROMPT_HASH_DIGITS),
    C(prompt_rows, "INTEGER", INT, 8, .flags = FIXED | SPARSE, .max = PROMPT_MAX_ROWS),
    C(prompt_width, "INTEGER", INT, 8, .flags = FIXED | SPARSE),
    // In a table of its own (write.c): an update of a session's row would write it again.
    C(prompt_data, NULL, BYTES, 8, COUNT(prompt_bytes), .flags = NULLABLE | SPARSE, .read = "NULL"),
    // Likewise.
    C(note, NULL, TEXT, 9, .flags = NULLABLE | SPARSE, .min = 1, .max = SESSION_NOTE_BYTES,
      .read = "NULL"),
};

#undef RECORD
#define RECORD turn_record
static const struct column turns[] = {
    N(key, "INTEGER PRIMARY KEY", ROWID, 1),
    N(session, OF_SESSION, PLACE, 1, .copy = ":session"),
    C(turn, NUMBER, INT, 1, .flags = FIXED, .copy = ":turn"),
    C(parent, "INTEGER", INT, 2, .flags = FIXED, .min = TURN_NONE, .fallback = TURN_NONE,
      .read = "coalesce(parent, turn - 1)",
      .copy = ":turn - 1"), // null, of schema 1: the turn before it
    C(request_id, WORDS, TEXT, 1, .flags = FIXED, .max = SESSION_REQUEST_ID_MAX, .copy = "''"),
    C(request, WORDS, OBJECT, 1, .flags = FIXED, .fallback_text = "{}"),
    F(input_kind, kind, WORDS, NAME, 1, .flags = FIXED, .name_of = input_kind_name),
    C(input_text, "BLOB", BYTES, 1, COUNT(input_text_len), .flags = FIXED | NULLABLE),
    C(input_ids, DATA, ARRAY, 1, COUNT(n_input_ids)),
    C(log_first, NUMBER, INT, 1, .min = -1, .fallback = -1),
    C(n_input, NUMBER, INT, 1),
    C(n_output, NUMBER, INT, 1, .flags = UNSENT),
    C(sampling, WORDS, OBJECT, 1, .flags = FIXED, .rule = RULE_SAMPLING, .fallback_text = "{}"),
    C(seed, NUMBER, U64, 1, .flags = FIXED),
    C(logprobs, NUMBER, BOOL, 1, .flags = FIXED),
    C(n_alternatives, NUMBER, INT32, 1, .flags = FIXED, .max = SAMPLING_MAX_TOP_LOGPROBS),
    N(output, NULL, OUTPUT, 1),
    C(finish_reason, "TEXT", SHORT, 1, SIZE(finish_reason), .rule = RULE_END,
      .fallback_text = "interrupted"),
    C(error_code, "TEXT", SHORT, 1, SIZE(error_code)),
    C(error_message, "TEXT", TEXT, 1, .flags = NULLABLE, .max = MESSAGE_BYTES),
    C(context, "TEXT", OBJECT, 7, .flags = NULLABLE),
    C(branch, "TEXT", OBJECT, 8, .flags = NULLABLE | SPARSE),
    C(told, "TEXT", TEXT, 9, .flags = NULLABLE | SPARSE, .min = 32, .max = 32),
    C(shown, "TEXT", OBJECT, 9, .flags = NULLABLE | SPARSE),
    C(thinking, "INTEGER", BOOL, 10, .flags = SPARSE), // null of older turns: not known
    F(log_tokens, numbers.log_tokens, NUMBER, INT, 1),
    F(kept_tokens, numbers.kept_tokens, NUMBER, INT, 1),
    F(computed_tokens, numbers.computed_tokens, NUMBER, INT, 1),
    F(queue_us, numbers.queue_us, NUMBER, INT, 1),
    F(prefill_us, numbers.prefill_us, NUMBER, INT, 1),
    F(first_token_us, numbers.first_token_us, NUMBER, INT, 1),
    F(decode_us, numbers.decode_us, NUMBER, INT, 1),
    F(resume_us, numbers.resume_us, NUMBER " DEFAULT 0", INT, 4), // 0 of older turns: not known
    F(paused_us, numbers.paused_us, NUMBER " DEFAULT 0", INT, 7), // a part of the others before
    F(cache_source, numbers.source, WORDS, NAME, 1, .name_of = cache_source_name),
    C(instance, WORDS, TEXT, 1, .flags = FIXED, .max = NAME_BYTES),
    C(build, WORDS, TEXT, 1, .flags = FIXED, .max = NAME_BYTES),
    C(seq_first, NUMBER, INT, 1, .copy = "1"),
    C(seq_last, NUMBER, INT, 1, .copy = "1"),
    C(created_ms, NUMBER, INT, 1, .flags = FIXED),
    C(started_ms, NUMBER, INT, 1),
    C(ended_ms, NUMBER, INT, 1),
};

// A running turn's tokens come in parts; its end makes one row of them.
#undef RECORD
#define RECORD token_run
static const struct column tokens[] = {
    N(session, OF_SESSION, PLACE, 1, .copy = ":session"),
    N(turn, NUMBER, PLACE, 1, .copy = ":turn"),
    C(first, NUMBER, INT, 1),
    C(ids, DATA, ARRAY, 1, COUNT(n)),
    C(logprobs, DATA, ARRAY, 1, COUNT(n)),
    C(text_ends, DATA, ARRAY, 1, COUNT(n)),
    C(alternatives, "BLOB", ALTERNATIVES, 1, COUNT(n), .flags = NULLABLE),
    C(text, DATA, BYTES, 1, COUNT(text_len)),
    C(seq, NUMBER, INT, 1, .copy = "1"),
    C(seq_reserved, NUMBER, INT, 1, .copy = "1"),
};

#undef RECORD
#define RECORD event_record
static const struct column events[] = {
    N(session, OF_SESSION, PLACE, 1),   C(seq, NUMBER, INT, 1, .min = 1),
    C(n, NUMBER, INT, 1, .min = 1),     C(kind, WORDS, NAME, 1, .name_of = kind_name),
    C(turn, NUMBER, INT, 1, .min = -1), C(reason, WORDS, WORD, 1, SIZE(reason)),
    C(at_ms, NUMBER, INT, 1),
};

#define ROWS(array) array, sizeof(array) / sizeof *(array)
const struct record_table record_tables[N_TABLES] = {
    [TABLE_MODELS] = {"models", "", ROWS(models), ") STRICT", NULL},
    // Before version 5 an id was unique over all owners.
    [TABLE_SESSIONS] = {"sessions", "s.", ROWS(sessions), ", UNIQUE (owner, id)) STRICT",
                        "CREATE INDEX sessions_newest ON sessions(owner, updated_ms DESC, key "
                        "DESC);",
                        .rebuilt = 5},
    [TABLE_TURNS] = {"turns", "", ROWS(turns), ", UNIQUE (session, turn)) STRICT",
                     "CREATE INDEX turns_unfinished ON turns(session, turn) WHERE finish_reason IS "
                     "NULL;CREATE INDEX turns_told ON turns(told) WHERE told IS NOT NULL;"},
    [TABLE_TOKENS] = {"tokens", "", ROWS(tokens), ", PRIMARY KEY (session, turn, first)) STRICT",
                      NULL},
    [TABLE_EVENTS] = {"events", "", ROWS(events),
                      ", PRIMARY KEY (session, seq)) STRICT, WITHOUT ROWID", NULL},
};

bool column_has_field(const struct column *c) {
    return c->type > COLUMN_OUTPUT;
}

int64_t column_max(const struct column *c) {
    return c->max ? c->max : c->type == COLUMN_INT32 ? INT32_MAX : COLUMN_WHOLE;
}

int column_parse_name(const struct column *c, const char *name, int *out) {
    const char *known;
    for (int i = 0; name && (known = c->name_of(i)); i++) {
        if (strcmp(known, name) != 0) continue;
        *out = i;
        return 0;
    }
    return E_CORRUPT;
}

// --- records -----------------------------------------------------------------

static bool is_pointer(const struct column *c) {
    return c->type >= COLUMN_TEXT;
}

void columns_release(const struct record_table *t, void *record) {
    for (size_t i = 0; i < t->n; i++)
        if (is_pointer(&t->columns[i])) free(column_pointer(&t->columns[i], record));
    columns_forget(t, record);
}

void columns_forget(const struct record_table *t, void *record) {
    for (size_t i = 0; i < t->n; i++)
        if (is_pointer(&t->columns[i])) column_set_pointer(&t->columns[i], record, NULL);
}

int columns_own(const struct record_table *t, void *to) {
    bool failed = false;
    for (size_t i = 0; i < t->n; i++) {
        const struct column *c = &t->columns[i];
        if (!is_pointer(c)) continue;
        void *p = column_pointer(c, to);
        size_t each = c->type == COLUMN_ARRAY ? 4 : 1;
        p = c->type == COLUMN_BYTES || c->type == COLUMN_ARRAY
                ? record_memdup(p, *column_len(c, to) * each, &failed)
                : record_strdup(p, &failed);
        column_set_pointer(c, to, p);
    }
    return failed ? E_NOMEM : 0;
}

// --- SQL ---------------------------------------------------------------------

int columns_version(void) {
    int newest = 0;
    for (int i = 0; i < N_TABLES; i++)
        for (size_t k = 0; k < record_tables[i].n; k++)
            if (record_tables[i].columns[k].since > newest)
                newest = record_tables[i].columns[k].since;
    return newest;
}

// The names of the columns that a version has, with or without their declarations.
static void put_columns(const struct record_table *t, int version, bool declared, struct buf *out) {
    const char *comma = "";
    for (size_t i = 0; i < t->n; i++) {
        const struct column *c = &t->columns[i];
        if (!c->decl || c->since > version) continue;
        buf_addf(out, "%s%s", comma, column_name(c));
        if (declared) buf_addf(out, " %s", c->decl);
        comma = ", ";
    }
}

static void create(const struct record_table *t, const char *prefix, int version, struct buf *out) {
    buf_addf(out, "CREATE TABLE %s%s (", prefix, t->name);
    put_columns(t, version, true, out);
    buf_addf(out, "%s;", t->end);
}

int columns_create(const struct record_table *tables, size_t n, int version, struct buf *out) {
    for (size_t i = 0; i < n; i++) {
        create(&tables[i], "", version, out);
        buf_addz(out, tables[i].index ? tables[i].index : "");
    }
    return out->error;
}

// SQLite cannot change a constraint of a table. The migration turns foreign keys off, so that rows
// of other tables stay when the old table goes.
static void rebuild(const struct record_table *t, int version, struct buf *out) {
    create(t, "new_", version, out);
    buf_addf(out, "INSERT INTO new_%s (", t->name);
    put_columns(t, version - 1, false, out);
    buf_addz(out, ") SELECT ");
    put_columns(t, version - 1, false, out);
    buf_addf(out, " FROM %s;DROP TABLE %s;ALTER TABLE new_%s RENAME TO %s;%s", t->name, t->name,
             t->name, t->name, t->index ? t->index : "");
}

int columns_migrate(const struct record_table *tables, size_t n, int version, struct buf *out) {
    for (size_t i = 0; i < n; i++) {
        const struct record_table *t = &tables[i];
        if (version == t->rebuilt) rebuild(t, version, out);
        for (size_t k = 0; k < t->n && version != t->rebuilt; k++)
            if (t->columns[k].decl && t->columns[k].since == version)
                buf_addf(out, "ALTER TABLE %s ADD COLUMN %s %s;", t->name,
                         column_name(&t->columns[k]), t->columns[k].decl);
    }
    return out->error;
}

enum list { LIST_NAMES, LIST_VALUES, LIST_SETS, LIST_READS, LIST_COPIES, N_LISTS };
static const char *const list_names[N_LISTS] = {"names", "values", "sets", "reads", "copies"};

static bool is_listed(const struct column *c, enum list list) {
    if (list == LIST_READS) return column_has_field(c);
    if (!c->decl || c->type == COLUMN_ROWID) return false;
    return list != LIST_SETS || (column_has_field(c) && !(c->flags & COLUMN_FIXED));
}

static void put_listed(const struct record_table *t, const struct column *c, enum list list,
                       struct buf *out) {
    const char *name = column_name(c);
    if (list == LIST_NAMES) buf_addz(out, name);
    if (list == LIST_VALUES) buf_addz(out, c->write ? c->write : c->param);
    if (list == LIST_SETS) buf_addf(out, "%s = %s", name, c->param);
    if (list == LIST_COPIES) buf_addz(out, c->copy ? c->copy : name);
    if (list == LIST_READS && c->read) buf_addz(out, c->read);
    if (list == LIST_READS && !c->read) buf_addf(out, "%s%s", t->alias, name);
}

// The list that "TABLE:LIST}" names. Our own statements alone are expanded.
static void put_list(const struct record_table *tables, size_t n, const char *what,
                     struct buf *out) {
    size_t name_len = strcspn(what, ":");
    const char *comma = "", *which = what + name_len + 1;
    enum list list = LIST_NAMES;
    while (strncmp(which, list_names[list], strcspn(which, "}")) != 0) list++;
    for (size_t i = 0; i < n; i++) {
        const struct record_table *t = &tables[i];
        if (strlen(t->name) != name_len || strncmp(t->name, what, name_len) != 0) continue;
        for (size_t k = 0; k < t->n; k++) {
            if (!is_listed(&t->columns[k], list)) continue;
            buf_addz(out, comma);
            put_listed(t, &t->columns[k], list, out);
            comma = ", ";
        }
    }
}

int columns_expand(const struct record_table *tables, size_t n, const char *sql, struct buf *out) {
    for (const char *p = sql; *p;) {
        size_t plain = strcspn(p, "{");
        buf_add(out, p, plain);
        p += plain;
        if (*p != '{') break;
        put_list(tables, n, p + 1, out);
        p += strcspn(p, "}") + 1;
    }
    return out->error;
}
