// See fetch.h.
#include "ws/hub/fetch.h"
#include "base/clock.h"
#include "ws/hub/blob_writer.h"
#include <stdlib.h>
#include <string.h>

#define TEXT_TRIES 4       // 3.5 s without network: the first answer decides whether to go on
#define FILE_TRIES 7       // 31.5 s, in a row without a byte
#define MAX_WAIT_MS 600000 // that a host may ask for
#define ROUND_MS 200

// How long to wait after failure number `failures` (from 1) in a row; -1: no more tries.
static int64_t delay_ms(const struct transfer *t, int failures, int tries) {
    if (t->end == TRANSFER_FAILED || failures >= tries || t->delay_ms > MAX_WAIT_MS) return -1;
    if (t->delay_ms >= 0) return t->delay_ms;
    return (int64_t)250 << failures; // half a second, one, two ...
}

static int64_t now_ms(void) {
    return clock_mono_us(&clock_system) / 1000;
}

static void say_waiting(const struct fetch_watch *w, const struct transfer *t, int64_t ms) {
    if (ms >= 1000) w->waiting(w->ctx, t->err.text, ms / 1000);
}

// The sentence of the last failure.
static int give_up(const struct transfer *t, struct err *err) {
    if (t->end != TRANSFER_FAILED && t->delay_ms > MAX_WAIT_MS)
        return err_set(err, t->err.code, "%s: it asks to wait for %lld seconds", t->err.text,
                       (long long)(t->delay_ms / 1000));
    return err_set(err, t->err.code, "%s", t->err.text);
}

// --- a text ---

static int take_text(void *ctx, const char *bytes, size_t n, long status, struct err *err) {
    struct buf *out = ctx;
    if (buf_add(out, bytes, n) == 0) return 0;
    if (out->error == E_NOMEM) return err_set(err, E_NOMEM, "no memory for the hub's answer");
    return err_set(err, E_LIMIT, "the hub's answer is longer than %zu MiB", out->max >> 20);
}

static int wait_for(struct hub_net *n, int64_t ms, struct err *err) {
    const int64_t until = now_ms() + ms;
    while (now_ms() < until) TRY(hub_net_run(n, ROUND_MS, err));
    return 0;
}

int fetch_text(struct hub_net *n, const char *url, const char *repo, const char *what, size_t max,
               struct buf *out, const struct fetch_watch *w, struct err *err) {
    struct transfer t = {.to = -1, .repo = repo, .what = what, .take = take_text, .ctx = out};
    buf_init(out, max);
    for (int failures = 1;; failures++) {
        int rc = 0;
        buf_reset(out);
        transfer_start(&t, n, url);
        while (rc == 0 && t.end == TRANSFER_RUNNING) rc = hub_net_run(n, ROUND_MS, err);
        transfer_stop(&t);
        if (rc < 0 || t.end == TRANSFER_DONE) return rc;
        int64_t delay = delay_ms(&t, failures, TEXT_TRIES);
        if (delay < 0) return give_up(&t, err);
        say_waiting(w, &t, delay);
        TRY(wait_for(n, delay, err));
    }
}

// --- a file, in pieces ---

struct piece {
    struct download *of;
    struct transfer transfer;
    int64_t from, to;    // [from, to) of the file
    int64_t got;         // bytes that have arrived
    int64_t flushed;     // bytes of `got` that are written
    int64_t skip;        // bytes to skip of an answer that begins with the file's first byte
    char *held;          // (FETCH_PIECE_BYTES) [flushed, got) wait here
    int64_t start_at_ms; // PIECE_WAITS: the next try
    int failures;        // in a row without a byte
    bool answered;       // the transfer has brought bytes
    enum { PIECE_IDLE, PIECE_WAITS, PIECE_RUNS, PIECE_ARRIVED } state;
};

// Whether the host serves ranges. The first piece finds out, while the others wait. Without ranges one answer brings
// the whole file, the bytes already written are skipped, and after a cut the host sends all of it again.
enum ranges { RANGES_UNKNOWN, RANGES_SENT, RANGES_NONE };

struct download {
    struct hub_net *net;
    const struct fetch_file *f;
    const struct fetch_watch *watch;
    struct blob_writer out;      // out.written: bytes in the file
    int64_t next;                // the first byte that no piece fetches
    char address[ADDRESS_BYTES]; // where the hub redirects to; "": ask the hub
    enum ranges ranges;
    struct piece pieces[FETCH_CONNECTIONS];
};

