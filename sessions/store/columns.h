// The columns of the record's tables, one row for each column. Schema, migration, bind, read, copy,
// export, import, check and repair all walk these rows. README.md says how to add a column.
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf;

enum column_type {
    COLUMN_ROWID,        // SQLite gives it; no field
    COLUMN_PLACE,        // no field: the statement binds it
    COLUMN_OUTPUT,       // no column: in files a turn's tokens stand here
    COLUMN_INT,          // int64_t
    COLUMN_INT32,        // int32_t
    COLUMN_BOOL,         // bool
    COLUMN_U64,          // uint64_t: stored as a signed integer, in files a decimal string
    COLUMN_NAME,         // enum or int: stored as its name
    COLUMN_SHORT,        // char[size]: "" is stored as null
    COLUMN_WORD,         // char[size]: "" is stored as it is, and left out of files
    COLUMN_TEXT,         // char *
    COLUMN_OBJECT,       // char *: a JSON object, as its writer spelled it
    COLUMN_BYTES,        // char * of `len` bytes; in files Base64 where JSON cannot hold them
    COLUMN_ARRAY,        // `len` elements of four bytes
    COLUMN_ALTERNATIVES, // the same of eight bytes, `len` times the turn's n_alternatives
};
enum column_rule {
    RULE_RANGE, // numbers from min to max, texts of min to max bytes of UTF-8
    RULE_ID,    // a session's id
    RULE_FOLDER,
    RULE_SAMPLING,
    RULE_END, // why a turn ends
};
enum column_flags {
    COLUMN_NULL = 1,     // may be null
    COLUMN_FIXED = 2,    // written once: an update leaves it
    COLUMN_UNSENT = 4,   // not in files, and not checked by itself
    COLUMN_IDENTITY = 8, // a repair cannot make it up
    COLUMN_LATE = 16,    // files before it have none
    COLUMN_SPARSE = 32,  // left out of files where it is 0 or null
};
struct column {
    const char *param; // ":name"
    const char *decl;  // type and constraints in the schema; NULL: in no table of its own
    enum column_type type;
    int since;  // schema version
    size_t at;  // offset of the field
    size_t len; // BYTES, ARRAY: offset of the size_t. SHORT, WORD: size of the field
    int flags;
    enum column_rule rule;
    int64_t min, max;                  // max 0: WHOLE, INT32_MAX; of a text, any length
    int64_t fallback;                  // of a repair, and of files without it
    const char *fallback_text;         // NULL: null where that is allowed, else ""
    const char *(*name_of)(int value); // NAME; NULL behind the last one
    const char *copy, *read, *write;   // SQL in place of the name: in a fork, a select, an insert
};
// Largest whole number that JSON carries everywhere.
#define COLUMN_WHOLE ((INT64_C(1) << 53) - 1)

struct record_table {
    const char *name, *alias; // alias: "" or "s."
    const struct column *columns;
    size_t n;
    const char *end;   // of CREATE TABLE: constraints, bracket, options
    const char *index; // statements behind it, or NULL
    int rebuilt;       // the version whose migration makes it anew: `end` is another since; or 0
};
enum { TABLE_MODELS, TABLE_SESSIONS, TABLE_TURNS, TABLE_TOKENS, TABLE_EVENTS, N_TABLES };
extern const struct record_table record_tables[N_TABLES];

// Below, `record` is the struct that the table's rows are read into; column_field is for columns with a field.
static inline const char *column_name(const struct column *c) {
    return c->param + 1;
}
static inline void *column_field(const struct column *c, const void *record) {
    return (char *)record + c->at;
}
// A field that is a pointer to anything.
static inline void *column_pointer(const struct column *c, const void *record) {
    void *p;
    memcpy(&p, column_field(c, record), sizeof p);
    return p;
}
static inline void column_set_pointer(const struct column *c, void *record, void *p) {
    memcpy(column_field(c, record), &p, sizeof p);
}
// How long the column's contents are: BYTES, ARRAY and ALTERNATIVES, in bytes or elements.
static inline size_t *column_len(const struct column *c, const void *record) {
    return (size_t *)((char *)record + c->len);
}
bool column_has_field(const struct column *c); // of a record, so not ROWID, PLACE, OUTPUT
int64_t column_max(const struct column *c);    // `max`, or the type's; only of numbers
int column_parse_name(const struct column *c, const char *name, int *out); // E_CORRUPT

// --- records -----------------------------------------------------------------

void columns_release(const struct record_table *t, void *record); // frees, sets NULL
void columns_forget(const struct record_table *t, void *record);  // sets NULL
// *to is a copy of *from whose pointers are still from's: makes them its own. E_NOMEM; release it
// in any case.
int columns_own(const struct record_table *t, void *to);

// --- SQL ---------------------------------------------------------------------

int columns_version(void); // of the schema: the newest column's
// Statements that create the tables of a version, and that migrate the tables of the version before to it.
int columns_create(const struct record_table *tables, size_t n, int version, struct buf *out);
int columns_migrate(const struct record_table *tables, size_t n, int version, struct buf *out);
// Copies a statement. {TABLE:names}, {TABLE:values}, {TABLE:sets}, {TABLE:reads} and {TABLE:copies}
// become lists of that table's columns.
int columns_expand(const struct record_table *tables, size_t n, const char *sql, struct buf *out);
