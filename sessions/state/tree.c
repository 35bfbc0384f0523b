// The tree of a session's turns. See tree.h.
#include "sessions/state/tree.h"
#include "base/err.h"
#include <stdlib.h>
#include <string.h>

static struct turn_children *children_of(struct session *s, int64_t turn) {
    struct turn *t = session_turn(s, turn);
    return t ? &t->children : &s->roots;
}

void tree_link(struct session *s, struct turn *t) {
    struct turn_children *c = children_of(s, t->rec.parent);
    struct turn *before = session_turn(s, c->last);
    t->newer = TURN_NONE;
    t->older = c->last;
    if (before)
        before->newer = t->rec.turn;
    else
        c->first = t->rec.turn;
    c->last = t->rec.turn;
    c->n++;
    t->children = (struct turn_children){.first = TURN_NONE, .last = TURN_NONE};
}

void tree_unlink(struct session *s, struct turn *t) {
    struct turn_children *c = children_of(s, t->rec.parent);
    struct turn *before = session_turn(s, t->older), *after = session_turn(s, t->newer);
    if (before)
        before->newer = t->newer;
    else
        c->first = t->newer;
    if (after)
        after->older = t->older;
    else
        c->last = t->older;
    c->n--;
    t->older = t->newer = TURN_NONE;
}

int64_t tree_log_end(const struct session *s, int64_t turn) {
    const struct turn *t;
    for (; (t = session_turn(s, turn)); turn = t->rec.parent)
        if (t->rec.log_first >= 0) return t->rec.log_first + t->rec.n_input + (int64_t)t->out.n;
    return 0;
}

int32_t tree_last_id(const struct session *s, int64_t turn) {
    const struct turn *t;
    for (; (t = session_turn(s, turn)); turn = t->rec.parent) {
        int64_t n = t->rec.log_first < 0 ? 0 : t->rec.n_input + (int64_t)t->out.n;
        if (n == 0) continue;
        if (t->on_path) return s->log[t->rec.log_first + n - 1];
        return t->out.n ? t->out.ids[t->out.n - 1] : t->rec.input_ids[t->rec.n_input - 1];
    }
    return -1;
}

bool tree_chat_begun(const struct session *s, int64_t turn) {
    const struct turn *t;
    for (; (t = session_turn(s, turn)); turn = t->rec.parent)
        if (t->rec.kind == INPUT_CONTENT && t->rec.log_first >= 0) return true;
    return false;
}

int64_t tree_newest_below(const struct session *s, int64_t turn) {
    int64_t newest = turn;
    bool *below = calloc(s->n_turns + 1, sizeof *below);
    if (!below) return E_NOMEM;
    if (turn != TURN_NONE) below[turn] = true; // all are below the empty log
    for (int64_t i = turn + 1; i < (int64_t)s->n_turns; i++) {
        int64_t parent = s->turns[i]->rec.parent;
        bool under = parent == TURN_NONE ? turn == TURN_NONE : below[parent];
        if (!under || turn_was_erased(&s->turns[i]->rec)) continue;
        below[i] = true;
        newest = i;
    }
    free(below);
    return newest;
}

size_t tree_missing(const struct session *s, int64_t turn, int64_t *list) {
    const struct turn *t;
    size_t n = 0;
    for (; (t = session_turn(s, turn)) && !t->on_path; turn = t->rec.parent)
        if (t->storage == TURN_SLIM) list[n++] = turn;
    return n;
}

int64_t tree_fork_point(const struct session *s, int64_t turn, size_t *n_log) {
    const struct turn *t;
    while ((t = session_turn(s, turn)) && !t->on_path) turn = t->rec.parent;
    *n_log = (size_t)tree_log_end(s, turn);
    return turn;
}

