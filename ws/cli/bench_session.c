// Whole sessions. See bench.h.
#include "base/clock.h"
#include "ws/cli/bench.h"
#include <stdlib.h>

struct timed { // the result of one turn
    int32_t *ids;
    int64_t n;                               // drawn
    int64_t first_us;                        // when the caller got the first one
    int64_t queue_us, prefill_us, decode_us; // the engine's own times
};

static int32_t *ids_new(const struct bench *b, int64_t n) {
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    if (!ids) err_set(b->err, E_NOMEM, "out of memory for %lld ids", (long long)n);
    return ids;
}

static void fill(const struct bench *b, int32_t *ids, int64_t n) {
    static uint32_t x = 2463534242u; // xorshift
    for (int64_t i = 0; i < n; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        ids[i] = (int32_t)(x % (uint32_t)engine_info(b->engine)->n_vocab);
    }
}

// Submits a greedy turn on log (n_ids, the last n_input of them new) that samples n_draw tokens.
static int submit(struct bench *b, uint64_t sequence, const int32_t *log, int64_t n_ids,
                  int64_t n_input, int64_t n_draw) {
    struct engine_turn turn = {.sequence = sequence, .turn = sequence, .n_input = n_input};
    cli_greedy(&turn.sampling, n_draw);
    return cli_submit(b->engine, &b->settings->model, &turn, log, n_ids, b->err);
}

int bench_submit(struct bench *b, int64_t n_ids, int64_t n_draw) {
    int32_t *ids = ids_new(b, n_ids);
    if (!ids) return E_NOMEM;
    fill(b, ids, n_ids);
    int rc = submit(b, ++b->next, ids, n_ids, n_ids, n_draw);
    free(ids);
    return rc;
}

static int check_finish(const struct engine_event *ev, struct err *err) {
    if (ev->finish == FINISH_LENGTH) return 0;
    return err_set(err, ev->error_code ? ev->error_code : E_INTERNAL, "a turn ended by %s: %.*s",
                   engine_finish_name(ev->finish), (int)ev->text_len, ev->text);
}

