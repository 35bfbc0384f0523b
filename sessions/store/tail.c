// See tail.h.
#include "sessions/store/tail.h"
#include "sessions/store/lock.h"
#include "sessions/store/write.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define PENDING_BYTES ((size_t)1 << 30)
#define FILE_BYTES ((size_t)1 << 30)

// The file has two halves. While turns run, records still needed move to the other half, because a
// new file with its rename would stop the net thread for most of a millisecond. Records in the half
// that was left are committed or in the other half too: a start that reads them again changes
// nothing.
#define HALF_BYTES ((int64_t)4 << 20)
#define END_BYTES 8 // zeros behind the last record, where older ones may follow

// A record's head, little-endian; then ids, logprobs, text_ends, alternatives, text, zeros up to a
// multiple of 8. Seed and creation time tell the turn from an older one of the same number, whose
// record a power loss may bring back.
struct head {
    uint32_t bytes; // of the whole record
    uint32_t crc;   // of everything behind this field
    int64_t key, turn, created_ms;
    uint64_t seed;
    int64_t first;
    uint32_t n, n_alternatives, text_len, zero;
};

struct tail {
    char *db_path, *path, *fresh_path;
    int fd;
    struct buf pending;
    int64_t base;   // where the records in use begin: 0 or HALF_BYTES
    int64_t size;   // of them
    int64_t end[2]; // of the bytes that each half may hold
};

static char *suffixed(const char *path, const char *suffix) {
    char *out;
    return asprintf(&out, "%s%s", path, suffix) < 0 ? NULL : out;
}

static int open_file(const char *db_path, const char *path, struct err *err) {
    return store_open_beside(db_path, path, O_WRONLY | O_TRUNC, err);
}

int tail_open(struct tail **out, const char *db_path, struct err *err) {
    struct tail *t = calloc(1, sizeof *t);
    if (!t) return err_set(err, E_NOMEM, "no memory for the tail of tokens");
    buf_init(&t->pending, PENDING_BYTES);
    t->db_path = suffixed(db_path, "");
    t->path = suffixed(db_path, ".tail");
    t->fresh_path = suffixed(db_path, ".tail-new");
    t->fd = t->db_path && t->path && t->fresh_path
                ? open_file(db_path, t->path, err)
                : err_set(err, E_NOMEM, "no memory for the tail of tokens");
    if (t->fd >= 0) {
        *out = t;
        return 0;
    }
    int rc = t->fd;
    tail_close(t, false);
    return rc;
}

void tail_close(struct tail *t, bool remove) {
    if (!t) return;
    if (t->fd >= 0) close(t->fd);
    if (remove) unlink(t->path);
    free(t->db_path);
    free(t->path);
    free(t->fresh_path);
    buf_release(&t->pending);
    free(t);
}

int64_t tail_bytes(const struct tail *t) {
    return t->size;
}

// --- writing -----------------------------------------------------------------

int tail_put(struct tail *t, int64_t key, const struct turn_record *turn,
             const struct token_run *run) {
    struct buf *b = &t->pending;
    size_t n = run->n, n_alt = (size_t)turn->n_alternatives, at = b->len;
    struct head h = {.key = key,
                     .turn = turn->turn,
                     .created_ms = turn->created_ms,
                     .seed = turn->seed,
                     .first = run->first,
                     .n = (uint32_t)n,
                     .n_alternatives = (uint32_t)n_alt,
                     .text_len = (uint32_t)run->text_len};
    buf_add(b, &h, sizeof h);
    buf_add(b, run->ids, n * sizeof *run->ids);
    buf_add(b, run->logprobs, n * sizeof *run->logprobs);
    buf_add(b, run->text_ends, n * sizeof *run->text_ends);
    if (n_alt) buf_add(b, run->alternatives, n * n_alt * sizeof *run->alternatives);
    buf_add(b, run->text, run->text_len);
    buf_add(b, "\0\0\0\0\0\0\0", -(b->len - at) % 8);
    if (b->error) { // sticky: drop this record, keep the ones before it
        b->error = 0;
        b->len = at;
        return E_NOMEM;
    }
    h.bytes = (uint32_t)(b->len - at);
    memcpy(b->data + at, &h, sizeof h);
    size_t skip = offsetof(struct head, key);
    h.crc = (uint32_t)crc32(0, (const unsigned char *)b->data + at + skip, h.bytes - skip);
    memcpy(b->data + at, &h, sizeof h);
    return 0;
}

