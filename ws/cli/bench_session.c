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

// Runs a turn on log (n_ids, the last n_input of them new). t->ids receives the sampled tokens.
static int say(struct engine *e, const struct cli_model *m, uint64_t sequence, const int32_t *log,
               int64_t n_ids, int64_t n_input, int64_t n_draw, struct told *t, struct err *err) {
    struct engine_turn turn = {
        .sequence = sequence, .turn = sequence, .n_ids = n_ids, .n_input = n_input};
    struct engine_event ev;
    cli_greedy(&turn.sampling, n_draw);
    cli_turn_window(m, e, &turn);
    turn.ids = malloc((size_t)n_ids * sizeof *turn.ids);
    if (!turn.ids) return err_set(err, E_NOMEM, "out of memory for %lld ids", (long long)n_ids);
    memcpy(turn.ids, log, (size_t)n_ids * sizeof *turn.ids);
    int rc = engine_turn_submit(e, &turn, err);
    if (rc < 0) {
        free(turn.ids);
        return rc;
    }
    t->n = 0;
    for (;;) {
        TRY(engine_wait(e, &ev, -1));
        if (ev.kind == ENGINE_TOKEN && ev.id >= 0) {
            if (t->n == 0) t->first_us = clock_mono_us(&clock_system);
            t->ids[t->n++] = ev.id;
        }
        if (ev.kind == ENGINE_DONE) break;
    }
    if (ev.finish != FINISH_LENGTH)
        return err_set(err, ev.error_code ? ev.error_code : E_INTERNAL, "a turn ended by %s: %.*s",
                       engine_finish_name(ev.finish), (int)ev.text_len, ev.text);
    t->queue_us = ev.queue_us;
    t->prefill_us = ev.prefill_us;
    t->decode_us = ev.decode_us;
    return 0;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int64_t n) {
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
        out->first_token_ms = median(all, repeat);
        out->engine_ms = median(all + repeat, repeat);
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
        *out = (struct long_session){median(us, n_1), median(us + 2 * turns, n_10),
                                     median(us + turns, n_1), median(us + 3 * turns, n_10), n};
    engine_sequence_release(e, SEQUENCE - 1);
out:
    free(us);
    free(log);
    return rc;
}
