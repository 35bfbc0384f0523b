// One conversation in memory. See session.h.
#include "sessions/state/session.h"
#include "base/array.h"
#include "base/err.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct hash128 session_name(const uint64_t key[2], const char *owner, const char *id) {
    struct hash128 of_owner = siphash128(key, owner, strlen(owner));
    return siphash128((uint64_t[2]){of_owner.lo, of_owner.hi}, id, strlen(id));
}

void session_lasting_name(const char *owner, const char *id, char out[SESSION_LASTING_BYTES]) {
    static const uint64_t key[2] = {0x7061726c65790004u, 0x73657373696f6e73u};
    struct hash128 name = session_name(key, owner, id);
    snprintf(out, SESSION_LASTING_BYTES, "%016llx%016llx", (unsigned long long)name.hi,
             (unsigned long long)name.lo);
}

// The fields that are not zero in a session without turns.
static void set_out(struct session *s) {
    s->running = -1;
    s->sampled_from = TURN_NONE;
    s->head = s->rec.head = s->rec.forked_turn = TURN_NONE;
    s->roots = (struct turn_children){.first = TURN_NONE, .last = TURN_NONE};
    s->shown_state = -1;
    s->deferred_end = &s->deferred;
    event_log_init(&s->events);
}

struct session *session_new(struct sessions *service, const char *owner, const char *id,
                            enum session_life life) {
    struct session *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->service = service;
    s->life = life;
    s->rec.id = strdup(id);
    s->rec.owner = strdup(owner);
    session_lasting_name(owner, id, s->lasting);
    set_out(s);
    if (s->rec.id && s->rec.owner) return s;
    session_free(s);
    return NULL;
}

void tree_cut_release(struct tree_cut *cut) {
    free(cut->ids);
    *cut = (struct tree_cut){.head = TURN_NONE};
}

void pending_free(struct pending *p) {
    free(p->title);
    free(p->sampling);
    free(p->note);
    free(p->share);
    free(p->folder);
    tree_cut_release(&p->cut);
    free(p);
}

void pending_drop(struct pending **list, struct pending *p) {
    DL_DELETE(*list, p);
    pending_free(p);
}

static void release(struct session *s) {
    struct pending *p, *next;
    DL_FOREACH_SAFE(s->pending, p, next) pending_free(p);
    DL_FOREACH_SAFE(s->told, p, next) pending_free(p);
    for (size_t i = 0; i < s->n_turns; i++) turn_free(s->turns[i]);
    free(s->turns);
    for (size_t i = 0; i < s->n_versions; i++) turn_free(s->versions[i]);
    free(s->versions);
    free(s->fork_turns);
    free(s->erased);
    for (size_t i = 0; i < s->n_origins; i++) free(s->origins[i]);
    free(s->log);
    turn_sampling_free(s->sampling);
    prompt_free(s->prompt);
    event_log_release(&s->events);
    session_record_release(&s->rec);
}

void session_free(struct session *s) {
    if (!s) return;
    release(s);
    free(s);
}

void session_strip(struct session *s) {
    struct session kept = {.service = s->service,
                           .life = s->life,
                           .name = s->name,
                           .by_name = s->by_name,
                           .attachments = s->attachments,
                           .touch = s->touch,
                           .touched_prev = s->touched_prev,
                           .touched_next = s->touched_next};
    kept.rec.id = s->rec.id;
    kept.rec.owner = s->rec.owner;
    memcpy(kept.lasting, s->lasting, sizeof kept.lasting);
    s->rec.id = s->rec.owner = NULL;
    release(s);
    *s = kept;
    set_out(s);
}

int session_log_reserve(struct session *s, size_t more) {
    return ARRAY_RESERVE(s->log, s->cap_log, s->n_log + more);
}

int session_push_turn(struct session *s, struct turn *t) {
    TRY(ARRAY_RESERVE(s->turns, s->cap_turns, s->n_turns + 1));
    s->turns[s->n_turns++] = t;
    return 0;
}

struct turn *session_turn(const struct session *s, int64_t index) {
    return index >= 0 && index < (int64_t)s->n_turns ? s->turns[index] : NULL;
}

struct turn *session_next_queued(const struct session *s) {
    struct turn *first = NULL;
    int64_t n = 0;
    for (size_t i = s->n_turns; i-- > 0 && n < s->n_queued;)
        if (turn_waits(s->turns[i])) first = s->turns[i], n++;
    return first;
}

struct turn *session_find_request(const struct session *s, const char *request_id) {
    if (!request_id[0]) return NULL;
    for (size_t i = s->n_turns; i-- > 0 && s->n_turns - i <= SESSION_IDEMPOTENT_TURNS;) {
        const char *asked = s->turns[i]->rec.request_id; // NULL: it came with a fork
        if (asked && strcmp(asked, request_id) == 0) return s->turns[i];
    }
    return NULL;
}

bool session_has_turn(const struct session *s) {
    return s->running >= 0 || s->n_queued > 0;
}

bool session_is_busy(const struct session *s) {
    return session_has_turn(s) || s->engine_turn;
}

bool session_is_closing(const struct session *s) {
    return s->life == LIFE_CLOSING || s->life == LIFE_DROPPING || s->life == LIFE_DELETING;
}

bool session_is_temporary(const struct session *s) {
    return s->rec.note && strcmp(s->rec.note, RECORD_TEMPORARY) == 0;
}

bool session_must_wait(const struct session *s) {
    return s->life == LIFE_LOADING || s->life == LIFE_OPENING || s->life == LIFE_DELETING ||
           s->paging || s->preparing || s->n_erased;
}

bool session_is_known(const struct session *s) {
    return s->life != LIFE_LOADING && s->life != LIFE_UNLOADED && s->life != LIFE_OPENING &&
           s->life != LIFE_GONE;
}

bool session_is_saved(const struct session *s) {
    return s->save != SAVE_SENT && !s->save_due_us;
}

void session_shift_numbers(struct session *s, int64_t seq, int64_t n) {
    for (size_t i = 0; i < s->n_turns; i++) {
        struct turn_record *r = &s->turns[i]->rec;
        if (r->seq_first > seq) r->seq_first -= n;
        if (r->seq_last > seq) r->seq_last -= n;
    }
    if (s->safe_seq > seq) s->safe_seq -= n;
    struct pending *p;
    DL_FOREACH(s->pending, p) {
        if (p->seq > seq && p->seq != INT64_MAX) p->seq -= n;
        if (p->rewound_seq > seq) p->rewound_seq -= n;
    }
}

void session_remove_event(struct session *s, int64_t seq) {
    event_log_remove(&s->events, seq);
    session_shift_numbers(s, seq, 1);
}

struct attachment *session_attachment(const struct session *s, uint64_t client) {
    struct attachment *a;
    DL_FOREACH(s->attachments, a) {
        if (a->client == client) return a;
    }
    return NULL;
}

const char *session_id(const struct session *s) {
    return s->rec.id;
}

const int32_t *session_log(const struct session *s, size_t *n) {
    *n = s->n_log;
    return s->log;
}
