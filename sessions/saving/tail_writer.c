// Tokens enter the tail before clients see them, and leave it when the database has them. See
// tail_writer.h, tail.h.
//
// While the tail cannot be written (a full disk), deltas wait for their commit: clients get them later,
// but never before they are safe.
#include "sessions/saving/tail_writer.h"
#include "base/log.h"
#include "base/metrics.h"
#include "sessions/store/tail.h"
#include <stdio.h>
#include <string.h>

// Rewritten at this size, so that a start reads little.
#define TAIL_BYTES (1 << 20)

int tail_writer_open(struct sessions *ss, const char *db_path, struct err *err) {
    if (ss->o.durable != DURABLE_DELTA || strcmp(db_path, ":memory:") == 0) return 0;
    return tail_open(&ss->tail, db_path, err);
}

void tail_writer_close(struct sessions *ss, bool all_saved) {
    tail_close(ss->tail, all_saved);
    ss->tail = NULL;
}

// Notes the result of a write. A write of no bytes says nothing about the disk.
static void say(struct sessions *ss, int rc, const struct err *err, bool wrote) {
    if (rc < 0) {
        if (!ss->tail_error[0]) log_error("tail.failed", "error=\"%s\"", err->text);
        struct err told = *err;
        store_hide_path(store_path(ss->store), &told);
        snprintf(ss->tail_error, sizeof ss->tail_error, "%s", told.text);
        metric_add(ss->m_tail_errors, 1);
        service_probe_later(ss);
    } else if (wrote) {
        if (ss->tail_error[0]) log_info("tail.works", "%s", "");
        ss->tail_error[0] = '\0';
    }
    metric_set(ss->m_tail_ok, !ss->tail_error[0]);
}

void tail_writer_probe(struct sessions *ss) {
    struct err err = {0};
    if (!ss->tail || !ss->tail_error[0]) return;
    if (tail_try(ss->tail, &err) < 0)
        service_probe_later(ss);
    else
        say(ss, 0, &err, true);
}

static int put_from(struct sessions *ss, const struct session *s, const struct turn *t,
                    size_t from) {
    struct token_run run;
    turn_borrow_run(t, from, false, &run);
    return tail_put(ss->tail, s->rec.key, &t->rec, &run);
}

static size_t n_safe_or_saved(const struct turn *t) {
    return t->n_safe > t->n_saved ? t->n_safe : t->n_saved;
}

// A turn that has ended meanwhile counts too: clients may get its last deltas before its end is saved.
static int put_tokens(struct sessions *ss, const struct session *s) {
    for (size_t i = (size_t)s->dirty_from; i < s->n_turns; i++) {
        const struct turn *t = s->turns[i];
        if (t->out.n > n_safe_or_saved(t)) TRY(put_from(ss, s, t, n_safe_or_saved(t)));
    }
    return 0;
}

// One write for the tokens of a whole step.
static int put_touched(struct sessions *ss, struct err *err) {
    for (const struct session *s = ss->touched; s; s = s->touched_next)
        if (put_tokens(ss, s) < 0) return err_set(err, E_NOMEM, "no memory for the tail of tokens");
    return tail_flush(ss->tail, err);
}

void tail_writer_tokens(struct sessions *ss) {
    struct err err = {0};
    if (!ss->tail || !ss->touched) return;
    int64_t before = tail_bytes(ss->tail);
    int rc = put_touched(ss, &err);
    say(ss, rc, &err, tail_bytes(ss->tail) > before);
    for (struct session *s = ss->touched; rc == 0 && s; s = s->touched_next) {
        for (size_t i = (size_t)s->dirty_from; i < s->n_turns; i++)
            s->turns[i]->n_safe = s->turns[i]->out.n;
        s->safe_seq = event_log_seq(&s->events);
    }
    if (tail_bytes(ss->tail) > TAIL_BYTES) tail_writer_trim(ss, false);
}

void tail_writer_trim(struct sessions *ss, bool scrub) {
    struct err err = {0};
    struct session *s, *next;
    if (!ss->tail || tail_bytes(ss->tail) == 0) return;
    tail_rewrite_begin(ss->tail);
    HASH_ITER(by_key, ss->by_key, s, next) {
        for (size_t i = (size_t)s->dirty_from; s->life != LIFE_GONE && i < s->n_turns; i++) {
            const struct turn *t = s->turns[i];
            if (t->n_saved >= t->n_safe) continue;
            if (put_from(ss, s, t, t->n_saved) < 0) return;
        }
    }
    int rc = tail_rewrite_end(ss->tail, scrub, &err);
    say(ss, rc, &err, tail_bytes(ss->tail) > 0);
}
