// The policy of scheduler.h.
#include "engine/run/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// The smallest share of a prompt in a step. If there are too many prompts, some get no share and come first in
// the next step.
enum { MIN_SHARE = 16 };

// Most prompt tokens of a step in which other sessions decode. Those wait for the step, so it must be
// short; much shorter steps compute fewer prompt tokens in a second. Llama-8B on an H200, 64
// sessions that decode while a prompt of 1,024 arrives every 50 ms: 17 ms between tokens at the
// 99th percentile where 2,048 gives 35, and 17 % more tokens/s; with 256, prompts queue up.
enum { BESIDE_TOKENS = 384 };

// Beside interactive turns, idle turns compute one token for every IDLE_PART tokens of those, and at least one
// in a step. Alone they get a part of the budget for prompts, because an interactive turn that arrives waits
// for the step.
enum { IDLE_PART = 8, IDLE_BUDGET_PART = 4 };

// A drawn token costs as much time as this many prompt tokens: 5 with the demo model on two cores, 13
// with one of 1.2 B, less in a batch (tests/bench/RESULTS.md).
enum { DRAWN_COST = 4 };

int sched_init(struct scheduler *s, int32_t max_running, int32_t prefill_tokens, int32_t n_blocks,
               int32_t max_turns, struct err *err) {
    *s = (struct scheduler){
        .max_running = max_running, .prefill_tokens = prefill_tokens, .n_blocks = n_blocks};
    for (int p = 0; p < ENGINE_N_PRIORITIES; p++) TRY(fair_init(&s->fair[p], max_turns, err));
    s->running = calloc((size_t)max_running, sizeof *s->running);
    if (!s->running)
        return err_set(err, E_NOMEM, "no memory to schedule %d sequences", max_running);
    return 0;
}

void sched_release(struct scheduler *s) {
    for (int p = 0; p < ENGINE_N_PRIORITIES; p++) fair_release(&s->fair[p]);
    free(s->running);
    s->running = NULL;
}

static int32_t places_of(const struct sched_turn *t) {
    return t->places > 1 ? t->places : 1;
}

static int32_t rows_of(const struct sched_turn *t) {
    return t->n_rows > 1 ? t->n_rows : 1;
}

static struct fair *fair_of(struct scheduler *s, const struct sched_turn *t) {
    return &s->fair[t->priority];
}

void sched_enqueue(struct scheduler *s, struct sched_turn *t, uint64_t owner) {
    assert(t->state == SCHED_OUT && t->reserve <= s->n_blocks);
    t->state = SCHED_QUEUED;
    t->fair.places = t->places;
    fair_enqueue(fair_of(s, t), &t->fair, owner);
}

int32_t sched_n_waiting(const struct scheduler *s) {
    return s->fair[ENGINE_INTERACTIVE].n_waiting + s->fair[ENGINE_IDLE].n_waiting;
}

static struct sched_turn *next_turn(struct scheduler *s) {
    struct fair_turn *t = fair_next(&s->fair[ENGINE_INTERACTIVE]);
    return (struct sched_turn *)(t ? t : fair_next(&s->fair[ENGINE_IDLE]));
}

struct sched_turn *sched_admit(struct scheduler *s) {
    struct sched_turn *t = next_turn(s);
    if (!t || s->n_places + places_of(t) > s->max_running ||
        t->reserve > s->n_blocks - s->n_reserved)
        return NULL;
    fair_take_place(fair_of(s, t), &t->fair);
    s->n_paused[t->priority] -= t->state == SCHED_PAUSED;
    s->n_reserved += t->reserve;
    s->n_places += places_of(t);
    s->running[s->n_running++] = t;
    t->state = SCHED_PREFILL;
    t->n_todo = 0;
    return t;
}

// The running turn that was admitted last, since it has computed least. A turn whose cache is being resumed is
// taken only if there is no other: its resume would be lost. owner NULL: any.
static struct sched_turn *last_running(const struct scheduler *s, enum engine_priority priority,
                                       const struct fair_owner *owner) {
    struct sched_turn *resuming = NULL;
    for (int32_t i = s->n_running; i-- > 0;) {
        struct sched_turn *t = s->running[i];
        if (t->priority != priority || (owner && t->fair.owner != owner) || t->never_paused ||
            (owner && t->n_again > 0))
            continue;
        if (t->state != SCHED_WAIT) return t;
        if (!resuming) resuming = t;
    }
    return resuming;
}