// Runs a turn of sequence b->next to its end. t->ids receives the sampled tokens.
static int run_turn(struct bench *b, const int32_t *log, int64_t n_ids, int64_t n_input,
                    int64_t n_draw, struct timed *t) {
    struct engine_event ev;
    TRY(submit(b, b->next, log, n_ids, n_input, n_draw));
    t->n = 0;
    for (;;) {
        TRY(engine_wait(b->engine, &ev, -1));
        if (ev.kind == ENGINE_TOKEN && ev.id >= 0) {
            if (t->n == 0) t->first_us = clock_mono_us(&clock_system);
            t->ids[t->n++] = ev.id;
        }
        if (ev.kind == ENGINE_DONE) break;
    }
    TRY(check_finish(&ev, b->err));
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

int bench_later_turn(struct bench *b, struct later_turn *out) {
    const struct bench_settings *s = b->settings;
    const int64_t n_old = s->context_tokens, n = n_old + 1 + s->later_turn, repeat = s->repeat;
    int32_t *log = ids_new(b, n), drawn[1];
    double *all = calloc((size_t)repeat * 2, sizeof *all);
    int rc = log && all ? 0 : E_NOMEM;
    for (int64_t i = -1; rc == 0 && i < repeat; i++) { // the first warms up
        struct timed t = {.ids = log + n_old}, later = {.ids = drawn};
        b->next++;
        fill(b, log, n);
        TRY_GOTO(out, run_turn(b, log, n_old, n_old, 1, &t));
        int64_t began = clock_mono_us(&clock_system);
        TRY_GOTO(out, run_turn(b, log, n, s->later_turn, 1, &later));
        if (i >= 0) all[i] = (double)(later.first_us - began) / 1e3;
        if (i >= 0) all[repeat + i] = (double)(later.queue_us + later.prefill_us) / 1e3;
        engine_sequence_release(b->engine, b->next);
    }
    if (rc == 0)
        *out = (struct later_turn){bench_median(all, repeat), bench_median(all + repeat, repeat)};
out:
    free(all);
    free(log);
    return rc;
}

int bench_long_session(struct bench *b, struct long_session *out) {
    const int64_t turns = b->settings->turns, turn_tokens = b->settings->turn_tokens;
    int64_t n = 0, n_1 = 0, n_10 = 0, window = b->settings->model.memory_len;
    int32_t *log = ids_new(b, 2 * turns * turn_tokens);
    double *us = calloc((size_t)turns * 4, sizeof *us);
    int rc = log && us ? 0 : E_NOMEM;
    b->next++;
    for (int64_t i = 0; rc == 0 && i < turns; i++) {
        int64_t began_with = n;
        struct timed t = {.ids = log + n + turn_tokens};
        fill(b, log + n, turn_tokens);
        TRY_GOTO(out, run_turn(b, log, n + turn_tokens, turn_tokens, turn_tokens, &t));
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
    engine_sequence_release(b->engine, b->next);
out:
    free(us);
    free(log);
    return rc;
}

int bench_first_turns(struct bench *b, struct first_turns *out) {
    double *const ms[] = {&out->first_ms, &out->second_ms};
    const int64_t n = b->settings->first_turn;
    int32_t drawn[2], *log = ids_new(b, n);
    int rc = log ? 0 : E_NOMEM;
    for (int i = 0; rc == 0 && i < 2; i++) {
        struct timed t = {.ids = drawn};
        b->next++;
        fill(b, log, n);
        int64_t began = clock_mono_us(&clock_system);
        rc = run_turn(b, log, n, n, 2, &t);
        *ms[i] = (double)(t.first_us - began) / 1e3;
        engine_sequence_release(b->engine, b->next);
    }
    free(log);
    return rc;
}

// --- prompts that arrive beside sessions that decode ---------------------------------------------

enum { ALONE_TOKENS = 64 }; // of each session before the first prompt arrives

struct beside {
    struct bench *bench;
    const struct bench_settings *settings;
    uint64_t oldest;                 // number of the first session; prompts follow the sessions
    int64_t *last_us, *drawn;        // (sequences) time of the last token; tokens
    int64_t *called_us;              // (arrivals)
    double *alone, *between, *first; // milliseconds
    int64_t n_alone, n_between, max_between, n_first;
    int64_t n_called, n_ended, next_us; // prompts so far; when the next one arrives
    int64_t began_us, n_beside;         // sessions' tokens since
};

static void note_session_token(struct beside *b, int64_t i, int64_t now_us) {
    const double ms = (double)(now_us - b->last_us[i]) / 1e3;
    const bool arriving = b->n_called > 0 && b->n_first < b->settings->arrivals;
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
    for (int64_t i = 0; i < b->settings->sequences; i++)
        if (b->drawn[i] < n) return false;
    return true;
}

static int call_next_prompt(struct beside *b) {
    const struct bench_settings *s = b->settings;
    const int64_t now = clock_mono_us(&clock_system);
    if (b->n_called == 0) b->next_us = b->began_us = now;
    if (now < b->next_us || b->n_called == s->arrivals) return 0;
    b->called_us[b->n_called++] = now;
    b->next_us += s->arrival_ms * 1000;
    return bench_submit(b->bench, s->context_tokens, 1);
}

static int take_event(struct beside *b, const struct engine_event *ev) {
    const int64_t i = (int64_t)(ev->turn - b->oldest), prompt = i - b->settings->sequences;
    if (ev->kind == ENGINE_TOKEN && prompt < 0) note_session_token(b, i, ev->time_us);
    if (ev->kind == ENGINE_TOKEN && prompt >= 0)
        b->first[b->n_first++] =
            (double)(clock_mono_us(&clock_system) - b->called_us[prompt]) / 1e3;
    if (ev->kind != ENGINE_DONE) return 0;
    b->n_ended++;
    engine_sequence_release(b->bench->engine, ev->sequence);
    if (prompt < 0 && ev->finish == FINISH_CANCELLED) return 0;
    return check_finish(ev, b->bench->err);
}

static int run_beside(struct beside *b) {
    const struct bench_settings *s = b->settings;
    struct engine *e = b->bench->engine;
    struct engine_event ev;
    // Enough for steps of 3 ms while the prompts arrive.
    const int64_t session_tokens = 2 * ALONE_TOKENS + s->arrivals * s->arrival_ms / 3;
    b->oldest = b->bench->next + 1;
    for (int64_t i = 0; i < s->sequences; i++)
        TRY(bench_submit(b->bench, s->context_tokens, session_tokens));
    bool cancelled = false;
    while (b->n_ended < s->sequences + s->arrivals) {
        if (all_have(b, ALONE_TOKENS)) TRY(call_next_prompt(b));
        int rc = engine_wait(e, &ev, 1000);
        if (rc < 0) return rc;
        if (rc == 1) TRY(take_event(b, &ev));
        if (cancelled || b->n_first < s->arrivals) continue;
        cancelled = true;
        for (uint64_t id = b->oldest; id < b->oldest + (uint64_t)s->sequences; id++)
            engine_turn_cancel(e, id, id);
    }
    return 0;
}

int bench_arrivals(struct bench *bench, struct arrivals *out) {
    const struct bench_settings *s = bench->settings;
    const int64_t room = s->sequences * s->arrivals * 64;
    struct beside b = {.bench = bench, .settings = s, .max_between = room};
    b.last_us = calloc((size_t)s->sequences * 2, sizeof *b.last_us);
    b.called_us = calloc((size_t)s->arrivals, sizeof *b.called_us);
    b.alone = calloc((size_t)(2 * room + s->arrivals), sizeof *b.alone);
    int rc = b.last_us && b.called_us && b.alone
                 ? 0
                 : err_set(bench->err, E_NOMEM, "out of memory for %lld arrivals",
                           (long long)s->arrivals);
    if (rc == 0) {
        b.drawn = b.last_us + s->sequences;
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
