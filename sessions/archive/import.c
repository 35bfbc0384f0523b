// Exported sessions back in: from JSON to records, from records into a database. See archive.h.
//
// The file may come from anybody. One pass reads it, with the type and range of every field;
// stored_session_check then asks whether the fields fit together; only then is a database opened.
#include "base/base64.h"
#include "base/err.h"
#include "base/json.h"
#include "base/json_raw.h"
#include "base/random_id.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/check.h"
#include "sessions/store/db.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHOLE ((INT64_C(1) << 53) - 1) // largest whole number that JSON carries everywhere
#define RAW_BYTES (1 << 20)            // of a request, of sampling parameters

// One object of the file, and its name in sentences.
struct reader {
    const cJSON *at;
    const char *raw; // the same, as written
    bool linear;     // of a version without branches
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

// What a getter of base/json.h said; with `required`, absence is a failure too.
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

static int get_int32(const struct reader *r, const char *key, int32_t *out) {
    int64_t v = 0;
    TRY(get_int(r, key, INT32_MIN, INT32_MAX, &v));
    *out = (int32_t)v;
    return 0;
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

// Text, or where JSON cannot hold it its Base64 under another key. *out stays NULL where it is
// neither.
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

static int get_array(const struct reader *r, const char *key, const cJSON **out, size_t *n) {
    struct err reason = {0};
    TRY(judge(r, key, json_get_array(r->at, key, out, &reason), true, &reason));
    const cJSON *item;
    *n = 0;
    cJSON_ArrayForEach(item, *out)++ *n;
    return 0;
}

static bool is_whole(const cJSON *item, double min, double max) {
    return cJSON_IsNumber(item) && item->valuedouble >= min && item->valuedouble <= max &&
           item->valuedouble == (double)(int64_t)item->valuedouble;
}

enum numbers { TOKEN_IDS, BITS }; // int32 from 0, uint32: both four bytes each

// *out: (n) allocated; NULL for none. want: as many as that, or SIZE_MAX for any.
static int copy_numbers(const struct reader *r, const char *key, enum numbers kind, size_t want,
                        void *out, size_t *n) {
    const cJSON *array, *item;
    TRY(get_array(r, key, &array, n));
    if (want != SIZE_MAX && *n != want)
        return refuse(r, "'%s' has %zu values, not %zu", key, *n, want);
    uint32_t *values = malloc((*n + 1) * sizeof *values);
    if (!values) return err_set(r->err, E_NOMEM, "no memory to import");
    *(uint32_t **)out = values;
    size_t i = 0;
    cJSON_ArrayForEach(item, array) {
        if (!is_whole(item, 0, kind == TOKEN_IDS ? INT32_MAX : UINT32_MAX))
            return refuse(r, "%s[%zu] is not a whole number from 0 to %lld", key, i,
                          kind == TOKEN_IDS ? (long long)INT32_MAX : (long long)UINT32_MAX);
        values[i++] = (uint32_t)item->valuedouble;
    }
    return 0;
}

// Per token a list of id, bits, id, bits ... An id of -1 (as bits: export writes them so) fills up.
static int copy_alternatives(const struct reader *r, size_t n_each, struct token_run *t) {
    const cJSON *array, *list, *item;
    size_t n, i = 0;
    if (!cJSON_GetObjectItemCaseSensitive(r->at, "alternatives")) return 0;
    TRY(get_array(r, "alternatives", &array, &n));
    if (n != t->n || n_each == 0)
        return refuse(r, "'alternatives' has %zu values, not %zu", n, n_each ? t->n : 0);
    t->alternatives = calloc(n * n_each + 1, sizeof *t->alternatives);
    if (!t->alternatives) return err_set(r->err, E_NOMEM, "no memory to import");
    uint32_t *values = (uint32_t *)t->alternatives;
    cJSON_ArrayForEach(list, array) {
        size_t k = 0;
        bool good = cJSON_IsArray(list);
        for (item = good ? list->child : NULL; item && good; item = item->next, k++) {
            good = k < n_each * 2 && is_whole(item, 0, UINT32_MAX);
            if (good) values[i * n_each * 2 + k] = (uint32_t)item->valuedouble;
        }
        if (!good || k != n_each * 2)
            return refuse(r, "alternatives[%zu] is not a list of %zu numbers of 32 bits", i,
                          n_each * 2);
        i++;
    }
    return 0;
}

// --- the parts of a session --------------------------------------------------

static int read_numbers(const struct reader *r, struct turn_numbers *n) {
    const char *source;
    TRY(get_int(r, "log_tokens", 0, WHOLE, &n->log_tokens));
    TRY(get_int(r, "kept_tokens", 0, WHOLE, &n->kept_tokens));
    TRY(get_int(r, "computed_tokens", 0, WHOLE, &n->computed_tokens));
    TRY(get_int(r, "queue_us", 0, WHOLE, &n->queue_us));
    TRY(get_int(r, "prefill_us", 0, WHOLE, &n->prefill_us));
    TRY(get_int(r, "first_token_us", 0, WHOLE, &n->first_token_us));
    TRY(get_int(r, "decode_us", 0, WHOLE, &n->decode_us));
    if (cJSON_GetObjectItemCaseSensitive(r->at, "resume_us")) // files of before have none
        TRY(get_int(r, "resume_us", 0, WHOLE, &n->resume_us));
    TRY(get_string(r, "cache_source", true, &source));
    if (record_cache_source_parse(source, &n->source) < 0)
        return refuse(r, "'cache_source' is none that a turn can have");
    return 0;
}

static int read_input(const struct reader *r, struct turn_record *t) {
    const char *kind;
    TRY(get_string(r, "input_kind", true, &kind));
    if (turn_input_kind_parse(kind, &t->kind) < 0)
        return refuse(r, "'input_kind' must be content, text, ids or continue");
    TRY(copy_bytes(r, "input_text", "input_text_base64", &t->input_text, &t->input_text_len));
    TRY(copy_numbers(r, "input_ids", TOKEN_IDS, SIZE_MAX, &t->input_ids, &t->n_input_ids));
    TRY(get_int(r, "log_first", -1, WHOLE, &t->log_first));
    return get_int(r, "n_input", 0, WHOLE, &t->n_input);
}

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

static int read_times(const struct reader *r, struct turn_record *t) {
    TRY(get_int(r, "seq_first", 0, WHOLE, &t->seq_first));
    TRY(get_int(r, "seq_last", 0, WHOLE, &t->seq_last));
    TRY(get_int(r, "created_ms", 0, WHOLE, &t->created_ms));
    TRY(get_int(r, "started_ms", 0, WHOLE, &t->started_ms));
    return get_int(r, "ended_ms", 0, WHOLE, &t->ended_ms);
}

static int read_turn(const struct reader *r, struct stored_turn *st) {
    struct turn_record *t = &st->rec;
    struct err reason = {0};
    int64_t n_alternatives;
    TRY(get_int(r, "turn", 0, WHOLE, &t->turn));
    t->parent = t->turn - 1;
    if (!r->linear) TRY(get_int(r, "parent", TURN_NONE, WHOLE, &t->parent));
    TRY(copy_string(r, "request_id", true, &t->request_id));
    TRY(copy_raw_object(r, "request", &t->request));
    TRY(read_input(r, t));
    TRY(copy_raw_object(r, "sampling", &t->sampling));
    TRY(judge(r, "seed", json_get_u64(r->at, "seed", &t->seed, &reason), true, &reason));
    TRY(get_bool(r, "logprobs", &t->logprobs));
    TRY(get_int(r, "n_alternatives", 0, SAMPLING_MAX_TOP_LOGPROBS, &n_alternatives));
    t->n_alternatives = (int32_t)n_alternatives;
    TRY(read_output(r, st));
    TRY(copy_short(r, "finish_reason", t->finish_reason, sizeof t->finish_reason));
    TRY(copy_short(r, "error_code", t->error_code, sizeof t->error_code));
    TRY(copy_string(r, "error_message", false, &t->error_message));
    TRY(read_numbers(r, &t->numbers));
    TRY(copy_string(r, "instance", true, &t->instance));
    TRY(copy_string(r, "build", true, &t->build));
    return read_times(r, t);
}

// What a tree adds. A file without it: read_turns knows the head.
static int read_branch(const struct reader *r, struct session_record *s) {
    s->head = s->forked_turn = TURN_NONE;
    if (r->linear) return 0;
    TRY(get_int(r, "head", TURN_NONE, WHOLE, &s->head));
    TRY(copy_string(r, "forked_from", false, &s->forked_from));
    return get_int(r, "forked_turn", TURN_NONE, WHOLE, &s->forked_turn);
}

static int read_session(const struct reader *r, struct session_record *s) {
    TRY(copy_string(r, "id", true, &s->id));
    TRY(copy_string(r, "owner", true, &s->owner));
    TRY(copy_string(r, "model", true, &s->model));
    TRY(copy_string(r, "fingerprint", true, &s->fingerprint));
    TRY(copy_string(r, "title", true, &s->title));
    TRY(get_bool(r, "auto_title", &s->auto_title));
    TRY(copy_string(r, "system", false, &s->system));
    TRY(copy_raw_object(r, "sampling", &s->sampling));
    TRY(get_int(r, "session_len", 0, WHOLE, &s->session_len));
    TRY(get_int32(r, "memory_len", &s->memory_len));
    TRY(get_int32(r, "sink_len", &s->sink_len));
    TRY(get_int(r, "created_ms", 0, WHOLE, &s->created_ms));
    TRY(get_int(r, "updated_ms", 0, WHOLE, &s->updated_ms));
    TRY(get_int(r, "closed_ms", 0, WHOLE, &s->closed_ms));
    TRY(get_int(r, "n_tokens", 0, WHOLE, &s->n_tokens));
    TRY(read_branch(r, s));
    TRY(get_int(r, "seq", 0, WHOLE, &s->seq));
    if (cJSON_GetObjectItemCaseSensitive(r->at, "cancel_after_ms")) // files of before have none
        TRY(get_int(r, "cancel_after_ms", 0, WHOLE, &s->cancel_after_ms));
    s->seq_reserved = s->seq; // files of before it was written
    if (!cJSON_GetObjectItemCaseSensitive(r->at, "seq_reserved")) return 0;
    return get_int(r, "seq_reserved", 0, WHOLE, &s->seq_reserved);
}

static int read_event(const struct reader *r, struct event_record *e) {
    const char *kind;
    TRY(get_int(r, "seq", 1, WHOLE, &e->seq));
    TRY(get_int(r, "n", 1, WHOLE, &e->n));
    TRY(get_string(r, "kind", true, &kind));
    if (event_kind_parse(kind, &e->kind) < 0) return refuse(r, "'kind' is no event's");
    TRY(get_int(r, "turn", -1, WHOLE, &e->turn));
    TRY(copy_short(r, "reason", e->reason, sizeof e->reason));
    return get_int(r, "at_ms", 0, WHOLE, &e->at_ms);
}

// --- the whole file ----------------------------------------------------------

static int read_turns(const struct reader *top, struct stored_session *s) {
    const cJSON *array, *item;
    size_t n, len;
    TRY(get_array(top, "turns", &array, &n));
    const char *raw = json_raw_value(top->raw, "turns", &len);
    if (!raw) return refuse(top, "'turns' must be written without escapes");
    s->turns = calloc(n + 1, sizeof *s->turns);
    if (!s->turns) return err_set(top->err, E_NOMEM, "no memory to import %zu turns", n);
    raw = json_raw_first(raw);
    cJSON_ArrayForEach(item, array) {
        struct reader r = {.at = item, .raw = raw, .linear = top->linear, .err = top->err};
        snprintf(r.where, sizeof r.where, "turns[%zu]", s->n_turns);
        if (!cJSON_IsObject(item)) return refuse(&r, "must be an object");
        TRY(read_turn(&r, &s->turns[s->n_turns++]));
        raw = json_raw_next(raw);
    }
    s->rec.n_turns = (int64_t)s->n_turns;
    if (top->linear) s->rec.head = s->rec.n_turns - 1;
    return 0;
}

static int read_events(const struct reader *top, struct stored_session *s) {
    const cJSON *array, *item;
    size_t n;
    TRY(get_array(top, "events", &array, &n));
    s->events = calloc(n + 1, sizeof *s->events);
    if (!s->events) return err_set(top->err, E_NOMEM, "no memory to import %zu events", n);
    cJSON_ArrayForEach(item, array) {
        struct reader r = {.at = item, .err = top->err};
        snprintf(r.where, sizeof r.where, "events[%zu]", s->n_events);
        if (!cJSON_IsObject(item)) return refuse(&r, "must be an object");
        TRY(read_event(&r, &s->events[s->n_events++]));
    }
    return 0;
}

static int read_header(struct reader *top, const char **session_raw, const cJSON **session) {
    const char *format;
    int64_t version;
    struct err reason = {0};
    size_t len;
    if (!cJSON_IsObject(top->at)) return refuse(top, "not a session that was exported");
    TRY(get_string(top, "format", true, &format));
    if (strcmp(format, ARCHIVE_FORMAT) != 0)
        return refuse(top, "'format' is '%.40s', not '%s'", format, ARCHIVE_FORMAT);
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
    cJSON *tree = json_parse(json, len, &json_limits_file, err);
    if (!tree) return err->code;
    struct reader top = {.at = tree, .raw = json, .where = "the file", .err = err};
    struct stored_session *s = calloc(1, sizeof *s);
    int rc = s ? read_file(&top, s) : err_set(err, E_NOMEM, "no memory to import");
    cJSON_Delete(tree); // before the check: a large file's tree is many times its size
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

static int add(struct store_db *db, struct stored_session *s, struct err *err) {
    int rc;
    TRY(store_db_write_begin(db, err));
    TRY_GOTO(end, store_db_exec(db, "BEGIN IMMEDIATE", err));
    rc = store_read_import_key(db, &s->rec.key, err);
    if (rc == 0) rc = store_write_session(db, s, err);
    if (rc == 0) rc = store_db_exec(db, "COMMIT", err);
    if (rc < 0) store_db_exec(db, "ROLLBACK", NULL);
end:
    store_db_write_end(db);
    return rc;
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
    rc = add(&db, s, err);
    store_db_close(&db, !served);
    return rc;
}
