// Reading, exporting and removing. See archive.h.
#include "base/base64.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/json_form.h"
#include "base/utf8.h"
#include "sessions/archive/archive.h"
#include "sessions/archive/backup.h"
#include "sessions/archive/turn_pieces.h"
#include "sessions/store/columns.h"
#include "sessions/store/read.h"
#include "sessions/store/tail.h"
#include "sessions/store/write.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_ROWS 200

struct archive {
    struct store_db db;
};

int archive_open(struct archive **out, const char *path, struct err *err) {
    struct archive *a = calloc(1, sizeof *a);
    if (!a) return err_set(err, E_NOMEM, "no memory to open %s", path);
    int rc = store_db_open_reader(&a->db, path, err);
    if (rc < 0) {
        free(a);
        return rc;
    }
    *out = a;
    return 0;
}

void archive_close(struct archive *a) {
    if (!a) return;
    store_db_close(&a->db, false);
    free(a);
}

static int list_page(struct archive *a, struct store_list *page, archive_each each, void *ctx,
                     struct err *err) {
    int rc = store_read_list(&a->db, page, err);
    for (size_t i = 0; rc == 0 && i < page->n_rows; i++) rc = each(ctx, &page->rows[i]);
    return rc;
}

int archive_list(struct archive *a, const char *owner, const char *query, const char *forked_from,
                 int64_t limit, archive_each each, void *ctx, struct err *err) {
    struct store_list page = {
        .owner = (char *)owner, .query = (char *)query, .forked_from = (char *)forked_from};
    char cursor[sizeof page.next];
    int64_t left = limit > 0 ? limit : INT64_MAX;
    int rc;
    do {
        page.limit = left < PAGE_ROWS ? left : PAGE_ROWS;
        page.next[0] = '\0';
        rc = list_page(a, &page, each, ctx, err);
        left -= (int64_t)page.n_rows;
        memcpy(cursor, page.next, sizeof cursor);
        page.cursor = cursor;
        store_list_release(&page);
    } while (rc == 0 && cursor[0] && left > 0);
    return rc;
}

int archive_load(struct archive *a, const char *owner, const char *id, struct stored_session **out,
                 struct err *err) {
    struct err local = {0};
    int64_t key;
    if (!err) err = &local;
    TRY(store_read_key(&a->db, owner, id, &key, err));
    return store_read_session(&a->db, key, out, err);
}

// --- export ------------------------------------------------------------------

static void write_bits(struct json_writer *w, const char *key, const void *values, size_t n) {
    json_open(w, key, '[');
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)values + i * sizeof bits, sizeof bits);
        json_put_int(w, NULL, bits);
    }
    json_close(w, ']');
}

static void write_alternatives(struct json_writer *w, const struct token_run *t,
                               size_t n_alternatives) {
    if (!t->alternatives) return;
    json_open(w, "alternatives", '['); // per token: id, bits, id, bits ...
    for (size_t i = 0; i < t->n; i++)
        write_bits(w, NULL, t->alternatives + i * n_alternatives, n_alternatives * 2);
    json_close(w, ']');
}

// A model's text may hold a NUL, which some JSON readers refuse, or bytes that are no UTF-8.
static void write_bytes(struct json_writer *w, const char *key, const char *key_base64,
                        const char *bytes, size_t len) {
    struct buf encoded;
    if (utf8_valid(bytes, len) && !memchr(bytes, '\0', len)) {
        json_put_text(w, key, bytes, len);
        return;
    }
    buf_init(&encoded, w->buf->max);
    if (base64_encode(&encoded, bytes, len) < 0)
        w->buf->error = encoded.error;
    else
        json_put_string(w, key_base64, buf_z(&encoded));
    buf_release(&encoded);
}

