// The table of sequences, and the names of their sessions. See sequences.h.
#include "ws/kserve/sequences.h"
#include "base/random_id.h"
#include "base/xxh64.h"
#include "ws/kserve/infer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *make_key(const char *owner, const char *id) {
    size_t n = strlen(owner) + strlen(id) + 2;
    char *key = malloc(n);
    if (key) snprintf(key, n, "%s\n%s", owner, id);
    return key;
}

struct sequence *sequences_find(struct sequences *t, const char *owner, const char *id) {
    struct sequence *s = NULL;
    char *key = make_key(owner, id);
    if (key) HASH_FIND_STR(t->by_key, key, s);
    free(key);
    return s;
}

// A sequence that leaves the table is found in the store again.
static void forget_oldest(struct sequences *t) {
    struct sequence *s, *next, *oldest = NULL;
    HASH_ITER(hh, t->by_key, s, next) {
        if (!s->running && (!oldest || s->used_us < oldest->used_us)) oldest = s;
    }
    if (oldest) sequences_remove(t, oldest);
}

struct sequence *sequences_add(struct sequences *t, const char *owner, const char *id) {
    if (t->n >= SEQUENCES_MAX) forget_oldest(t);
    struct sequence *s = calloc(1, sizeof *s);
    if (s) s->key = make_key(owner, id);
    if (!s || !s->key) {
        free(s);
        return NULL;
    }
    s->where_next = &s->waiting;
    HASH_ADD_KEYPTR(hh, t->by_key, s->key, strlen(s->key), s);
    if (!hash_added(&s->hh)) {
        free(s->key);
        free(s);
        return NULL;
    }
    t->n++;
    return s;
}

void sequences_remove(struct sequences *t, struct sequence *s) {
    HASH_DEL(t->by_key, s);
    t->n--;
    free(s->key);
    free(s);
}

void sequences_release(struct sequences *t) {
    struct sequence *s, *next;
    HASH_ITER(hh, t->by_key, s, next) sequences_remove(t, s);
}

// --- the queue of one ---

void sequence_enter(struct sequence *s, struct infer *i) {
    if (!s->running) {
        s->running = i;
        return;
    }
    *s->where_next = i;
    s->where_next = &i->next;
}

void sequence_leave_queue(struct sequence *s, struct infer *i) {
    for (struct infer **p = &s->waiting; *p; p = &(*p)->next) {
        if (*p != i) continue;
        *p = i->next;
        if (!*p) s->where_next = p;
        return;
    }
}

struct infer *sequence_next(struct sequence *s) {
    struct infer *next = s->running = s->waiting;
    if (!next) return NULL;
    s->waiting = next->next;
    if (!s->waiting) s->where_next = &s->waiting;
    next->next = NULL;
    return next;
}

// --- names ---

void sequence_title(const char *id, char out[SESSION_TITLE_BYTES]) {
    snprintf(out, SESSION_TITLE_BYTES, "Sequence %s", *id == '"' ? id + 1 : id);
}

// A hash, because ids of clients can be longer than a session's, and have other characters.
void sequence_prefix(const char *owner, const char *id, char out[SESSION_ID_MAX + 1]) {
    uint64_t hash = xxh64(id, strlen(id), xxh64(owner, strlen(owner), 0));
    snprintf(out, SESSION_ID_MAX + 1, "seq-%016llx-", (unsigned long long)hash);
}

void sequence_draw(const char *owner, const char *id, size_t n_rows, char out[SESSION_ID_MAX + 1]) {
    char prefix[SESSION_ID_MAX + 1];
    sequence_prefix(owner, id, prefix);
    snprintf(out, SESSION_ID_MAX + 1, "%.21s%016llx-%zu", prefix, (unsigned long long)random_u64(),
             n_rows);
}

size_t sequence_rows_of(const char *session) {
    const char *last = strrchr(session, '-');
    char *end = NULL;
    if (strncmp(session, "seq-", 4) != 0 || !last) return 0;
    unsigned long n = strtoul(last + 1, &end, 10);
    return *end || n > INFER_ROWS_MAX ? 0 : n;
}

void sequence_row_id(const char *session, size_t row, char out[SESSION_ID_MAX + 1]) {
    if (row == 0)
        snprintf(out, SESSION_ID_MAX + 1, "%s", session);
    else
        snprintf(out, SESSION_ID_MAX + 1, "%.50s-row%u", session, (unsigned)row);
}
