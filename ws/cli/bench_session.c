// See bench_session.h.
#include "ws/cli/bench_session.h"

#include "base/clock.h"
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE = 1 << 20 }; // above the numbers of other parts

struct told { // the result of one turn
    int32_t *ids;
    int64_t n;                    // drawn
    int64_t first_us;             // when the caller got the first one
    int64_t queue_us, prefill_us; // the engine's own times
    int64_t decode_us;
};

static void fill(int32_t *ids, int64_t n, const struct engine *e) {
    static uint32_t x = 2463534242u; // xorshift
    for (int64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        ids[i] = (int32_t)(x % (uint32_t)engine_info(e)->n_vocab);
    }
}

// Submits a greedy turn on log (n_ids, the last n_input of them new) that samples n_draw tokens.
static int submit(struct engine *e, const struct cli_model *m, uint64_t sequence,
                  const int32_t *log, int64_t n_ids, int64_t n_input, int64_t n_draw,
                  struct err *err) {
    struct engine_turn turn = {.sequence = sequence, .turn = sequence, .n_input = n_input};
    cli_greedy(&turn.sampling, n_draw);
    return cli_submit(e, m, &turn, log, n_ids, err);
}

int bench_submit(struct engine *e, const struct cli_model *m, uint64_t sequence, int64_t n_ids,
                 int64_t n_draw, struct err *err) {
    int32_t *ids = malloc((size_t)n_ids * sizeof *ids);
    if (!ids) return err_set(err, E_NOMEM, "out of memory for %lld ids", (long long)n_ids);
    fill(ids, n_ids, e);
    int rc = submit(e, m, sequence, ids, n_ids, n_ids, n_draw, err);
    free(ids);
    return rc;
}

static int check_finish(const struct engine_event *ev, struct err *err) {
    if (ev->finish == FINISH_LENGTH) return 0;
    return err_set(err, ev->error_code ? ev->error_code : E_INTERNAL, "a turn ended by %s: %.*s",
                   engine_finish_name(ev->finish), (int)ev->text_len, ev->text);
}

// Runs a turn to its end. t->ids receives the sampled tokens.
static int say(struct engine *e, const struct cli_model *m, uint64_t sequence, const int32_t *log,
               int64_t n_ids, int64_t n_input, int64_t n_draw, struct told *t, struct err *err) {
    struct engine_event ev;
    TRY(submit(e, m, sequence, log, n_ids, n_input, n_draw, err));
    t->n = 0;
    for (;;) {
        TRY(engine_wait(e, &ev, -1));
        if (ev.kind == ENGINE_TOKEN && ev.id >= 0) {
            if (t->n == 0) t->first_us = clock_mono_us(&clock_system);
            t->ids[t->n++] = ev.id;
        }
        if (ev.kind == ENGINE_DONE) break;
    }
    TRY(check_finish(&ev, err));
    t->queue_us = ev.queue_us;
    t->prefill_us = ev.prefill_us;
    t->decode_us = ev.decode_us;
    return 0;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(double *values, int64_t n, double q) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[(int64_t)(q * (double)(n - 1))];
}