static void write_column(struct json_writer *w, const struct column *c, const void *record) {
    const char *name = column_name(c);
    const void *p = column_field(c, record);
    const char *text = c->type >= COLUMN_TEXT ? column_pointer(c, record) : p;
    char base64[64];
    switch (c->type) {
    case COLUMN_INT:
        json_put_int(w, name, *(const int64_t *)p);
        break;
    case COLUMN_INT32:
        json_put_int(w, name, *(const int32_t *)p);
        break;
    case COLUMN_BOOL:
        json_put_bool(w, name, *(const bool *)p);
        break;
    case COLUMN_U64:
        json_put_u64_string(w, name, *(const uint64_t *)p);
        break;
    case COLUMN_NAME:
        json_put_string(w, name, c->name_of(*(const int *)p));
        break;
    case COLUMN_WORD:
        if (text[0]) json_put_string(w, name, text);
        break;
    case COLUMN_SHORT:
        json_put_string(w, name, text[0] ? text : NULL);
        break;
    case COLUMN_TEXT:
        json_put_string(w, name, text);
        break;
    case COLUMN_OBJECT:
        if (text) json_put_raw(w, name, text, strlen(text)); // optional ones are left out
        break;
    case COLUMN_BYTES:
        snprintf(base64, sizeof base64, "%s_base64", name);
        if (text)
            write_bytes(w, name, base64, text, *column_len(c, record));
        else
            json_put_null(w, name);
        break;
    case COLUMN_ARRAY:
        json_put_ids(w, name, column_pointer(c, record), *column_len(c, record));
        break;
    default: // in no file
        break;
    }
}

static bool is_left_out(const struct column *c, const void *record) {
    if (!(c->flags & COLUMN_SPARSE)) return false;
    if (c->type == COLUMN_INT) return *(const int64_t *)column_field(c, record) == 0;
    if (c->type == COLUMN_INT32) return *(const int32_t *)column_field(c, record) == 0;
    if (c->type == COLUMN_BOOL) return !*(const bool *)column_field(c, record);
    return c->type >= COLUMN_TEXT && !column_pointer(c, record);
}

static void write_output(struct json_writer *w, const struct stored_turn *t) {
    const struct token_run *k = &t->tokens;
    write_bytes(w, "text", "text_base64", k->text ? k->text : "", k->text_len);
    json_put_ids(w, "ids", k->ids, k->n);
    write_bits(w, "logprob_bits", k->logprobs, k->n);
    write_bits(w, "text_ends", k->text_ends, k->n);
    write_alternatives(w, k, (size_t)t->rec.n_alternatives);
}

// `turn` is for tables with an output.
static void write_record(struct json_writer *w, const char *key, const struct record_table *table,
                         const void *record, const struct stored_turn *turn) {
    json_open(w, key, '{');
    for (size_t i = 0; i < table->n; i++) {
        const struct column *c = &table->columns[i];
        if (c->type == COLUMN_OUTPUT) write_output(w, turn);
        if (!(c->flags & COLUMN_UNSENT) && !is_left_out(c, record)) write_column(w, c, record);
    }
    json_close(w, '}');
}

static void write_head(struct json_writer *w, const struct session_record *r) {
    json_form(w, "{format:%s,version:%d", ARCHIVE_FORMAT, ARCHIVE_FORMAT_VERSION);
    write_record(w, "session", &record_tables[TABLE_SESSIONS], r, NULL);
    json_open(w, "turns", '[');
}

static int write_turn(struct json_writer *w, const struct stored_turn *t) {
    write_record(w, NULL, &record_tables[TABLE_TURNS], &t->rec, t);
    return 0;
}

static void write_events_head(struct json_writer *w) {
    json_form(w, "],events:[");
}

static void write_events(struct json_writer *w, const struct stored_session *s) {
    for (size_t i = 0; i < s->n_events; i++)
        write_record(w, NULL, &record_tables[TABLE_EVENTS], &s->events[i], NULL);
}

static void write_end(struct json_writer *w) {
    json_form(w, "]}");
}

