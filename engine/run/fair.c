// The policy of fair.h.
#include "engine/run/fair.h"

#include <assert.h>
#include <stdlib.h>
#include <utlist.h>

int fair_init(struct fair *f, int32_t max_turns, struct err *err) {
    *f = (struct fair){.cap = max_turns};
    f->owners = calloc((size_t)max_turns, sizeof *f->owners);
    return f->owners ? 0 : err_set(err, E_NOMEM, "no memory to schedule %d turns", max_turns);
}

void fair_release(struct fair *f) {
    free(f->owners);
    *f = (struct fair){0};
}

static int32_t places_of(const struct fair_turn *t) {
    return t->places > 1 ? t->places : 1;
}

// direction 1: t takes its places, -1: it gives them back.
static void move_places(struct fair *f, const struct fair_turn *t, int32_t direction) {
    t->owner->n_held += direction * places_of(t);
    t->owner->n_turns += direction;
    f->n_held += direction * places_of(t);
}

static bool has_turns(const struct fair_owner *o) {
    return o->n_held + o->n_waiting > 0;
}

// Moves the clock on, and forgives what is beyond FAIR_DEBT.
static void settle(struct fair *f) {
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < f->n; i++)
        if (has_turns(&f->owners[i]) && f->owners[i].used < least) least = f->owners[i].used;
    if (least != INT64_MAX && least > f->clock) f->clock = least;
    for (int32_t i = 0; i < f->n; i++)
        if (f->owners[i].used > f->clock + FAIR_DEBT) f->owners[i].used = f->clock + FAIR_DEBT;
}

// An entry without turns: one that is as good as new, or a new one, or the one that has used least.
static struct fair_owner *free_entry(struct fair *f) {
    struct fair_owner *least = NULL;
    for (int32_t i = 0; i < f->n; i++) {
        struct fair_owner *o = &f->owners[i];
        if (!has_turns(o) && (!least || o->used < least->used)) least = o;
    }
    bool as_new = least && least->used <= f->clock - FAIR_QUANTUM;
    if (!as_new && f->n < f->cap) least = &f->owners[f->n++];
    assert(least);
    return least;
}

static struct fair_owner *join(struct fair *f, uint64_t owner) {
    int32_t i = 0;
    while (i < f->n && f->owners[i].owner != owner) i++;
    if (i < f->n && has_turns(&f->owners[i])) return &f->owners[i];
    settle(f);
    struct fair_owner *o = i < f->n ? &f->owners[i] : free_entry(f);
    int64_t earliest = f->clock - (f->n_held + f->n_waiting > 0 ? FAIR_QUANTUM : 0);
    if (o->owner != owner || o->used < earliest) *o = (struct fair_owner){.used = earliest};
    o->owner = owner;
    return o;
}

void fair_enqueue(struct fair *f, struct fair_turn *t, uint64_t owner) {
    t->owner = join(f, owner);
    t->ticket = ++f->tickets;
    DL_APPEND(t->owner->queue, t);
    t->owner->n_waiting++;
    f->n_waiting++;
}

static void unqueue(struct fair *f, struct fair_turn *t) {
    DL_DELETE(t->owner->queue, t);
    t->prev = t->next = NULL;
    t->owner->n_waiting--;
    f->n_waiting--;
}

void fair_take_place(struct fair *f, struct fair_turn *t) {
    unqueue(f, t);
    move_places(f, t, 1);
}

void fair_give_place(struct fair *f, struct fair_turn *t) {
    move_places(f, t, -1);
    DL_PREPEND(t->owner->queue, t);
    t->owner->n_waiting++;
    f->n_waiting++;
}

void fair_leave(struct fair *f, struct fair_turn *t, bool held) {
    settle(f); // the clock passes what the last owner used
    if (held)
        move_places(f, t, -1);
    else
        unqueue(f, t);
    t->owner = NULL;
}

static bool is_before(const struct fair_owner *a, const struct fair_owner *b) {
    if (a->n_held != b->n_held) return a->n_held < b->n_held;
    if (a->used != b->used) return a->used < b->used;
    return a->queue->ticket < b->queue->ticket;
}

struct fair_turn *fair_next(struct fair *f) {
    const struct fair_owner *first = NULL;
    if (f->n_waiting == 0) return NULL;
    settle(f);
    for (int32_t i = 0; i < f->n; i++) {
        const struct fair_owner *o = &f->owners[i];
        if (o->n_waiting > 0 && (!first || is_before(o, first))) first = o;
    }
    return first->queue;
}

const struct fair_owner *fair_giver(const struct fair *f, const struct fair_owner *to) {
    const struct fair_owner *most = NULL;
    for (int32_t i = 0; i < f->n; i++) {
        const struct fair_owner *o = &f->owners[i];
        if (o == to || o->n_held == 0) continue;
        if (!most || o->n_held > most->n_held ||
            (o->n_held == most->n_held && o->used > most->used))
            most = o;
    }
    if (!most) return NULL;
    // By a turn of middling width: which one is the scheduler's choice.
    int32_t given = (most->n_held + most->n_turns - 1) / most->n_turns;
    int32_t taken = to->queue ? places_of(to->queue) : 1;
    if (most->n_held - given >= to->n_held + taken) return most;
    return to->n_held == 0 && most->used >= to->used + FAIR_QUANTUM ? most : NULL;
}