double bench_median(double *values, int64_t n) {
    if (n == 0) return 0;
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

int bench_later_turn(struct engine *e, const struct cli_model *m, int64_t context_tokens,
                     int64_t n_new, int64_t repeat, struct later_turn *out, struct err *err) {
    int64_t n = context_tokens + 1 + n_new;
    int32_t *log = malloc((size_t)n * sizeof *log);
    double *all = calloc((size_t)repeat * 2, sizeof *all);
    int rc = log && all ? 0 : err_set(err, E_NOMEM, "out of memory for %lld ids", (long long)n);
    for (int64_t i = -1; rc == 0 && i < repeat; i++) { // the first warms up
        uint64_t sequence = SEQUENCE + (uint64_t)(i + 1);
        struct told t = {.ids = log + context_tokens};
        fill(log, n, e);
        TRY_GOTO(out, say(e, m, sequence, log, context_tokens, context_tokens, 1, &t, err));
        int32_t drawn[1];
        struct told later = {.ids = drawn};
        int64_t began = clock_mono_us(&clock_system);
        TRY_GOTO(out, say(e, m, sequence, log, n, n_new, 1, &later, err));
        if (i >= 0) all[i] = (double)(later.first_us - began) / 1e3;
        if (i >= 0) all[repeat + i] = (double)(later.queue_us + later.prefill_us) / 1e3;
        engine_sequence_release(e, sequence);
    }
    if (rc == 0) {
        out->first_token_ms = bench_median(all, repeat);
        out->engine_ms = bench_median(all + repeat, repeat);
    }
out:
    free(all);
    free(log);
    return rc;
}

int bench_long_session(struct engine *e, const struct cli_model *m, int64_t turns,
                       int64_t turn_tokens, struct long_session *out, struct err *err) {
    int64_t n = 0, n_1 = 0, n_10 = 0, window = m->memory_len;
    int32_t *log = malloc((size_t)(2 * turns * turn_tokens) * sizeof *log);
    double *us = calloc((size_t)turns * 4, sizeof *us);
    int rc =
        log && us ? 0 : err_set(err, E_NOMEM, "out of memory for %lld turns", (long long)turns);
    for (int64_t i = 0; rc == 0 && i < turns; i++) {
        int64_t began_with = n;
        struct told t = {.ids = log + n + turn_tokens};
        fill(log + n, turn_tokens, e);
        TRY_GOTO(out,
                 say(e, m, SEQUENCE - 1, log, n + turn_tokens, turn_tokens, turn_tokens, &t, err));
        n += turn_tokens + t.n;
        double per_token = (double)t.decode_us / (double)(t.n - 1);
        double whole = (double)(t.queue_us + t.prefill_us + t.decode_us) / 1e3;
        if (began_with >= window && began_with < 2 * window) {
            us[n_1] = per_token;
            us[turns + n_1++] = whole;
        } else if (began_with >= 10 * window) {
            us[2 * turns + n_10] = per_token;
            us[3 * turns + n_10++] = whole;
        }
    }
    if (rc == 0)
        *out = (struct long_session){bench_median(us, n_1), bench_median(us + 2 * turns, n_10),
                                     bench_median(us + turns, n_1),
                                     bench_median(us + 3 * turns, n_10), n};
    engine_sequence_release(e, SEQUENCE - 1);
out:
    free(us);
    free(log);
    return rc;
}

int bench_first_turns(struct engine *e, const struct cli_model *m, int64_t n_tokens,
                      struct first_turns *out, struct err *err) {
    double *const ms[] = {&out->first_ms, &out->second_ms};
    int32_t drawn[2], *log = malloc((size_t)n_tokens * sizeof *log);
    int rc = log ? 0 : err_set(err, E_NOMEM, "out of memory for %lld ids", (long long)n_tokens);
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct told t = {.ids = drawn};
        uint64_t sequence = SEQUENCE - 2 - (uint64_t)i;
        fill(log, n_tokens, e);
        int64_t began = clock_mono_us(&clock_system);
        rc = say(e, m, sequence, log, n_tokens, n_tokens, 2, &t, err);
        *ms[i] = (double)(t.first_us - began) / 1e3;
        engine_sequence_release(e, sequence);
    }
    free(log);
    return rc;
}

// --- prompts that arrive beside sessions that decode ---------------------------------------------

enum { ALONE_TOKENS = 64 }; // of each session before the first prompt arrives

struct beside {
    struct engine *engine;
    const struct cli_model *model;
    struct err *err;
    int64_t sessions, n_arrivals, every_us, context_tokens;
    int64_t *last_us, *drawn;        // (sessions) time of the last token; tokens
    int64_t *called_us;              // (n_arrivals)
    double *alone, *between, *first; // milliseconds
    int64_t n_alone, n_between, max_between, n_first;
    int64_t n_called, n_ended, next_us; // prompts so far; when the next one arrives
    int64_t began_us, n_beside;         // sessions' tokens since
};

static void note_session_token(struct beside *b, int64_t i, int64_t now_us) {
    const double ms = (double)(now_us - b->last_us[i]) / 1e3;
    const bool arriving = b->n_called > 0 && b->n_first < b->n_arrivals;
    if (b->drawn[i] > 1 && arriving && b->n_between < b->max_between)
        b->between[b->n_between++] = ms;
    // The first ones come while other sessions' prompts are computed.
    if (b->drawn[i] > ALONE_TOKENS / 2 && b->n_called == 0 && b->n_alone < b->max_between)
        b->alone[b->n_alone++] = ms;
    b->n_beside += arriving;
    b->last_us[i] = now_us;
    b->drawn[i]++;
}