int archive_export(const struct stored_session *s, struct buf *out) {
    struct json_writer w;
    json_writer_init(&w, out);
    write_head(&w, &s->rec);
    for (size_t i = 0; i < s->n_turns; i++) write_turn(&w, &s->turns[i]);
    write_events_head(&w);
    write_events(&w, s);
    write_end(&w);
    return out->error;
}

// --- an export in pieces -----------------------------------------------------

#define PIECE_EVENTS 256

enum export_part { PART_HEAD, PART_TURNS, PART_EVENTS, PART_OVER };
// Turns that have ended and events are never changed, so short transactions see one state. Turns
// that had not ended when the export began are kept as they were then.
struct export {
    struct store_cursor cursor; // first
    char *id, *owner;
    enum export_part part;
    struct turn_pieces pieces;
    bool comma;                // an event has been written
    int64_t key, n_turns, seq; // as of the beginning
    int64_t turn, event;       // the next turn; the last event
    int64_t unfinished;        // turns from here on are in `open`
    struct stored_session *open;
};

static void export_free(struct store_cursor *c) {
    struct export *x = (struct export *)c;
    stored_session_free(x->open);
    free(x->id);
    free(x->owner);
    free(x);
}

static int export_head(struct export *x, struct store_db *db, struct buf *out, struct err *err) {
    struct session_record rec = {0};
    struct json_writer w;
    TRY(store_read_key(db, x->owner, x->id, &x->key, err)); // of another owner: none
    TRY(store_read_unfinished(db, x->key, &x->unfinished, err));
    int rc = store_read_row(db, x->key, &rec, err);
    struct store_part rest = {.key = x->key, .turn = x->unfinished, .end = rec.n_turns};
    if (rc == 0 && x->unfinished < rec.n_turns) rc = store_read_part(db, &rest, &x->open, err);
    if (rc == 0) {
        if (x->open && x->open->rec.seq_reserved > rec.seq_reserved)
            rec.seq_reserved = x->open->rec.seq_reserved;
        x->n_turns = rec.n_turns;
        x->seq = rec.seq;
        json_writer_init(&w, out);
        write_head(&w, &rec);
        x->part = PART_TURNS;
    }
    session_record_release(&rec);
    return rc;
}

static int export_turn(struct export *x, const struct stored_turn *t, struct buf *out) {
    int rc = turn_pieces_next(&x->pieces, write_turn, t, out);
    if (rc == 1) x->turn++;
    return rc < 0 ? rc : 0;
}

static int export_turns(struct export *x, struct store_db *db, struct buf *out, struct err *err) {
    struct store_part p = {.key = x->key, .turn = x->turn, .end = x->turn + 1};
    struct stored_session *part = NULL;
    struct json_writer w = {.buf = out};
    if (x->turn == x->n_turns) {
        write_events_head(&w);
        x->part = PART_EVENTS;
        return out->error;
    }
    if (x->turn >= x->unfinished)
        return export_turn(x, x->open->turns + (x->turn - x->unfinished), out);
    TRY(store_read_part(db, &p, &part, err));
    int rc = part->n_turns == 1 ? export_turn(x, part->turns, out) : E_CORRUPT;
    stored_session_free(part);
    return rc;
}

static int export_events(struct export *x, struct store_db *db, struct buf *out, struct err *err) {
    struct store_part p = {
        .key = x->key, .after = x->event, .upto = x->seq, .n_events = PIECE_EVENTS};
    struct stored_session *part = NULL;
    struct json_writer w = {.buf = out, .comma = x->comma};
    TRY(store_read_part(db, &p, &part, err));
    write_events(&w, part);
    x->comma = w.comma;
    if (part->n_events) x->event = part->events[part->n_events - 1].seq;
    if (part->n_events < PIECE_EVENTS) {
        write_end(&w);
        x->part = PART_OVER;
    }
    stored_session_free(part);
    return out->error;
}

static int is_still_there(struct export *x, struct store_db *db, struct err *err) {
    int64_t key = 0;
    int rc = store_read_key(db, x->owner, x->id, &key, err);
    if (rc == E_NOTFOUND || (rc == 0 && key != x->key))
        return err_set(err, E_NOTFOUND, "the session was deleted while it was exported");
    return rc;
}