struct sched_turn *sched_victim(struct scheduler *s) {
    struct sched_turn *next = next_turn(s), *victim = NULL;
    if (!next) return NULL;
    if (next->priority == ENGINE_INTERACTIVE) victim = last_running(s, ENGINE_IDLE, NULL);
    if (victim) return victim;
    const struct fair_owner *giver = fair_giver(fair_of(s, next), next->fair.owner);
    return giver ? last_running(s, next->priority, giver) : NULL;
}

static void stop_running(struct scheduler *s, struct sched_turn *t) {
    int32_t i = 0;
    while (s->running[i] != t) i++;
    s->n_running--;
    memmove(&s->running[i], &s->running[i + 1], (size_t)(s->n_running - i) * sizeof *s->running);
    if (i < s->cursor) s->cursor--; // so that the same turn stays first
    if (i < s->idle_cursor) s->idle_cursor--;
    s->n_reserved -= t->reserve;
    s->n_places -= places_of(t);
}

void sched_pause(struct scheduler *s, struct sched_turn *t) {
    stop_running(s, t);
    fair_give_place(fair_of(s, t), &t->fair);
    s->n_paused[t->priority]++;
    t->n_again = 1;
    t->state = SCHED_PAUSED;
}

void sched_leave(struct scheduler *s, struct sched_turn *t) {
    if (t->state == SCHED_OUT) return;
    bool held = t->state > SCHED_PAUSED;
    s->n_paused[t->priority] -= t->state == SCHED_PAUSED;
    if (held) stop_running(s, t);
    fair_leave(fair_of(s, t), &t->fair, held);
    t->state = SCHED_OUT;
}

// --- a step --------------------------------------------------------------------------------------

static int32_t min3(int64_t a, int32_t b, int32_t c) {
    int64_t m = a < b ? a : b;
    return (int32_t)(m < c ? m : c);
}
static int32_t at_least(int32_t n, int32_t least) {
    return n > least ? n : least;
}

// Prompt tokens of the next step. Where several prompts wait, the budget grows with their number, so
// that a queue of prompts empties at full speed.
static int32_t prefill_budget(const struct scheduler *s, int32_t n_decoding, int32_t n_prefilling) {
    if (n_decoding == 0) return s->prefill_tokens;
    int64_t beside = (int64_t)BESIDE_TOKENS * (n_prefilling > 2 ? n_prefilling - 1 : 1);
    return beside < s->prefill_tokens ? (int32_t)beside : s->prefill_tokens;
}

// A turn that waits for a mask computes all of its prompt but the token whose logits it draws from.
static int64_t todo_of(const struct sched_turn *t) {
    return t->n_todo - t->needs_mask;
}

static bool prefills(const struct sched_turn *t, enum engine_priority priority) {
    return t->state == SCHED_PREFILL && t->priority == priority && todo_of(t) > 0;
}

static bool decodes(const struct sched_turn *t) {
    return t->state == SCHED_DECODE && !t->needs_mask;
}

// Gives each owner of prompts its part of the budget. Returns the part.
static int32_t share_over_owners(struct scheduler *s, enum engine_priority priority,
                                 int32_t budget) {
    int32_t n_owners = 0;
    for (int32_t i = 0; i < s->n_running; i++) s->running[i]->fair.owner->n_prompts = 0;
    for (int32_t i = 0; i < s->n_running; i++)
        if (prefills(s->running[i], priority))
            n_owners += s->running[i]->fair.owner->n_prompts++ == 0;
    int32_t part = at_least(budget / n_owners, MIN_SHARE);
    for (int32_t i = 0; i < s->n_running; i++) s->running[i]->fair.owner->prompt_tokens = part;
    return part;
}

// Shares the budget among the prefilling turns, from the cursor on. Turns that get nothing come first
// next time.
static int32_t plan_prefill(struct scheduler *s, struct sched_share *share,
                            enum engine_priority priority, int32_t budget) {
    int32_t n = 0;
    int32_t start = s->cursor < s->n_running ? s->cursor : 0, next = -1, first = -1;
    int32_t of_owner = share_over_owners(s, priority, budget);
    for (int32_t k = 0; k < s->n_running; k++) {
        int32_t i = (start + k) % s->n_running;
        struct sched_turn *t = s->running[i];
        struct fair_owner *o = t->fair.owner;
        if (!prefills(t, priority)) continue;
        int32_t part = at_least(of_owner / o->n_prompts, MIN_SHARE);
        int32_t take = min3(min3(todo_of(t), part, budget), o->prompt_tokens, budget);
        if (take == 0) {
            if (next < 0) next = i;
            continue;
        }
        if (first < 0) first = i;
        share[n++] = (struct sched_share){t, take};
        o->prompt_tokens -= take;
        budget -= take;
    }
    for (int32_t k = 0; k < n && budget > 0; k++) { // tokens that short prompts do not need
        int32_t more = min3(todo_of(share[k].turn) - share[k].n_tokens, budget, budget);
        share[k].n_tokens += more;
        budget -= more;
    }
    // All were served: the turn that was first goes to the back.
    s->cursor = next >= 0 ? next : first + 1;
    return n;
}