static bool all_have(const struct beside *b, int64_t n) {
    for (int64_t i = 0; i < b->sessions; i++)
        if (b->drawn[i] < n) return false;
    return true;
}

static int call_next_prompt(struct beside *b) {
    const int64_t now = clock_mono_us(&clock_system);
    if (b->n_called == 0) b->next_us = b->began_us = now;
    if (now < b->next_us || b->n_called == b->n_arrivals) return 0;
    b->called_us[b->n_called] = now;
    b->next_us += b->every_us;
    return bench_submit(b->engine, b->model, SEQUENCE + (uint64_t)(b->sessions + b->n_called++),
                        b->context_tokens, 1, b->err);
}

static int take_event(struct beside *b, const struct engine_event *ev) {
    const int64_t i = (int64_t)(ev->turn - SEQUENCE), prompt = i - b->sessions;
    if (ev->kind == ENGINE_TOKEN && prompt < 0) note_session_token(b, i, ev->time_us);
    if (ev->kind == ENGINE_TOKEN && prompt >= 0)
        b->first[b->n_first++] =
            (double)(clock_mono_us(&clock_system) - b->called_us[prompt]) / 1e3;
    if (ev->kind != ENGINE_DONE) return 0;
    b->n_ended++;
    engine_sequence_release(b->engine, ev->sequence);
    if (prompt < 0 && ev->finish == FINISH_CANCELLED) return 0;
    return check_finish(ev, b->err);
}

static int run_beside(struct beside *b) {
    struct engine_event ev;
    // Enough for steps of 3 ms while the prompts arrive.
    const int64_t session_tokens = 2 * ALONE_TOKENS + b->n_arrivals * b->every_us / 3000;
    for (int64_t i = 0; i < b->sessions; i++)
        TRY(bench_submit(b->engine, b->model, SEQUENCE + (uint64_t)i, b->context_tokens,
                         session_tokens, b->err));
    bool cancelled = false;
    while (b->n_ended < b->sessions + b->n_arrivals) {
        if (all_have(b, ALONE_TOKENS)) TRY(call_next_prompt(b));
        int rc = engine_wait(b->engine, &ev, 1000);
        if (rc < 0) return rc;
        if (rc == 1) TRY(take_event(b, &ev));
        if (cancelled || b->n_first < b->n_arrivals) continue;
        cancelled = true;
        for (int64_t i = 0; i < b->sessions; i++)
            engine_turn_cancel(b->engine, SEQUENCE + (uint64_t)i, SEQUENCE + (uint64_t)i);
    }
    return 0;
}

int bench_arrivals(struct engine *e, const struct cli_model *m, int64_t sessions,
                   int64_t context_tokens, int64_t n_arrivals, int64_t every_ms,
                   struct arrivals *out, struct err *err) {
    const int64_t room = sessions * n_arrivals * 64;
    struct beside b = {.engine = e,
                       .model = m,
                       .err = err,
                       .sessions = sessions,
                       .n_arrivals = n_arrivals,
                       .every_us = every_ms * 1000,
                       .context_tokens = context_tokens,
                       .max_between = room};
    b.last_us = calloc((size_t)sessions * 2, sizeof *b.last_us);
    b.called_us = calloc((size_t)n_arrivals, sizeof *b.called_us);
    b.alone = calloc((size_t)(2 * room + n_arrivals), sizeof *b.alone);
    int rc = b.last_us && b.called_us && b.alone
                 ? 0
                 : err_set(err, E_NOMEM, "no memory for %lld arrivals", (long long)n_arrivals);
    if (rc == 0) {
        b.drawn = b.last_us + sessions;
        b.between = b.alone + room;
        b.first = b.between + room;
        rc = run_beside(&b);
    }
    if (rc == 0) {
        const double seconds = (double)(clock_mono_us(&clock_system) - b.began_us) / 1e6;
        *out = (struct arrivals){.between_p50_ms = quantile(b.between, b.n_between, 0.5),
                                 .between_p99_ms = quantile(b.between, b.n_between, 0.99),
                                 .first_token_p50_ms = quantile(b.first, b.n_first, 0.5),
                                 .alone_p50_ms = quantile(b.alone, b.n_alone, 0.5),
                                 .alone_p99_ms = quantile(b.alone, b.n_alone, 0.99),
                                 .tokens_per_second = (double)b.n_beside / seconds};
    }
    free(b.alone);
    free(b.called_us);
    free(b.last_us);
    return rc;
}