static int write_at(int fd, const char *p, size_t len, int64_t at) {
    while (len > 0) {
        ssize_t n = pwrite(fd, p, len, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return -1;
        p += n, at += n, len -= (size_t)n;
    }
    return 0;
}

// Writes what was put into the half that begins at base. After a failure a part of it may be there;
// the next write overwrites it.
static int write_pending(struct tail *t, int64_t base, int64_t at, struct err *err) {
    size_t len = t->pending.len;
    int64_t *end = &t->end[base > 0], new_end = at + (int64_t)len;
    if (*end > new_end) buf_add(&t->pending, "\0\0\0\0\0\0\0", END_BYTES);
    int rc = 0;
    if (t->pending.error)
        rc = err_set(err, E_NOMEM, "no memory for the tail of tokens");
    else if (write_at(t->fd, t->pending.data, t->pending.len, base + at) < 0)
        rc = err_errno(err, "%s", t->path);
    if (*end < new_end) *end = new_end;
    buf_reset(&t->pending);
    return rc;
}

int tail_flush(struct tail *t, struct err *err) {
    size_t len = t->pending.len;
    if (len == 0) return 0;
    TRY(write_pending(t, t->base, t->size, err));
    t->size += (int64_t)len;
    return 0;
}

// Zeros after the last record end the tail, like unwritten bytes.
int tail_try(struct tail *t, struct err *err) {
    static const char zeros[4096];
    if (write_at(t->fd, zeros, sizeof zeros, t->base + t->size) < 0)
        return err_errno(err, "%s", t->path);
    if (t->size == 0 && ftruncate(t->fd, 0) == 0) t->base = t->end[0] = t->end[1] = 0;
    return 0;
}

void tail_rewrite_begin(struct tail *t) {
    buf_reset(&t->pending);
}

// A new file replaces the old one, with all bytes of it.
static int replace_file(struct tail *t, struct err *err) {
    int fd = open_file(t->db_path, t->fresh_path, err);
    if (fd < 0) return fd;
    int rc = write_at(fd, t->pending.data, t->pending.len, 0) < 0
                 ? err_errno(err, "%s", t->fresh_path)
                 : 0;
    if (rc == 0 && rename(t->fresh_path, t->path) < 0) rc = err_errno(err, "%s", t->path);
    if (rc < 0) {
        close(fd);
        unlink(t->fresh_path);
    } else {
        close(t->fd);
        t->fd = fd;
        t->base = 0;
        t->size = t->end[0] = (int64_t)t->pending.len;
        t->end[1] = 0;
    }
    buf_reset(&t->pending);
    return rc;
}

int tail_rewrite_end(struct tail *t, bool scrub, struct err *err) {
    if (t->pending.len == 0 && ftruncate(t->fd, 0) == 0) { // the common case: all is committed
        t->base = t->size = t->end[0] = t->end[1] = 0;
        return 0;
    }
    int64_t other = t->base ? 0 : HALF_BYTES, len = (int64_t)t->pending.len;
    if (scrub || len > HALF_BYTES || (other > 0 && t->size > HALF_BYTES))
        return replace_file(t, err);
    TRY(write_pending(t, other, 0, err));
    t->base = other;
    t->size = len;
    return 0;
}

// --- at the next start -------------------------------------------------------

// The record at p as a run that borrows from it; 0 or E_FORMAT.
static int parse(char *p, size_t left, struct head *h, struct token_run *run) {
    if (left < sizeof *h) return E_FORMAT;
    memcpy(h, p, sizeof *h);
    size_t skip = offsetof(struct head, key), each = 12 + (size_t)h->n_alternatives * 8;
    size_t used = sizeof *h + h->n * each + h->text_len;
    if (h->n == 0 || h->first < 0 || h->n_alternatives > SAMPLING_MAX_TOP_LOGPROBS ||
        h->bytes > left || h->bytes < used || h->bytes - used >= 8 || h->bytes % 8)
        return E_FORMAT;
    if (crc32(0, (const unsigned char *)p + skip, h->bytes - skip) != h->crc) return E_FORMAT;
    char *at = p + sizeof *h;
    *run = (struct token_run){.first = h->first, .n = h->n, .text_len = h->text_len};
    run->ids = (int32_t *)at;
    run->logprobs = (float *)(at += h->n * 4);
    run->text_ends = (uint32_t *)(at += h->n * 4);
    at += h->n * 4;
    if (h->n_alternatives) run->alternatives = (struct engine_alternative *)at;
    run->text = at + (size_t)h->n * h->n_alternatives * 8;
    return 0;
}

// How many tokens of the record's turn the database has, and where their text ends; -1: the turn
// has its end, or there is no such turn.
static int have_tokens(struct store_db *db, const struct head *h, int64_t *n, int64_t *text_len,
                       struct err *err) {
    sqlite3_stmt *s = store_db_bind(
        db,
        "SELECT coalesce(sum(length(p.ids) / 4), 0), coalesce(sum(length(p.text)), 0) FROM turns t"
        " LEFT JOIN tokens p ON p.session = t.session AND p.turn = t.turn WHERE t.session = ?1 AND"
        " t.turn = ?2 AND t.created_ms = ?3 AND t.seed = ?4 AND t.n_alternatives = ?5 AND"
        " t.log_first >= 0 AND t.finish_reason IS NULL GROUP BY t.key",
        NUMBERS(h->key, h->turn, h->created_ms, (int64_t)h->seed, h->n_alternatives), err);
    int rc = 0;
    *n = -1, *text_len = 0;
    if (!s) return err->code;
    while (store_db_row(db, s, &rc, err)) {
        *n = sqlite3_column_int64(s, 0);
        *text_len = sqlite3_column_int64(s, 1);
    }
    return rc;
}

// Drops the run's first n tokens, which the database has.
static void skip_tokens(struct token_run *run, size_t n, size_t n_alternatives, uint32_t start) {
    run->first += (int64_t)n;
    run->ids += n, run->logprobs += n, run->text_ends += n, run->n -= n;
    if (run->alternatives) run->alternatives += n * n_alternatives;
    run->text += start, run->text_len -= start;
}

static int take_record(struct store_db *db, const struct head *h, struct token_run *run,
                       int64_t *n_tokens, struct err *err) {
    int64_t have, text_len;
    TRY(have_tokens(db, h, &have, &text_len, err));
    // The turn has its end, a power loss left a gap before the run, or the database has it all.
    if (have < run->first || have >= run->first + (int64_t)run->n) return 0;
    size_t n_skip = (size_t)(have - run->first);
    int64_t begins = (int64_t)run->text_ends[run->n - 1] - (int64_t)run->text_len;
    int64_t start = text_len - begins; // bytes of the run's text that the database has
    if (start < 0 || start > (int64_t)run->text_len) return 0;
    skip_tokens(run, n_skip, h->n_alternatives, (uint32_t)start);
    struct turn_save turn = {.kind = TURN_GROW, .tokens = *run};
    turn.rec.turn = h->turn;
    turn.rec.n_alternatives = (int32_t)h->n_alternatives;
    struct session_save save = {.turns = &turn, .n_turns = 1};
    save.rec.key = h->key;
    TRY(store_write_save(db, &save, err));
    *n_tokens += (int64_t)run->n;
    return 0;
}

static int take_records(struct store_db *db, const struct buf *file, size_t at, int64_t *n_tokens,
                        struct err *err) {
    struct head h;
    struct token_run run;
    for (; at < file->len && parse(file->data + at, file->len - at, &h, &run) == 0; at += h.bytes)
        TRY(take_record(db, &h, &run, n_tokens, err));
    return 0;
}

struct taking {
    struct buf file;
    int64_t *n_tokens;
};

static int take_halves(struct store_db *db, void *ctx, struct err *err) {
    struct taking *t = ctx;
    TRY(take_records(db, &t->file, 0, t->n_tokens, err));
    return take_records(db, &t->file, HALF_BYTES, t->n_tokens, err);
}

static int take_file(struct store_db *db, const char *path, int64_t *n_tokens, struct err *err) {
    struct taking t = {.n_tokens = n_tokens};
    int rc = buf_read_file(&t.file, path, FILE_BYTES, err);
    if (rc == 0 && t.file.len > 0) rc = store_db_transaction(db, take_halves, &t, err);
    buf_release(&t.file);
    return rc;
}

int tail_recover(struct store_db *db, int64_t *n_tokens, struct err *err) {
    char *path = suffixed(db->path, ".tail");
    *n_tokens = 0;
    if (!path) return err_set(err, E_NOMEM, "no memory to read the tail of tokens");
    int rc = access(path, F_OK) == 0 ? take_file(db, path, n_tokens, err) : 0;
    free(path);
    return rc;
}

int tail_absorb(struct store_db *db, struct err *err) {
    int64_t n_tokens;
    TRY(tail_recover(db, &n_tokens, err));
    char *path = suffixed(db->path, ".tail");
    if (!path) return err_set(err, E_NOMEM, "no memory to read the tail of tokens");
    int rc = unlink(path) < 0 && errno != ENOENT ? err_errno(err, "%s", path) : 0;
    free(path);
    return rc;
}