static int export_some(struct export *x, struct store_db *db, struct buf *out, struct err *err) {
    if (x->part != PART_HEAD) TRY(is_still_there(x, db, err));
    int rc = 0;
    while (rc == 0 && x->part != PART_OVER && out->len < PIECE_BYTES)
        rc = x->part == PART_HEAD    ? export_head(x, db, out, err)
             : x->part == PART_TURNS ? export_turns(x, db, out, err)
                                     : export_events(x, db, out, err);
    return rc;
}

static int export_read(struct store_cursor *c, struct store_db *db, struct buf *out,
                       struct err *err) {
    struct export *x = (struct export *)c;
    TRY(store_db_exec(db, "BEGIN", err));
    int rc = export_some(x, db, out, err);
    store_db_exec(db, "COMMIT", NULL);
    if (rc < 0 && !err->code) err_set(err, rc, "the record of this session cannot be exported");
    return rc < 0 ? rc : x->part != PART_OVER;
}

struct store_cursor *archive_export_begin(const char *owner, const char *id) {
    struct export *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->cursor = (struct store_cursor){export_read, export_free};
    x->id = strdup(id);
    x->owner = strdup(owner);
    if (x->id && x->owner) return &x->cursor;
    export_free(&x->cursor);
    return NULL;
}

#define EXPORT_BYTES ((size_t)1 << 31)

static int write_line(int fd, const struct buf *text, const char *path, struct err *err) {
    int own = dup(fd); // fd keeps the lock
    FILE *f = own < 0 ? NULL : fdopen(own, "w");
    if (!f) {
        int rc = err_errno(err, "%s", path);
        if (own >= 0) close(own);
        return rc;
    }
    fwrite(text->data, 1, text->len, f);
    putc('\n', f);
    int rc = fflush(f) == 0 && !ferror(f) ? 0 : err_errno(err, "%s", path);
    if (fclose(f) != 0 && rc == 0) rc = err_errno(err, "%s", path);
    return rc;
}

int archive_export_file(const struct stored_session *s, const char *path, struct err *err) {
    struct buf text;
    char part[4096];
    buf_init(&text, EXPORT_BYTES);
    int rc = archive_export(s, &text);
    if (rc < 0) err_set(err, rc, "session %s is too large to export", s->rec.id);
    if (rc == 0 && access(path, F_OK) == 0)
        rc = err_set(err, E_EXISTS, "%s: there is such a file already", path);
    if (rc == 0 && snprintf(part, sizeof part, "%s.part", path) >= (int)sizeof part)
        rc = err_set(err, E_LIMIT, "the export's path is too long");
    int fd = rc < 0 ? rc : backup_part(part, err);
    if (fd < 0) {
        rc = fd;
    } else {
        rc = write_line(fd, &text, part, err);
        if (rc == 0) rc = backup_name(part, path, err);
        if (rc < 0) unlink(part);
        close(fd);
    }
    buf_release(&text);
    return rc;
}

// --- removing ----------------------------------------------------------------

// By number: the rest of the record may be damaged.
static int remove_it(struct store_db *db, void *key, struct err *err) {
    return store_write_delete(db, *(int64_t *)key, err);
}

int archive_remove(const char *path, const char *owner, const char *id, struct err *err) {
    struct store_db db;
    int64_t key;
    struct err local = {0};
    if (!err) err = &local;
    if (access(path, F_OK) < 0) return err_errno(err, "%s", path); // opening would make the file
    TRY(store_db_open(&db, path, err));
    int rc = tail_absorb(&db, err);
    if (rc == 0) rc = store_read_key(&db, owner, id, &key, err);
    if (rc == 0) rc = store_db_transaction(&db, remove_it, &key, err);
    store_db_close(&db, true); // with a checkpoint: the log holds the words too
    return rc;
}