static bool is_flushed(const struct piece *p) {
    return p->flushed == p->to - p->from;
}

// Whether the file's next bytes are this piece's.
static bool is_head(const struct piece *p) {
    return p->from + p->flushed == p->of->out.written && !is_flushed(p);
}

static int write_out(struct piece *p, const char *bytes, size_t n, struct err *err) {
    TRY(blob_writer_add(&p->of->out, bytes, n, err));
    p->flushed += (int64_t)n;
    p->of->watch->progress(p->of->watch->ctx, (int64_t)n);
    return 0;
}

static int flush_held(struct piece *p, struct err *err) {
    if (!is_head(p) || p->got == p->flushed) return 0;
    return write_out(p, p->held + p->flushed, (size_t)(p->got - p->flushed), err);
}

// The first bytes of an answer: whether the host sent the range or the whole file.
static int begin_answer(struct piece *p, long status, struct err *err) {
    struct download *d = p->of;
    const struct transfer *t = &p->transfer;
    p->answered = true;
    p->skip = 0;
    if (t->answer.total >= 0 && t->answer.total != d->f->file->size)
        return err_set(err, E_FORMAT, "%s has %lld bytes; the hub's list says %lld", t->what,
                       (long long)t->answer.total, (long long)d->f->file->size);
    if (!address_same_origin(t->url, d->f->url)) memcpy(d->address, t->url, sizeof d->address);
    if (status == 206) {
        if (d->ranges == RANGES_UNKNOWN) d->ranges = RANGES_SENT;
        return 0;
    }
    if (!is_head(p)) return err_set(err, E_BUSY, "the host serves no ranges"); // see ended()
    TRY(flush_held(p, err));
    p->skip = p->from + p->got;
    p->to = d->next = d->f->file->size;
    d->ranges = RANGES_NONE;
    return 0;
}

static int take_piece(void *ctx, const char *bytes, size_t n, long status, struct err *err) {
    struct piece *p = ctx;
    if (!p->answered) TRY(begin_answer(p, status, err));
    const size_t skip = p->skip < (int64_t)n ? (size_t)p->skip : n;
    p->skip -= (int64_t)skip;
    bytes += skip;
    n -= skip;
    if (n == 0) return 0;
    if ((int64_t)n > p->to - p->from - p->got)
        return err_set(err, E_FORMAT, "%s: the host sends more bytes than the hub's list says",
                       p->transfer.what);
    p->failures = 0;
    if (is_head(p)) {
        TRY(flush_held(p, err));
        p->got += (int64_t)n;
        return write_out(p, bytes, n, err);
    }
    // Only a piece that is written at once is longer than its memory.
    if ((int64_t)n > FETCH_PIECE_BYTES - p->got)
        return err_set(err, E_INTERNAL, "%s: no room for a piece", p->transfer.what);
    memcpy(p->held + p->got, bytes, n);
    p->got += (int64_t)n;
    return 0;
}

static void start(struct piece *p) {
    struct download *d = p->of;
    p->state = PIECE_RUNS;
    p->answered = false;
    p->transfer.from = p->from + p->got;
    p->transfer.to = p->to - 1;
    transfer_start(&p->transfer, d->net, d->address[0] ? d->address : d->f->url);
}

static void drop(struct piece *p) {
    transfer_stop(&p->transfer);
    p->state = PIECE_IDLE;
}

static bool is_any_active(const struct download *d) {
    for (int i = 0; i < FETCH_CONNECTIONS; i++)
        if (d->pieces[i].state != PIECE_IDLE) return true;
    return false;
}

// Without ranges only the head continues, to its own end; one more request then brings the rest.
static void drop_others(struct download *d) {
    d->next = d->out.written;
    for (int i = 0; i < FETCH_CONNECTIONS; i++) {
        struct piece *p = &d->pieces[i];
        if (p->state != PIECE_IDLE && !is_head(p)) drop(p);
        if (p->state != PIECE_IDLE) d->next = p->to;
    }
}

// Gives the next bytes of the file to an idle piece.
static int assign(struct download *d, struct piece *p, struct err *err) {
    const int64_t left = d->f->file->size - d->next;
    if (left <= 0 || (d->ranges != RANGES_SENT && is_any_active(d))) return 0;
    if (!p->held && !(p->held = malloc((size_t)FETCH_PIECE_BYTES)))
        return err_set(err, E_NOMEM, "no memory for a download");
    p->from = d->next;
    p->to =
        p->from + (left < FETCH_PIECE_BYTES || d->ranges == RANGES_NONE ? left : FETCH_PIECE_BYTES);
    p->got = p->flushed = 0;
    p->failures = 0;
    d->next = p->to;
    start(p);
    return 0;
}