// Drafts are left out of steps with prompts, which have enough work for the device.
static void plan_drafts(struct scheduler *s, struct sched_share *share, int32_t n) {
    int32_t left = s->prefill_tokens;
    for (int32_t k = 0; k < n; k++) {
        int32_t take = min3(share[k].turn->n_drafts, left, left);
        share[k].n_tokens += take;
        left -= take;
    }
}

static int32_t plan_priority(struct scheduler *s, struct sched_share *share,
                             enum engine_priority priority) {
    int32_t n = 0, n_prefilling = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct sched_turn *t = s->running[i];
        if (decodes(t) && t->priority == priority) share[n++] = (struct sched_share){t, rows_of(t)};
        n_prefilling += prefills(t, priority);
    }
    if (n_prefilling == 0) {
        plan_drafts(s, share, n);
        return n;
    }
    int32_t budget = prefill_budget(s, n, n_prefilling);
    if (priority == ENGINE_IDLE) budget = at_least(budget / IDLE_BUDGET_PART, MIN_SHARE);
    return n + plan_prefill(s, share + n, priority, budget);
}

// Idle turns compute one after another: a drawn token each, or a piece of a prompt as soon as enough tokens
// are saved up for it. So most steps still have drawn tokens only, for which a GPU has captured graphs.
static int32_t plan_idle_beside(struct scheduler *s, struct sched_share *share, int32_t n_tokens) {
    int32_t n = 0, start = s->idle_cursor, part = at_least(n_tokens / IDLE_PART, 1);
    int32_t room = s->max_running + s->prefill_tokens - n_tokens; // the widest step
    int32_t widest = MIN_SHARE;                                   // a step of a turn with branches
    for (int32_t i = 0; i < s->n_running; i++)
        if (s->running[i]->priority == ENGINE_IDLE)
            widest = at_least(rows_of(s->running[i]), widest);
    s->idle_saved = min3(s->idle_saved + part, at_least(part, widest), INT32_MAX);
    for (int32_t k = 0; k < s->n_running; k++) {
        int32_t i = (start + k) % s->n_running;
        struct sched_turn *t = s->running[i];
        if (!prefills(t, ENGINE_IDLE) && (!decodes(t) || t->priority != ENGINE_IDLE)) continue;
        int32_t take =
            t->state == SCHED_DECODE ? rows_of(t) : min3(todo_of(t), MIN_SHARE, MIN_SHARE);
        if (take > s->idle_saved || take > room) return n;
        share[n++] = (struct sched_share){t, take};
        s->idle_saved -= take;
        room -= take;
        s->idle_cursor = i + 1;
    }
    s->idle_saved = 0; // every idle turn had its part
    return n;
}

int32_t sched_plan(struct scheduler *s, struct sched_share *share) {
    int32_t n = plan_priority(s, share, ENGINE_INTERACTIVE), n_tokens = 0;
    if (s->fair[ENGINE_IDLE].n_held == 0) return n;
    if (s->fair[ENGINE_INTERACTIVE].n_held == 0) return plan_priority(s, share, ENGINE_IDLE);
    for (int32_t i = 0; i < n; i++) n_tokens += share[i].n_tokens;
    return n + plan_idle_beside(s, share + n, n_tokens);
}

void sched_group(struct scheduler *s, int32_t n) {
    for (int32_t i = 0, at = 0; i < s->n_running; i++)
        if (s->running[i]->state == SCHED_DECODE) s->running[i]->group = at++ % n;
}

int32_t sched_plan_group(struct scheduler *s, int32_t group, struct sched_share *share) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct sched_turn *t = s->running[i];
        if (decodes(t) && t->group == group) share[n++] = (struct sched_share){t, 1};
    }
    return n;
}

void sched_computed(struct sched_turn *t, int32_t n_tokens) {
    int32_t again = t->n_again < n_tokens ? (int32_t)t->n_again : n_tokens;
    t->n_again -= again;
    t->fair.owner->used += (n_tokens - again) * (t->state == SCHED_DECODE ? DRAWN_COST : 1);
    if (t->state == SCHED_DECODE) return;
    t->n_todo -= n_tokens;
    if (t->n_todo == 0) t->state = SCHED_DECODE;
}

void sched_checked(struct sched_turn *t, int32_t n_drafts) {
    t->fair.owner->used += n_drafts;
}