// Writes the tokens of the turns from `from` up to `above`, without it, into a log that has room.
static void copy_ids(const struct session *s, int64_t from, int64_t above, int32_t *log) {
    while (from != above) {
        const struct turn *t = session_turn(s, from);
        const struct turn_record *r = &t->rec;
        if (r->log_first >= 0) {
            if (r->n_input) memcpy(log + r->log_first, r->input_ids, (size_t)r->n_input * 4);
            if (t->out.n) memcpy(log + r->log_first + r->n_input, t->out.ids, t->out.n * 4);
        }
        from = r->parent;
    }
}

static void mark(struct session *s, int64_t from, int64_t above, bool on_path) {
    for (struct turn *t; from != above; from = t->rec.parent) {
        t = session_turn(s, from);
        t->on_path = on_path;
    }
}

int32_t *tree_copy_log(const struct session *s, int64_t turn, size_t *n) {
    size_t n_kept;
    int64_t shared = tree_fork_point(s, turn, &n_kept);
    *n = (size_t)tree_log_end(s, turn);
    int32_t *log = malloc((*n + 1) * sizeof *log);
    if (!log) return NULL;
    if (n_kept) memcpy(log, s->log, n_kept * sizeof *log);
    copy_ids(s, turn, shared, log);
    return log;
}

int tree_move(struct session *s, int64_t to, struct tree_cut *cut) {
    size_t n_kept, n = (size_t)tree_log_end(s, to);
    int64_t shared = tree_fork_point(s, to, &n_kept);
    struct tree_cut c = {.head = s->head, .n_kept = n_kept, .n_ids = s->n_log - n_kept};
    c.ids = malloc((c.n_ids + 1) * sizeof *c.ids);
    if (!c.ids || (n > s->n_log && session_log_reserve(s, n - s->n_log) < 0)) {
        free(c.ids);
        return E_NOMEM;
    }
    if (c.n_ids) memcpy(c.ids, s->log + n_kept, c.n_ids * sizeof *c.ids);
    mark(s, s->head, shared, false);
    copy_ids(s, to, shared, s->log);
    mark(s, to, shared, true);
    s->n_log = n;
    s->head = to;
    *cut = c;
    return 0;
}

void tree_move_back(struct session *s, struct tree_cut *cut) {
    size_t n_kept;
    int64_t shared = tree_fork_point(s, cut->head, &n_kept);
    mark(s, s->head, shared, false);
    mark(s, cut->head, shared, true);
    // The log never gives up room: there is as much as there was.
    if (cut->n_ids) memcpy(s->log + cut->n_kept, cut->ids, cut->n_ids * sizeof *s->log);
    s->n_log = cut->n_kept + cut->n_ids;
    s->head = cut->head;
    tree_cut_release(cut);
}

// --- the newest turn ---

int tree_add_turn(struct session *s, struct turn *t) {
    t->rec.turn = (int64_t)s->n_turns;
    t->rec.parent = s->head;
    TRY(session_push_turn(s, t));
    tree_link(s, t);
    t->on_path = true;
    s->head = t->rec.turn;
    return 0;
}

void tree_unlink_newest(struct session *s) {
    tree_unlink(s, s->turns[s->n_turns - 1]);
    s->n_turns--;
}

void tree_drop_turn(struct session *s) {
    struct turn *t = s->turns[s->n_turns - 1];
    s->head = t->rec.parent;
    tree_unlink_newest(s);
}

void tree_pop_turn(struct session *s) {
    struct turn *t = s->turns[s->n_turns - 1];
    for (size_t i = s->events.n; i-- > 0;) {
        struct event_record r = s->events.entries[i].rec;
        if (r.turn != t->rec.turn) continue;
        event_log_remove_entry(&s->events, i);
        session_shift_numbers(s, r.seq, r.n);
        if (i > s->events.n) i = s->events.n; // two runs around it may have become one
    }
    if (t->rec.log_first >= 0) s->n_log = (size_t)t->rec.log_first;
    if (turn_waits(t)) s->n_queued--;
    if (s->running == t->rec.turn) s->running = -1;
    tree_drop_turn(s);
    turn_free(t);
}
