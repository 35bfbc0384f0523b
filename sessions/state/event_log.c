// The numbering of one session's events. See event_log.h.
#include "sessions/state/event_log.h"
#include "base/array.h"
#include "base/err.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void event_log_init(struct event_log *l) {
    *l = (struct event_log){0};
}

void event_log_release(struct event_log *l) {
    free(l->entries);
    event_log_init(l);
}

int64_t event_log_seq(const struct event_log *l) {
    if (l->n == 0) return 0;
    const struct event_record *last = &l->entries[l->n - 1].rec;
    return last->seq + last->n - 1;
}

int event_log_reserve(struct event_log *l, size_t n) {
    return ARRAY_RESERVE(l->entries, l->cap, l->n + n);
}

static struct event_entry *push(struct event_log *l) {
    if (event_log_reserve(l, 1) < 0) return NULL;
    int64_t seq = event_log_seq(l) + 1;
    struct event_entry *e = &l->entries[l->n++];
    *e = (struct event_entry){.rec = {.seq = seq, .n = 1}};
    return e;
}

int64_t event_log_add(struct event_log *l, int kind, int64_t turn, const char *reason,
                      int64_t at_ms) {
    struct event_entry *e = push(l);
    if (!e) return E_NOMEM;
    e->rec.kind = kind;
    e->rec.turn = turn;
    e->rec.at_ms = at_ms;
    if (reason) snprintf(e->rec.reason, sizeof e->rec.reason, "%s", reason);
    return e->rec.seq;
}

int64_t event_log_add_token(struct event_log *l, int64_t turn, int64_t token) {
    struct event_entry *last = l->n ? &l->entries[l->n - 1] : NULL;
    if (last && last->rec.kind == EVENT_DELTA && last->rec.turn == turn &&
        last->first_token + last->rec.n == token) {
        last->rec.n++;
        return event_log_seq(l);
    }
    struct event_entry *e = push(l);
    if (!e) return E_NOMEM;
    e->rec.kind = EVENT_DELTA;
    e->rec.turn = turn;
    e->first_token = token;
    return e->rec.seq;
}

int64_t event_log_add_lost(struct event_log *l, int64_t n, int64_t turn, int64_t at_ms) {
    struct event_entry *e = push(l);
    if (!e) return E_NOMEM;
    e->rec.kind = EVENT_LOST;
    e->rec.turn = turn;
    e->rec.n = n;
    e->rec.at_ms = at_ms;
    return event_log_seq(l);
}

const struct event_entry *event_log_find(const struct event_log *l, int64_t seq) {
    size_t low = 0, high = l->n;
    while (low < high) {
        size_t mid = (low + high) / 2;
        const struct event_record *r = &l->entries[mid].rec;
        if (seq < r->seq)
            high = mid;
        else if (seq >= r->seq + r->n)
            low = mid + 1;
        else
            return &l->entries[mid];
    }
    return NULL;
}

// Removes entry i; the runs of deltas around it may become one.
void event_log_remove_entry(struct event_log *l, size_t i) {
    int64_t n = l->entries[i].rec.n;
    memmove(&l->entries[i], &l->entries[i + 1], (l->n - i - 1) * sizeof *l->entries);
    l->n--;
    for (size_t j = i; j < l->n; j++) l->entries[j].rec.seq -= n;
    if (i == 0 || i >= l->n) return;
    struct event_entry *a = &l->entries[i - 1], *b = &l->entries[i];
    if (a->rec.kind != EVENT_DELTA || b->rec.kind != EVENT_DELTA || a->rec.turn != b->rec.turn)
        return;
    a->rec.n += b->rec.n;
    memmove(b, b + 1, (l->n - i - 1) * sizeof *b);
    l->n--;
}

void event_log_remove(struct event_log *l, int64_t seq) {
    const struct event_entry *e = event_log_find(l, seq);
    if (e && e->rec.kind != EVENT_DELTA) event_log_remove_entry(l, (size_t)(e - l->entries));
}

int64_t event_log_next_fact(const struct event_log *l, int64_t seq) {
    int64_t found = 0;
    for (size_t i = l->n; i-- > 0 && l->entries[i].rec.seq > seq;)
        if (l->entries[i].rec.kind != EVENT_DELTA) found = l->entries[i].rec.seq;
    return found;
}

bool event_log_is_lost(const struct event_log *l, int64_t after) {
    const struct event_entry *e = event_log_find(l, after);
    return e && e->rec.kind == EVENT_LOST && after < e->rec.seq + e->rec.n - 1;
}

int64_t event_log_tokens_upto(const struct event_log *l, int64_t turn, int64_t seq) {
    for (size_t i = l->n; i-- > 0;) {
        const struct event_entry *e = &l->entries[i];
        if (e->rec.kind != EVENT_DELTA || e->rec.turn != turn || e->rec.seq > seq) continue;
        int64_t n = seq - e->rec.seq + 1;
        return e->first_token + (n < e->rec.n ? n : e->rec.n);
    }
    return 0;
}
