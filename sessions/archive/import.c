// From JSON to records, and from records into a database. See archive.h.
//
// The file is untrusted. One pass checks its JSON and keeps all but the items of arrays. Then each turn and event is
// read by itself, with the type and range of each column, and long lists of numbers from the text: a tree of the whole
// file would be thirty times as large.
// stored_session_check then tests whether the parts fit together. Only then is a database opened.
#include "base/base64.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_raw.h"
#include "base/random_id.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/check.h"
#include "sessions/store/columns.h"
#include "sessions/store/read.h"
#include "sessions/store/write.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE ((INT64_C(1) << 53) - 1) // largest whole number that JSON carries everywhere
#define RAW_BYTES (1 << 20)            // of a request, of sampling parameters

// An object of the file, and its name in messages.
struct reader {
    const cJSON *at;
    const char *raw; // the same, as written
    bool linear;     // version 1: no branches
    char where[48];
    struct err *err;
};

static int refuse(const struct reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static int refuse(const struct reader *r, const char *fmt, ...) {
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return err_set(r->err, E_FORMAT, "%s: %s", r->where, text);
}

// The result of a getter of base/json.h. With `required`, an absent key is an error.
static int judge(const struct reader *r, const char *key, int rc, bool required,
                 const struct err *reason) {
    if (rc < 0) return refuse(r, "%s", reason->text);
    if (rc == JSON_ABSENT && required) return refuse(r, "'%s' is missing", key);
    return rc;
}

static int get_int(const struct reader *r, const char *key, int64_t min, int64_t max,
                   int64_t *out) {
    struct err reason = {0};
    return judge(r, key, json_get_int(r->at, key, min, max, out, &reason), true, &reason);
}

static int get_bool(const struct reader *r, const char *key, bool *out) {
    struct err reason = {0};
    return judge(r, key, json_get_bool(r->at, key, out, &reason), true, &reason);
}

// Borrowed; *out is NULL where it is absent or null.
static int get_string(const struct reader *r, const char *key, bool required, const char **out) {
    struct err reason = {0};
    *out = NULL;
    return judge(r, key, json_get_string(r->at, key, out, &reason), required, &reason);
}

static int copy_string(const struct reader *r, const char *key, bool required, char **out) {
    const char *s;
    TRY(get_string(r, key, required, &s));
    if (s && !(*out = strdup(s))) return err_set(r->err, E_NOMEM, "no memory to import");
    return 0;
}

static int copy_short(const struct reader *r, const char *key, char *out, size_t cap) {
    const char *s;
    TRY(get_string(r, key, false, &s));
    if (s && strlen(s) >= cap) return refuse(r, "'%s' has more than %zu bytes", key, cap - 1);
    snprintf(out, cap, "%s", s ? s : "");
    return 0;
}

// An object, as its writer spelled it.
static int copy_raw_object(const struct reader *r, const char *key, char **out) {
    struct err reason = {0};
    const cJSON *object = NULL;
    size_t len = 0;
    TRY(judge(r, key, json_get_object(r->at, key, &object, &reason), true, &reason));
    const char *raw = json_raw_value(r->raw, key, &len);
    if (!raw) return refuse(r, "'%s' must be written without escapes", key);
    if (len > RAW_BYTES) return refuse(r, "'%s' has more than %d bytes", key, RAW_BYTES);
    *out = strndup(raw, len);
    return *out ? 0 : err_set(r->err, E_NOMEM, "no memory to import");
}

// Text, or its Base64 under another key. *out stays NULL without either.
static int copy_bytes(const struct reader *r, const char *key, const char *key_base64, char **out,
                      size_t *len) {
    const char *text, *encoded;
    bool failed = false;
    TRY(get_string(r, key, false, &text));
    TRY(get_string(r, key_base64, false, &encoded));
    if (text && encoded) return refuse(r, "'%s' and '%s' exclude each other", key, key_base64);
    if (!text && !encoded) return 0;
    struct buf bytes;
    buf_init(&bytes, (size_t)1 << 30);
    int rc = encoded ? base64_decode(&bytes, encoded, strlen(encoded)) : buf_addz(&bytes, text);
    *len = bytes.len;
    if (rc == 0) *out = record_memdup(buf_z(&bytes), bytes.len, &failed);
    buf_release(&bytes);
    if (rc == E_FORMAT) return refuse(r, "'%s' is not Base64", key_base64);
    return rc < 0 || failed ? err_set(r->err, E_NOMEM, "no memory to import") : 0;
}

// --- arrays of numbers -------------------------------------------------------

static size_t count(const char *array) {
    size_t n = 0;
    for (const char *item = json_raw_first(array); item; item = json_raw_next(item)) n++;
    return n;
}

// *out: the array as written, because the tree has none of its items.
static int get_array(const struct reader *r, const char *key, const char **out, size_t *n) {
    struct err reason = {0};
    const cJSON *array;
    size_t len;
    TRY(judge(r, key, json_get_array(r->at, key, &array, &reason), true, &reason));
    *out = json_raw_value(r->raw, key, &len);
    if (!*out) return refuse(r, "'%s' must be written without escapes", key);
    *n = count(*out);
    return 0;
}

// The whole number at item, which may be written as 1.0 or 1e3. -1: it is none from 0 to max.
static int64_t whole(const char *item, int64_t max) {
    struct err ignored = {0};
    size_t n = strspn(item, "0123456789"), len = json_raw_len(item);
    if (n == len && n < 16) {
        int64_t v = strtoll(item, NULL, 10);
        return v <= max ? v : -1;
    }
    cJSON *number = json_parse(item, len, &json_limits_message, &ignored);
    double v = cJSON_IsNumber(number) ? number->valuedouble : -1;
    cJSON_Delete(number);
    return v >= 0 && v <= (double)max && v == (double)(int64_t)v ? (int64_t)v : -1;
}

enum numbers { TOKEN_IDS, BITS }; // int32 from 0, uint32: both four bytes each

// *out: (n) allocated; NULL for none. want: as many as that, or SIZE_MAX for any.
static int copy_numbers(const struct reader *r, const char *key, enum numbers kind, size_t want,
                        void *out, size_t *n) {
    const char *array;
    TRY(get_array(r, key, &array, n));
    if (want != SIZE_MAX && *n != want)
        return refuse(r, "'%s' has %zu values, not %zu", key, *n, want);
    uint32_t *values = malloc((*n + 1) * sizeof *values);
    if (!values) return err_set(r->err, E_NOMEM, "no memory to import");
    *(uint32_t **)out = values;
    int64_t max = kind == TOKEN_IDS ? INT32_MAX : UINT32_MAX;
    size_t i = 0;
    for (const char *item = json_raw_first(array); item; item = json_raw_next(item), i++) {
        int64_t v = whole(item, max);
        if (v < 0)
            return refuse(r, "%s[%zu] is not a whole number from 0 to %lld", key, i,
                          (long long)max);
        values[i] = (uint32_t)v;
    }
    return 0;
}

// Per token a list of id, bits, id, bits ... An id of -1 (as bits: export writes them so) fills up.
static int copy_alternatives(const struct reader *r, size_t n_each, struct token_run *t) {
    const char *array, *list, *item;
    size_t n, i = 0;
    if (!cJSON_GetObjectItemCaseSensitive(r->at, "alternatives")) return 0;
    TRY(get_array(r, "alternatives", &array, &n));
    if (n != t->n || n_each == 0)
        return refuse(r, "'alternatives' has %zu values, not %zu", n, n_each ? t->n : 0);
    t->alternatives = calloc(n * n_each + 1, sizeof *t->alternatives);
    if (!t->alternatives) return err_set(r->err, E_NOMEM, "no memory to import");
    uint32_t *values = (uint32_t *)t->alternatives;
    for (list = json_raw_first(array); list; list = json_raw_next(list)) {
        size_t k = 0;
        bool good = *list == '[';
        for (item = good ? json_raw_first(list) : NULL; item && good;
             item = json_raw_next(item), k++) {
            int64_t v = k < n_each * 2 ? whole(item, UINT32_MAX) : -1;
            good = v >= 0;
            if (good) values[i * n_each * 2 + k] = (uint32_t)v;
        }
        if (!good || k != n_each * 2)
            return refuse(r, "alternatives[%zu] is not a list of %zu numbers of 32 bits", i,
                          n_each * 2);
        i++;
    }
    return 0;
}

// --- the parts of a session --------------------------------------------------

static int read_output(const struct reader *r, struct stored_turn *t) {
    struct token_run *k = &t->tokens;
    size_t n;
    TRY(copy_bytes(r, "text", "text_base64", &k->text, &k->text_len));
    if (!k->text) return refuse(r, "'text' is missing");
    TRY(copy_numbers(r, "ids", TOKEN_IDS, SIZE_MAX, &k->ids, &k->n));
    TRY(copy_numbers(r, "logprob_bits", BITS, k->n, &k->logprobs, &n));
    TRY(copy_numbers(r, "text_ends", BITS, k->n, &k->text_ends, &n));
    t->rec.n_output = (int64_t)k->n;
    return copy_alternatives(r, (size_t)t->rec.n_alternatives, k);
}

static int read_name(const struct reader *r, const struct column *c, int *out) {
    const char *name, *known;
    char names[200] = "";
    TRY(get_string(r, column_name(c), true, &name));
    if (column_parse_name(c, name, out) == 0) return 0;
    for (int i = 0; (known = c->name_of(i)); i++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", i ? ", " : "", known);
    return refuse(r, "'%s' must be %s", column_name(c), names);
}

static int read_int(const struct reader *r, const struct column *c, int64_t *out) {
    return get_int(r, column_name(c), c->min, column_max(c), out);
}

static int read_column(const struct reader *r, const struct column *c, void *record) {
    const char *name = column_name(c);
    void *p = column_field(c, record);
    struct err reason = {0};
    char base64[64], *text = NULL;
    int64_t number = 0;
    int32_t *numbers = NULL;
    int rc = 0;
    switch (c->type) {
    case COLUMN_INT:
        return read_int(r, c, p);
    case COLUMN_INT32:
        TRY(read_int(r, c, &number));
        *(int32_t *)p = (int32_t)number;
        return 0;
    case COLUMN_BOOL:
        return get_bool(r, name, p);
    case COLUMN_U64:
        return judge(r, name, json_get_u64(r->at, name, p, &reason), true, &reason);
    case COLUMN_NAME:
        return read_name(r, c, p);
    case COLUMN_SHORT:
    case COLUMN_WORD:
        return copy_short(r, name, p, c->len);
    case COLUMN_TEXT:
        rc = copy_string(r, name, !(c->flags & COLUMN_NULL), &text);
        break;
    case COLUMN_OBJECT:
        rc = copy_raw_object(r, name, &text);
        break;
    case COLUMN_BYTES:
        snprintf(base64, sizeof base64, "%s_base64", name);
        rc = copy_bytes(r, name, base64, &text, column_len(c, record));
        break;
    case COLUMN_ARRAY:
        rc = copy_numbers(r, name, TOKEN_IDS, SIZE_MAX, &numbers, column_len(c, record));
        text = (char *)numbers;
        break;
    default: // in no file
        return 0;
    }
    column_set_pointer(c, record, text);
    return rc;
}

// Files of version 1 lack the columns of schema 2. Later columns may be absent from any file.
static bool is_absent(const struct reader *r, const struct column *c) {
    bool late = c->since > 2 || (c->flags & COLUMN_LATE);
    char base64[64];
    snprintf(base64, sizeof base64, "%s_base64", column_name(c));
    return (c->since == 2 && r->linear) ||
           (late && !cJSON_GetObjectItemCaseSensitive(r->at, column_name(c)) &&
            !cJSON_GetObjectItemCaseSensitive(r->at, base64));
}

// For an absent column. Texts stay NULL.
static void put_fallback(const struct column *c, void *record) {
    if (c->type == COLUMN_INT) *(int64_t *)column_field(c, record) = c->fallback;
    if (c->type == COLUMN_INT32) *(int32_t *)column_field(c, record) = (int32_t)c->fallback;
}

static int read_record(const struct reader *r, const struct record_table *table, void *record,
                       struct stored_turn *turn) {
    for (size_t i = 0; i < table->n; i++) {
        const struct column *c = &table->columns[i];
        if (c->type == COLUMN_OUTPUT) TRY(read_output(r, turn));
        if (c->flags & COLUMN_UNSENT) continue;
        if (is_absent(r, c))
            put_fallback(c, record);
        else
            TRY(read_column(r, c, record));
    }
    return 0;
}

static int read_turn(const struct reader *r, struct stored_session *s, size_t i) {
    struct stored_turn *st = &s->turns[i];
    TRY(read_record(r, &record_tables[TABLE_TURNS], &st->rec, st));
    if (r->linear) st->rec.parent = st->rec.turn - 1;
    return 0;
}

static int read_event(const struct reader *r, struct stored_session *s, size_t i) {
    return read_record(r, &record_tables[TABLE_EVENTS], &s->events[i], NULL);
}

// Item i of an array, with a tree of its own: trees of all items would take many times the size of the file.
static int read_item(const struct reader *top, const char *array, const char *item, size_t i,
                     int (*read)(const struct reader *r, struct stored_session *s, size_t i),
                     struct stored_session *s) {
    struct reader r = {.raw = item, .linear = top->linear, .err = top->err};
    snprintf(r.where, sizeof r.where, "%s[%zu]", array, i);
    if (*item != '{') return refuse(&r, "must be an object");
    cJSON *tree = json_parse_outline(item, json_raw_len(item), &json_limits_outline, top->err);
    if (!tree) return top->err->code;
    r.at = tree;
    int rc = read(&r, s, i);
    cJSON_Delete(tree);
    return rc;
}

static int read_session(const struct reader *r, struct session_record *s) {
    TRY(read_record(r, &record_tables[TABLE_SESSIONS], s, NULL));
    if (!cJSON_GetObjectItemCaseSensitive(r->at, "seq_reserved")) s->seq_reserved = s->seq;
    return 0;
}

// --- the whole file ----------------------------------------------------------

static int read_turns(const struct reader *top, struct stored_session *s) {
    const char *array;
    size_t n;
    TRY(get_array(top, "turns", &array, &n));
    s->turns = calloc(n + 1, sizeof *s->turns);
    if (!s->turns) return err_set(top->err, E_NOMEM, "no memory to import %zu turns", n);
    for (const char *item = json_raw_first(array); item; item = json_raw_next(item))
        TRY(read_item(top, "turns", item, s->n_turns++, read_turn, s));
    s->rec.n_turns = (int64_t)s->n_turns;
    if (top->linear) s->rec.head = s->rec.n_turns - 1;
    return 0;
}

static int read_events(const struct reader *top, struct stored_session *s) {
    const char *array;
    size_t n;
    TRY(get_array(top, "events", &array, &n));
    s->events = calloc(n + 1, sizeof *s->events);
    if (!s->events) return err_set(top->err, E_NOMEM, "no memory to import %zu events", n);
    for (const char *item = json_raw_first(array); item; item = json_raw_next(item))
        TRY(read_item(top, "events", item, s->n_events++, read_event, s));
    return 0;
}

static int read_header(struct reader *top, const char **session_raw, const cJSON **session) {
    const char *format;
    int64_t version;
    struct err reason = {0};
    size_t len;
    if (!cJSON_IsObject(top->at) ||
        json_get_string(top->at, "format", &format, NULL) != JSON_PRESENT ||
        strcmp(format, ARCHIVE_FORMAT) != 0)
        return err_set(top->err, E_FORMAT, "Not a Parley session file");
    TRY(get_int(top, "version", 1, WHOLE, &version));
    if (version > ARCHIVE_FORMAT_VERSION)
        return err_set(top->err, E_UNSUPPORTED,
                       "%s: written by a newer Parley (version %" PRId64 ", this program knows %d)",
                       top->where, version, ARCHIVE_FORMAT_VERSION);
    top->linear = version < 2;
    TRY(judge(top, "session", json_get_object(top->at, "session", session, &reason), true,
              &reason));
    *session_raw = json_raw_value(top->raw, "session", &len);
    return *session_raw ? 0 : refuse(top, "'session' must be written without escapes");
}

static int read_file(struct reader *top, struct stored_session *s) {
    struct reader r = {.where = "session", .err = top->err};
    TRY(read_header(top, &r.raw, &r.at));
    r.linear = top->linear;
    TRY(read_session(&r, &s->rec));
    TRY(read_turns(top, s));
    return read_events(top, s);
}

int archive_read(struct stored_session **out, const char *json, size_t len, int64_t now_ms,
                 struct err *err) {
    struct err local = {0};
    if (!err) err = &local;
    cJSON *tree = json_parse_outline(json, len, &json_limits_outline, err);
    if (!tree) return err->code;
    struct reader top = {.at = tree, .raw = json, .where = "the file", .err = err};
    struct stored_session *s = calloc(1, sizeof *s);
    int rc = s ? read_file(&top, s) : err_set(err, E_NOMEM, "no memory to import");
    cJSON_Delete(tree); // before the check, which takes memory too
    if (rc >= 0) rc = stored_session_interrupt(s, now_ms, err);
    if (rc == 0) rc = stored_session_check(s, err);
    if (rc == 0)
        *out = s;
    else
        stored_session_free(s);
    return rc;
}

// --- into a database ---------------------------------------------------------

int archive_rename(struct session_record *r, const struct archive_import *o, struct err *err) {
    char fresh[RANDOM_ID_LEN + 1];
    bool failed = false;
    if (o->new_id) {
        random_id(fresh);
        free(r->id);
        r->id = record_strdup(fresh, &failed);
    }
    if (o->owner) {
        free(r->owner);
        r->owner = record_strdup(o->owner, &failed);
    }
    return failed ? err_set(err, E_NOMEM, "no memory to import") : 0;
}

int archive_add(struct store_db *db, void *session, struct err *err) {
    struct stored_session *s = session;
    TRY(store_read_import_key(db, &s->rec.key, err));
    return store_write_session(db, s, err);
}

int archive_import(const char *path, struct stored_session *s, const struct archive_import *o,
                   struct err *err) {
    struct store_db db;
    struct err local = {0};
    if (!err) err = &local;
    TRY(archive_rename(&s->rec, o, err));
    bool served = false;
    int rc = store_db_open_any(&db, path, &served, err);
    if (rc < 0) return rc;
    rc = store_db_transaction(&db, archive_add, s, err);
    store_db_close(&db, !served);
    return rc;
}
