// See row.h.
#include "sessions/store/row.h"
#include "base/err.h"
#include "sessions/store/record.h"
#include <stdio.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the database's arrays are little-endian: convert them here and in read.c"
#endif

// --- into a statement --------------------------------------------------------

static void bind_text(sqlite3_stmt *s, int i, const char *text) {
    if (text) sqlite3_bind_text(s, i, text, -1, SQLITE_STATIC);
}

// Empty blobs are blobs: a NULL pointer would make them null.
static void bind_bytes(sqlite3_stmt *s, int i, const void *p, size_t n) {
    if (n)
        sqlite3_bind_blob64(s, i, p, n, SQLITE_STATIC);
    else
        sqlite3_bind_zeroblob(s, i, 0);
}

void row_bind_int(sqlite3_stmt *s, const char *param, int64_t value) {
    sqlite3_bind_int64(s, sqlite3_bind_parameter_index(s, param), value);
}

void row_bind_bytes(sqlite3_stmt *s, const char *param, const void *p, size_t len) {
    bind_bytes(s, sqlite3_bind_parameter_index(s, param), p, len);
}

static void bind_column(sqlite3_stmt *s, int i, const struct column *c, const void *record) {
    const void *p = column_field(c, record);
    switch (c->type) {
    case COLUMN_INT:
    case COLUMN_U64:
        sqlite3_bind_int64(s, i, *(const int64_t *)p);
        break;
    case COLUMN_INT32:
        sqlite3_bind_int(s, i, *(const int32_t *)p);
        break;
    case COLUMN_BOOL:
        sqlite3_bind_int(s, i, *(const bool *)p);
        break;
    case COLUMN_NAME:
        bind_text(s, i, c->name_of(*(const int *)p));
        break;
    case COLUMN_SHORT:
        bind_text(s, i, *(const char *)p ? p : NULL);
        break;
    case COLUMN_WORD:
        bind_text(s, i, p);
        break;
    case COLUMN_TEXT:
    case COLUMN_OBJECT:
        bind_text(s, i, column_pointer(c, record));
        break;
    case COLUMN_BYTES:
        if (column_pointer(c, record) || !(c->flags & COLUMN_NULL))
            bind_bytes(s, i, column_pointer(c, record), *column_len(c, record));
        break;
    case COLUMN_ARRAY:
        bind_bytes(s, i, column_pointer(c, record), *column_len(c, record) * 4);
        break;
    default: // the statement's own
        break;
    }
}

void row_bind(sqlite3_stmt *s, const struct record_table *t, const void *record) {
    for (size_t k = 0; k < t->n; k++) {
        int i = sqlite3_bind_parameter_index(s, t->columns[k].param);
        if (i > 0) bind_column(s, i, &t->columns[k], record);
    }
}

// --- out of a row ------------------------------------------------------------

static char *copy_text(sqlite3_stmt *s, int i, bool *failed) {
    const char *text = (const char *)sqlite3_column_text(s, i);
    if (!text && sqlite3_column_type(s, i) != SQLITE_NULL) *failed = true;
    return record_strdup(text, failed);
}

// Never NULL unless *failed, except that a null stays NULL.
static void *copy_bytes(sqlite3_stmt *s, int i, size_t *len, bool *failed) {
    *len = 0;
    if (sqlite3_column_type(s, i) == SQLITE_NULL) return NULL;
    const void *p = sqlite3_column_blob(s, i);
    *len = (size_t)sqlite3_column_bytes(s, i);
    return record_memdup(*len ? p : "", *len, failed);
}

static int read_name(sqlite3_stmt *s, int i, const struct column *c, int *out, bool salvage) {
    int rc = column_parse_name(c, (const char *)sqlite3_column_text(s, i), out);
    return salvage ? 0 : rc;
}

static int read_array(sqlite3_stmt *s, int i, const struct column *c, void *record, bool salvage) {
    bool failed = false;
    size_t n_bytes;
    column_set_pointer(c, record, copy_bytes(s, i, &n_bytes, &failed));
    *column_len(c, record) = n_bytes / 4;
    return failed ? E_NOMEM : n_bytes % 4 && !salvage ? E_CORRUPT : 0;
}

// Counts that say how much memory something has must be in range.
static int read_int32(sqlite3_stmt *s, int i, const struct column *c, int32_t *out, bool salvage) {
    int64_t v = sqlite3_column_int64(s, i);
    bool fits = v >= INT32_MIN && v <= INT32_MAX && (!c->max || (v >= c->min && v <= c->max));
    *out = fits ? (int32_t)v : (int32_t)c->fallback;
    return fits || salvage ? 0 : E_CORRUPT;
}

static int read_column(sqlite3_stmt *s, int i, const struct column *c, void *record, bool salvage) {
    void *p = column_field(c, record);
    bool failed = false;
    switch (c->type) {
    case COLUMN_INT:
    case COLUMN_U64:
        *(int64_t *)p = sqlite3_column_int64(s, i);
        return 0;
    case COLUMN_INT32:
        return read_int32(s, i, c, p, salvage);
    case COLUMN_BOOL:
        *(bool *)p = sqlite3_column_int(s, i);
        return 0;
    case COLUMN_NAME:
        return read_name(s, i, c, p, salvage);
    case COLUMN_SHORT:
    case COLUMN_WORD: {
        const char *text = (const char *)sqlite3_column_text(s, i);
        snprintf(p, c->len, "%s", text ? text : "");
        return 0;
    }
    case COLUMN_TEXT:
    case COLUMN_OBJECT:
        column_set_pointer(c, record, copy_text(s, i, &failed));
        return failed ? E_NOMEM : 0;
    case COLUMN_BYTES:
        column_set_pointer(c, record, copy_bytes(s, i, column_len(c, record), &failed));
        return failed ? E_NOMEM : 0;
    case COLUMN_ARRAY:
        return read_array(s, i, c, record, salvage);
    default: // its reader joins the parts
        return 0;
    }
}

int row_read(sqlite3_stmt *s, const struct record_table *t, void *record, bool salvage) {
    int i = 0, rc = 0;
    for (size_t k = 0; rc == 0 && k < t->n; k++)
        if (column_has_field(&t->columns[k]))
            rc = read_column(s, i++, &t->columns[k], record, salvage);
    return rc;
}

void row_read_numbers(sqlite3_stmt *s, const struct record_table *t, void *record) {
    int i = 0;
    for (size_t k = 0; k < t->n; k++) {
        const struct column *c = &t->columns[k];
        if (c->type == COLUMN_INT) *(int64_t *)column_field(c, record) = sqlite3_column_int64(s, i);
        i += column_has_field(c);
    }
}