// A piece whose transfer has ended.
static int ended(struct piece *p, struct err *err) {
    struct download *d = p->of;
    struct transfer *t = &p->transfer;
    if (t->end == TRANSFER_DONE && p->from + p->got == p->to) {
        p->state = PIECE_ARRIVED;
        return 0;
    }
    if (t->end == TRANSFER_FAILED && t->err.code == E_BUSY && t->status == 200) { // begin_answer()
        d->ranges = RANGES_NONE;
        drop(p);
        return 0;
    }
    if (t->end == TRANSFER_DONE) { // a body that ended early
        t->end = TRANSFER_RETRY;
        t->delay_ms = -1;
        err_set(&t->err, E_IO, "%s: the connection ended early", t->what);
    }
    int64_t delay = delay_ms(t, ++p->failures, FILE_TRIES);
    if (delay < 0) return give_up(t, err);
    d->address[0] = '\0'; // it may have expired
    if (t->end == TRANSFER_EXPIRED && p->failures == 1) delay = 0;
    if (p->failures > 1 || t->delay_ms >= 0) say_waiting(d->watch, t, delay);
    p->state = PIECE_WAITS;
    p->start_at_ms = now_ms() + delay;
    return 0;
}

static int step(struct download *d, struct err *err) {
    for (int i = 0; i < FETCH_CONNECTIONS; i++) {
        struct piece *p = &d->pieces[i];
        if (p->state == PIECE_RUNS && p->transfer.end != TRANSFER_RUNNING) TRY(ended(p, err));
        if (p->state == PIECE_WAITS && now_ms() >= p->start_at_ms) start(p);
    }
    // Writing one piece can make another one the head.
    for (int i = 0; i < FETCH_CONNECTIONS * FETCH_CONNECTIONS; i++) {
        struct piece *p = &d->pieces[i % FETCH_CONNECTIONS];
        if (p->state == PIECE_IDLE) continue;
        TRY(flush_held(p, err));
        if (p->state == PIECE_ARRIVED && is_flushed(p)) p->state = PIECE_IDLE;
    }
    if (d->ranges == RANGES_NONE) drop_others(d);
    for (int i = 0; i < FETCH_CONNECTIONS; i++)
        if (d->pieces[i].state == PIECE_IDLE) TRY(assign(d, &d->pieces[i], err));
    return d->out.written < d->f->file->size ? hub_net_run(d->net, ROUND_MS, err) : 0;
}

static int run(struct download *d, struct err *err) {
    int rc = 0;
    d->next = d->out.written;
    for (int i = 0; i < FETCH_CONNECTIONS; i++) {
        struct piece *p = &d->pieces[i];
        p->of = d;
        p->transfer = (struct transfer){
            .repo = d->f->repo, .what = d->f->file->path, .take = take_piece, .ctx = p};
    }
    while (rc == 0 && d->out.written < d->f->file->size) rc = step(d, err);
    for (int i = 0; i < FETCH_CONNECTIONS; i++) {
        drop(&d->pieces[i]);
        free(d->pieces[i].held);
    }
    return rc;
}

static int fetch_once(struct hub_net *n, const struct fetch_file *f, const struct fetch_watch *w,
                      bool *resumed, struct err *err) {
    struct download *d = calloc(1, sizeof *d);
    if (!d) return err_set(err, E_NOMEM, "no memory for a download");
    d->net = n;
    d->f = f;
    d->watch = w;
    int rc = blob_writer_open(&d->out, f->path, f->file, err);
    if (rc == 0) {
        *resumed = d->out.written > 0;
        w->progress(w->ctx, d->out.written);
        rc = run(d, err);
    }
    if (rc == 0) rc = blob_writer_finish(&d->out, err);
    if (rc == E_CORRUPT) w->progress(w->ctx, -d->out.written); // the file was removed
    blob_writer_close(&d->out);
    free(d);
    return rc;
}

int fetch_blob(struct hub_net *n, const struct fetch_file *f, const struct fetch_watch *w,
               struct err *err) {
    bool resumed = false;
    struct err first = {0};
    int rc = fetch_once(n, f, w, &resumed, &first);
    // Another program may have left a beginning with holes.
    if (rc == E_CORRUPT && resumed) return fetch_once(n, f, w, &resumed, err);
    return rc < 0 ? err_set(err, rc, "%s", first.text) : 0;
}
