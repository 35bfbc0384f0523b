// A turn and all below it leave the record. See erasure.h.
//
// Turns keep their numbers, so an erased turn leaves an empty row: a turn that was cancelled before it began, with the
// error code `deleted`, which no list, page or path shows. One commit removes its input, answer, tokens and words in
// the index, and moves the head to the turn before; the store then cleans the bytes (store/tidy.c). The numbers of its
// events stay taken, so that a client's `after` keeps its meaning: one *lost* event replaces each run of its events but
// the end.
//
// Memory changes after the commit, when nothing can fail any more. Until then requests for the session
// wait, as they do while turns are read.
#include "sessions/saving/erasure.h"
#include "base/err.h"
#include "sessions/caches/spare_caches.h"
#include "sessions/saving/tail_writer.h"
#include "sessions/state/tree.h"
#include <stdlib.h>
#include <string.h>

static bool is_erased(const struct session *s, int64_t turn) {
    size_t low = 0, high = s->n_erased;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (s->erased[mid] < turn)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_erased && s->erased[low] == turn;
}

// The row that stays. Its strings are constants.
static void put_blank(const struct turn_record *r, struct turn_record *out) {
    *out = (struct turn_record){
        .turn = r->turn,
        .parent = r->parent,
        .request_id = (char *)"",
        .request = (char *)"{}",
        .kind = INPUT_IDS,
        .log_first = -1,
        .sampling = (char *)"{}",
        .branch = r->seq_first == 1 ? (char *)"{}" : NULL, // no event names it (archive/check.c)
        .finish_reason = "cancelled",
        .error_message = (char *)"the turn was deleted",
        .instance = (char *)"",
        .build = (char *)"",
        .seq_first = r->seq_first == 1 ? 1 : r->seq_last, // its end is the event that stays
        .seq_last = r->seq_last,
        .created_ms = r->created_ms,
        .ended_ms = r->ended_ms,
    };
    memcpy(out->error_code, RECORD_ERASED, sizeof RECORD_ERASED);
}

// The turn and all below it, ascending, into *list (room for all there are).
static size_t collect(const struct session *s, int64_t turn, bool *below, int64_t *list) {
    size_t n = 0;
    for (int64_t i = turn; i < (int64_t)s->n_turns; i++) {
        int64_t parent = s->turns[i]->rec.parent;
        below[i] = i == turn || (parent >= turn && below[parent]);
        if (below[i] && !turn_was_erased(&s->turns[i]->rec)) list[n++] = i;
    }
    return n;
}

int erasure_mark(struct session *s, int64_t turn) {
    bool *below = calloc(s->n_turns, sizeof *below);
    s->erased = malloc(s->n_turns * sizeof *s->erased);
    if (below && s->erased) s->n_erased = collect(s, turn, below, s->erased);
    free(below);
    return s->n_erased ? 0 : E_NOMEM;
}

void erasure_unmark(struct session *s) {
    free(s->erased);
    s->erased = NULL;
    s->n_erased = 0;
}

int64_t erasure_bytes(const struct session *s) {
    int64_t bytes = 0;
    struct turn_record blank;
    for (size_t i = 0; i < s->n_erased; i++) {
        const struct turn_record *r = &s->turns[s->erased[i]]->rec;
        put_blank(r, &blank);
        bytes += turn_bytes(r) - turn_bytes(&blank);
    }
    return bytes;
}

// --- the save ----------------------------------------------------------------

// Whether this event was erased: a client that attaches skips its number, as it does those a crash lost.
static bool is_lost(const struct session *s, const struct event_record *e) {
    bool of_turn = e->kind == EVENT_QUEUED || e->kind == EVENT_STARTED || e->kind == EVENT_DELTA;
    return of_turn && is_erased(s, e->turn);
}

int erasure_fill(const struct session *s, struct session_save *save) {
    struct turn_record blank;
    size_t n_lost = 0;
    if (s->n_erased == 0) return 0;
    for (size_t i = 0; i < s->events.n; i++) n_lost += is_lost(s, &s->events.entries[i].rec);
    save->erased = calloc(s->n_erased, sizeof *save->erased);
    save->lost = calloc(n_lost + 1, sizeof *save->lost);
    if (!save->erased || !save->lost) return E_NOMEM;
    for (size_t i = 0; i < s->n_erased; i++) {
        put_blank(&s->turns[s->erased[i]]->rec, &blank);
        TRY(turn_record_copy(&save->erased[save->n_erased], &blank));
        save->n_erased++;
    }
    for (size_t i = 0; i < s->events.n; i++) {
        if (!is_lost(s, &s->events.entries[i].rec)) continue;
        save->lost[save->n_lost] = s->events.entries[i].rec;
        save->lost[save->n_lost++].kind = EVENT_LOST;
    }
    return 0;
}

// --- its commit --------------------------------------------------------------

static void empty(struct turn *t) {
    struct turn_record blank;
    put_blank(&t->rec, &blank);
    if (t->storage != TURN_SLIM) turn_slim(t);
    turn_forget_words(&blank);
    t->rec = blank;
    t->out.n = t->out.cap = t->n_saved = 0;
    t->said = 0;
    t->children = (struct turn_children){.first = TURN_NONE, .last = TURN_NONE};
}

void erasure_commit(struct session *s) {
    if (s->n_erased == 0) return;
    for (size_t i = 0; i < s->events.n; i++) {
        struct event_record *e = &s->events.entries[i].rec;
        if (is_lost(s, e)) e->kind = EVENT_LOST;
    }
    tree_unlink(s, s->turns[s->erased[0]]);
    for (size_t i = 0; i < s->n_erased; i++) empty(s->turns[s->erased[i]]);
    erasure_unmark(s);
    // A snapshot has the erased tokens too.
    if (placement_has_snapshot(&s->service->placement, s->lasting)) spare_or_drop(s);
    tail_writer_trim(s->service, true); // and the words may be in the tail
    s->marks |= MARK_WATCHERS;
}
