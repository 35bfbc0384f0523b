// The policy of scheduler.h.
#include "engine/run/scheduler.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

// The smallest share of a prompt in a step: if there are many prompts, fewer of them share a step, and
// the others come first in the next.
enum { MIN_SHARE = 16 };

// Prompt tokens of a step that other sessions decode in. All of them wait for that step, so it must
// be short; much shorter steps compute fewer prompt tokens in a second. Llama-8B on an H200, 64
// sessions that decode while a prompt of 1,024 arrives every 50 ms: 17 ms between tokens at the
// 99th percentile where 2,048 gives 35, and 17 % more tokens/s; with 256, prompts queue up.
enum { BESIDE_TOKENS = 384 };

int sched_init(struct scheduler *s, int32_t max_running, int32_t prefill_tokens, int32_t n_blocks,
               struct err *err) {
    *s = (struct scheduler){
        .max_running = max_running, .prefill_tokens = prefill_tokens, .n_blocks = n_blocks};
    s->queue.prev = s->queue.next = &s->queue;
    s->running = calloc((size_t)max_running, sizeof *s->running);
    if (!s->running)
        return err_set(err, E_NOMEM, "no memory to schedule %d sequences", max_running);
    return 0;
}

void sched_release(struct scheduler *s) {
    free(s->running);
    s->running = NULL;
}

void sched_enqueue(struct scheduler *s, struct sched_turn *t) {
    assert(t->state == SCHED_OUT && t->reserve <= s->n_blocks);
    t->state = SCHED_QUEUED;
    t->next = &s->queue;
    t->prev = s->queue.prev;
    t->prev->next = t->next->prev = t;
    s->n_queued++;
}

static void queue_unlink(struct scheduler *s, struct sched_turn *t) {
    t->prev->next = t->next;
    t->next->prev = t->prev;
    t->prev = t->next = NULL;
    s->n_queued--;
}

struct sched_turn *sched_admit(struct scheduler *s) {
    struct sched_turn *t = s->queue.next;
    if (t == &s->queue || s->n_running == s->max_running) return NULL;
    if (t->reserve > s->n_blocks - s->n_reserved) return NULL;
    queue_unlink(s, t);
    s->n_reserved += t->reserve;
    s->running[s->n_running++] = t;
    t->state = SCHED_PREFILL;
    t->n_todo = 0;
    return t;
}

void sched_leave(struct scheduler *s, struct sched_turn *t) {
    if (t->state == SCHED_OUT) return;
    if (t->state == SCHED_QUEUED) {
        queue_unlink(s, t);
    } else {
        int32_t i = 0;
        while (s->running[i] != t) i++;
        s->n_running--;
        memmove(&s->running[i], &s->running[i + 1],
                (size_t)(s->n_running - i) * sizeof *s->running);
        if (i < s->cursor) s->cursor--; // so that the same turn stays first
        s->n_reserved -= t->reserve;
    }
    t->state = SCHED_OUT;
}

static int32_t min3(int64_t a, int32_t b, int32_t c) {
    int64_t m = a < b ? a : b;
    return (int32_t)(m < c ? m : c);
}

// Prompt tokens of the next step. Where several prompts wait, the budget grows with their number, so
// that a queue of prompts empties at full speed.
static int32_t prefill_budget(const struct scheduler *s, int32_t n_decoding, int32_t n_prefilling) {
    if (n_decoding == 0) return s->prefill_tokens;
    int64_t beside = (int64_t)BESIDE_TOKENS * (n_prefilling > 2 ? n_prefilling - 1 : 1);
    return beside < s->prefill_tokens ? (int32_t)beside : s->prefill_tokens;
}

// Shares the budget among the prefilling turns, from the cursor on. Turns that get nothing come first
// next time.
static int32_t plan_prefill(struct scheduler *s, struct sched_share *share, int32_t n_prefilling,
                            int32_t budget) {
    int32_t n = 0;
    int32_t part = budget / n_prefilling > MIN_SHARE ? budget / n_prefilling : MIN_SHARE;
    int32_t start = s->cursor < s->n_running ? s->cursor : 0, next = -1, first = -1;
    for (int32_t k = 0; k < s->n_running; k++) {
        int32_t i = (start + k) % s->n_running;
        struct sched_turn *t = s->running[i];
        if (t->state != SCHED_PREFILL) continue;
        int32_t take = min3(t->n_todo, part, budget);
        if (take == 0) {
            if (next < 0) next = i;
            continue;
        }
        if (first < 0) first = i;
        share[n++] = (struct sched_share){t, take};
        budget -= take;
    }
    for (int32_t k = 0; k < n && budget > 0; k++) { // tokens that short prompts do not need
        int32_t more = min3(share[k].turn->n_todo - share[k].n_tokens, budget, budget);
        share[k].n_tokens += more;
        budget -= more;
    }
    // All were served: the turn that was first goes to the back.
    s->cursor = next >= 0 ? next : first + 1;
    return n;
}

int32_t sched_plan(struct scheduler *s, struct sched_share *share) {
    int32_t n = 0, n_prefilling = 0;
    for (int32_t i = 0; i < s->n_running; i++) {
        struct sched_turn *t = s->running[i];
        if (t->state == SCHED_DECODE)
            share[n++] = (struct sched_share){t, 1};
        else if (t->state == SCHED_PREFILL)
            n_prefilling++;
    }
    if (n_prefilling == 0) return n;
    return n + plan_prefill(s, share + n, n_prefilling, prefill_budget(s, n, n_prefilling));
}

void sched_computed(struct sched_turn *t, int32_t n_tokens) {
    if (t->state != SCHED_PREFILL) return;
    t->n_todo -= n_tokens;
    if (t->n_todo == 0) t->state = SCHED_DECODE;
}
