// Turns that begin, end, fork, are cancelled, released and parked at random moments while steps are under way
// (engine/run/flight.c): each has the bits of the same turn alone.
#pragma once
#include "tests/golden/tiers_world.h"

enum { SEQUENCES = 12, OPERATIONS = 3000, LOG = 256, SINKS = 4 };

static bool flies(const struct engine *e) {
    return e->core.flight.n > 0;
}

static struct player {
    uint64_t turn; // under way, or 0
    int32_t log[LOG], drawn[64];
    float logprobs[64];
    int64_t n_log, n_drawn;
    int32_t max_tokens, memory_len;
    bool draws, penalises; // at random
    int32_t end_id;        // -1: none
} players[SEQUENCES];
static struct { int64_t done, compared, flights, changed, cancelled, stopped; } books;
static uint32_t few_penalise = 1; // one of so many turns that draw at random has penalties

static void shape(struct engine_turn *t, const struct player *p) {
    t->sampling.max_tokens = p->max_tokens;
    t->sampling.end_id = p->end_id;
    t->sampling.ignore_eos = p->end_id < 0;
    if (!p->draws) return;
    t->sampling.temperature = 1;
    if (p->penalises) t->sampling.repetition_penalty = 1.2f;
    t->sampling.has_seed = true;
    t->sampling.seed = (uint64_t)p->n_log;
}

static void compare(struct engine *calm, const struct player *p) {
    struct engine_turn t = turn_for(calm, 1, p->log, p->n_log, p->memory_len, SINKS);
    shape(&t, p);
    assert_same_alone(calm, &t, p->drawn, p->logprobs, p->n_drawn);
    books.compared++;
}

static void note(struct engine *calm, const struct engine_event *ev) {
    struct player *p = &players[ev->sequence - 1];
    if (ev->kind == ENGINE_TOKEN && ev->id >= 0) {
        p->logprobs[p->n_drawn] = ev->logprob;
        p->drawn[p->n_drawn++] = ev->id;
    }
    if (ev->kind != ENGINE_DONE) return;
    assert_true(ev->finish == FINISH_LENGTH || ev->finish == FINISH_CANCELLED ||
                ev->finish == FINISH_EOS);
    books.cancelled += ev->finish == FINISH_CANCELLED;
    books.stopped += ev->finish == FINISH_EOS;
    if (ev->finish != FINISH_CANCELLED && below(3) == 0) compare(calm, p);
    memcpy(p->log + p->n_log, p->drawn, (size_t)p->n_drawn * sizeof *p->drawn);
    p->n_log += p->n_drawn;
    p->turn = 0;
    books.done++;
}

static void start(struct engine *e, uint64_t id) {
    static uint64_t next_turn = 1;
    struct player *p = &players[id - 1];
    struct err err = {0};
    if (p->turn) return;
    if (p->n_log > LOG - 90) p->n_log = below(LOG - 90); // rewind
    int64_t n_input = 1 + below(24);
    random_log(e, p->log + p->n_log, n_input);
    p->n_log += n_input;
    p->memory_len = below(8) == 0 ? 24 : 56; // now and then the window changes
    p->draws = below(2);
    p->penalises = below(few_penalise) == 0;
    p->end_id = below(2) ? -1 : (int32_t)below((uint32_t)e->info.n_vocab);
    p->max_tokens = 12 + (int32_t)below(48);
    struct engine_turn t = turn_for(e, id, p->log, p->n_log, p->memory_len, SINKS);
    t.n_input = n_input;
    shape(&t, p);
    t.turn = next_turn++;
    t.share_group = id % 3;
    t.owner = id % 4;
    if (engine_turn_submit(e, &t, &err) < 0) { // full
        free(t.ids);
        p->n_log -= n_input;
        return;
    }
    p->n_drawn = 0;
    p->turn = t.turn;
}

// Also from a session whose turn is under way.
static void fork_one(struct engine *e, uint64_t id) {
    struct player *p = &players[id - 1];
    uint64_t from = 1 + below(SEQUENCES);
    const struct player *o = &players[from - 1];
    if (p->turn || from == id || o->n_log < 2) return;
    int64_t n = 1 + below((uint32_t)o->n_log);
    if (engine_sequence_fork(e, from, id, n) < 0) return; // it has a cache
    memcpy(p->log, o->log, (size_t)n * sizeof *p->log);
    p->n_log = n;
}

static void disturb(struct engine *e, uint64_t id) {
    switch (below(5)) {
    case 0:
        engine_turn_cancel(e, id, players[id - 1].turn);
        break;
    case 1:
        engine_sequence_release(e, id);
        break;
    case 2:
        engine_sequence_park(e, id);
        break;
    default:
        fork_one(e, id);
    }
}

static bool walked_enough(void) {
    return books.compared > 20 && books.flights > 100 && books.changed > 20 && books.cancelled > 2;
}

// calm: computes the same turns alone. quiet: how many rounds leave the engine alone for each that acts. Where copies take
// time, how many rounds find a step under way depends on the machine: so it walks on until enough did.
static inline void walk(struct engine *e, struct engine *calm, uint32_t quiet) {
    struct engine_event ev;
    bool over = false;
    memset(players, 0, sizeof players);
    memset(&books, 0, sizeof books);
    for (int op = 0, end = OPERATIONS; op < end || !over; op++) {
        uint64_t id = 1 + below(SEQUENCES);
        bool flew = flies(e), acts = op < end && below(8 * quiet) == 0;
        if (op < end && below(3 * quiet) == 0) start(e, id);
        if (acts) disturb(e, 1 + below(SEQUENCES));
        books.changed += acts && flew;
        assert_true(engine_round(e));
        books.flights += flies(e);
        while (engine_poll(e, &ev) == 1) note(calm, &ev);
        over = e->n_active[ENGINE_INTERACTIVE] == 0;
        if (op + 1 == end && end < 20 * OPERATIONS && !walked_enough()) end += OPERATIONS;
    }
    print_message("%lld turns, %lld compared, %lld cancelled, %lld stopped; %lld rounds with steps "
                  "under way, "
                  "%lld disturbed\n",
                  (long long)books.done, (long long)books.compared, (long long)books.cancelled,
                  (long long)books.stopped, (long long)books.flights, (long long)books.changed);
    assert_true(walked_enough());
    assert_int_equal(e->core.sched.n_reserved, 0);
    assert_int_equal(e->lead.n_ahead, 0);
}
