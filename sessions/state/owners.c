// Limits and counts of owners. See owners.h. The token file names all owners, so the table needs no
// bound.
#include "sessions/state/owners.h"
#include "base/metrics.h"
#include <stdlib.h>
#include <string.h>

#define TIB (1024.0 * 1024 * 1024 * 1024)
#define BURST_SECONDS 15 // of a rate that may be used at once after a pause

// name, type, maximum, default, help. Defaults: what a public server could keep.
#define OWNER_LIMITS(X)                                                                            \
    X(requests_per_minute, INT, 1e9, "1200",                                                       \
      "Default of all owners; an owner's line of token_file may set another value for it and for " \
      "each limit below. 0 means no limit. Requests of an owner in a minute over all its "         \
      "connections: messages, control frames and HTTP requests; a long one counts one more for "   \
      "each 64 KiB. A quarter of them may come at once.")                                          \
    X(tokens_per_minute, INT, 1e12, "1000000",                                                     \
      "Tokens in a minute that are computed for an owner, of inputs and answers. Beyond, new "     \
      "turns are refused until the time is up; running ones finish.")                              \
    X(running_turns, INT, 1e6, "8",                                                                \
      "Turns of an owner that run at the same time; its other turns wait.")                        \
    X(connections, INT, 1e6, "64", "Open connections of an owner, over all addresses.")            \
    X(sessions, INT, 1e12, "100000", "Stored sessions of an owner.")                               \
    X(resident_sessions, INT, 1e9, "1024",                                                         \
      "Sessions of an owner in memory. Beyond, its least recently used ones without a turn leave " \
      "it, whatever max_resident_sessions is. Those that cannot leave, because they are not on "   \
      "disk yet or a client has not read their events, may be a quarter more, at least 64; then "  \
      "opening another one is refused as overloaded, with a time.")                                \
    X(stored_bytes, BYTES, 1024 * TIB, "4GiB",                                                     \
      "Size of all sessions of an owner in the database, as the server counts it: texts of "       \
      "inputs, 16 bytes for each token, 1 KiB for a session and half of that for a turn. The "     \
      "file, with its index of words, takes 0.3 times (empty sessions) to 1.4 times of that "      \
      "(long answers).")                                                                           \
    X(outstanding_jobs, INT, 1e6, "64",                                                            \
      "Turns of an owner that run or wait, its replays, exports and imports, together.")           \
    X(cache_share, FLOAT, 1, "0.5",                                                                \
      "Share of the device's KV cache that idle sessions of an owner may keep while less than a "  \
      "quarter of it is free. Beyond, the ones that are idle longest are parked. Of host memory "  \
      "for parked caches an owner keeps up to half when others need room. Turns and replays that " \
      "run have what they need; a prefix that sessions share counts for each.")

#define ROW(prefix, name, type, max, fallback, help)                                               \
    {"owners",                                                                                     \
     prefix #name,                                                                                 \
     CONFIG_##type,                                                                                \
     offsetof(struct owner_limits, name),                                                          \
     0,                                                                                            \
     max,                                                                                          \
     NULL,                                                                                         \
     fallback,                                                                                     \
     help,                                                                                         \
     0},
#define LINE(name, ...) ROW("", name, __VA_ARGS__)
#define SETTING(name, ...) ROW("owner_", name, __VA_ARGS__)
static const struct config_key line_keys[] = {OWNER_LIMITS(LINE)};
static const struct config_key setting_keys[] = {OWNER_LIMITS(SETTING)};
const struct config_table owner_limits_table = {.keys = line_keys, .n_keys = N_OWNER_LIMITS};

int owner_limit_keys(struct config_key *out, size_t offset) {
    for (int i = 0; i < N_OWNER_LIMITS; i++) {
        out[i] = setting_keys[i];
        out[i].offset += offset;
    }
    return N_OWNER_LIMITS;
}

void owner_limits_put(struct owner_limits *to, const struct owner_limits *from, unsigned bits) {
    for (int i = 0; i < N_OWNER_LIMITS; i++) // an int64_t or a double
        if (bits >> i & 1)
            memcpy((char *)to + line_keys[i].offset, (const char *)from + line_keys[i].offset, 8);
}

double owner_limit_value(const struct owner_limits *l, enum owner_limit which) {
    const struct config_key *k = &line_keys[which];
    const void *field = (const char *)l + k->offset;
    return k->type == CONFIG_FLOAT ? *(const double *)field : (double)*(const int64_t *)field;
}

// --- the table ---------------------------------------------------------------

void owners_init(struct owners *t, struct metrics *m) {
    *t = (struct owners){0};
    for (int i = 0; m && i < N_OWNER_LIMITS; i++)
        t->m_limited[i] = metrics_counter_of(
            m, "parley_limited_total",
            "Requests that met a limit of their owner, by the limit: refused, or, for "
            "running_turns, made to wait.",
            "limit", owner_limit_name((enum owner_limit)i));
}

struct owner *owners_get(struct owners *t, const char *name) {
    struct owner *o;
    HASH_FIND_STR(t->by_name, name, o);
    if (o) return o;
    o = calloc(1, sizeof *o);
    if (!o || !(o->name = strdup(name))) {
        free(o);
        return NULL;
    }
    HASH_ADD_KEYPTR(hh, t->by_name, o->name, strlen(o->name), o);
    if (!hash_added(&o->hh)) {
        free(o->name);
        free(o);
        return NULL;
    }
    o->number = ++t->last;
    return o;
}

void owners_release(struct owners *t) {
    struct owner *o, *next;
    HASH_ITER(hh, t->by_name, o, next) {
        HASH_DEL(t->by_name, o);
        free(o->name);
        free(o);
    }
    *t = (struct owners){0};
}

// --- limits ------------------------------------------------------------------

static struct rate_limit limit_of_rate(int64_t per_minute) {
    double per_second = (double)per_minute / 60;
    double burst = per_second * BURST_SECONDS;
    return (struct rate_limit){per_second, burst < 1 ? 1 : burst};
}

// A rate that is changed begins with a full bucket.
static void change_rate(struct rate *r, int64_t from, int64_t to, int64_t now_us) {
    struct rate_limit l = limit_of_rate(to);
    if (from != to) rate_init(r, &l, now_us);
}

void owner_set_limits(struct owner *o, const struct owner_limits *l, int64_t now_us) {
    change_rate(&o->requests, o->limits.requests_per_minute, l->requests_per_minute, now_us);
    change_rate(&o->tokens, o->limits.tokens_per_minute, l->tokens_per_minute, now_us);
    o->limits = *l;
}

bool owner_has_room(const struct owner *o, enum owner_limit which, int64_t n) {
    double limit = owner_limit_value(&o->limits, which);
    return limit == 0 || (double)(o->used[which] + n) <= limit;
}

void owner_met(struct owners *t, struct owner *o, enum owner_limit which) {
    o->refused[which]++;
    metric_add(t->m_limited[which], 1);
}

int owner_refuse(struct owners *t, struct owner *o, enum owner_limit which, struct err *err) {
    static const char *const what[N_OWNER_LIMITS] = {
        "requests a minute", "tokens a minute",
        "running turns",     "open connections",
        "stored sessions",   "sessions in memory",
        "bytes in storage",  "turns, replays, exports and imports under way",
        "of the KV cache"};
    struct buf limit;
    owner_met(t, o, which);
    buf_init(&limit, 64);
    config_text(&line_keys[which], &o->limits, &limit);
    err_set(err, E_LIMIT, "your limit is %s %s", buf_z(&limit), what[which]);
    buf_release(&limit);
    return E_LIMIT;
}

int64_t owner_take_requests(struct owner *o, double cost, int64_t now_us) {
    struct rate_limit l = limit_of_rate(o->limits.requests_per_minute);
    if (o->limits.requests_per_minute && !rate_take(&o->requests, &l, cost, now_us))
        return rate_promise_ms(&o->requests, &l, cost);
    o->used[OWNER_REQUESTS] += (int64_t)cost;
    return 0;
}

void owner_charge_requests(struct owner *o, double cost, int64_t now_us) {
    struct rate_limit l = limit_of_rate(o->limits.requests_per_minute);
    if (o->limits.requests_per_minute) rate_charge(&o->requests, &l, cost, now_us);
    o->used[OWNER_REQUESTS] += (int64_t)cost;
}

int64_t owner_rate_left(const struct owner *o, enum owner_limit which, int64_t now_us,
                        int64_t *full_ms) {
    bool tokens = which == OWNER_TOKENS;
    struct rate_limit l =
        limit_of_rate(tokens ? o->limits.tokens_per_minute : o->limits.requests_per_minute);
    struct rate r = tokens ? o->tokens : o->requests; // a copy: asking takes nothing
    rate_charge(&r, &l, 0, now_us);
    *full_ms = (int64_t)((l.burst - r.tokens) * 1000 / l.per_second);
    return r.tokens > 0 ? (int64_t)r.tokens : 0;
}

#define TURNOVER_US 1000000 // measured over
#define TURNOVER_MIN 0.1    // a second: so the longest retry-after is ten seconds
#define CROWD_FIRST_MS 1000 // before anything was measured

void owner_session_left(struct owner *o, int64_t now_us) {
    struct owner_turnover *t = &o->turnover;
    int64_t us = now_us - t->since_us;
    t->n++;
    if (us < TURNOVER_US) return;
    t->per_second = t->since_us ? (double)t->n * 1e6 / (double)us : 0;
    t->since_us = now_us;
    t->n = 0;
}

static double turnover(const struct owner_turnover *t, int64_t now_us) {
    double us = (double)(now_us - t->since_us);
    double now = us < TURNOVER_US ? t->per_second : (double)t->n * 1e6 / us;
    return now > TURNOVER_MIN ? now : TURNOVER_MIN;
}

int64_t owner_crowd_ms(struct owner *o, int64_t now_us) {
    struct owner_turnover *t = &o->turnover;
    int64_t limit = o->limits.resident_sessions, more = limit / 4;
    if (limit == 0) return 0;
    if (more < OWNER_CROWD_MIN) more = OWNER_CROWD_MIN;
    int64_t room =
        limit + more + o->used[OWNER_OUTSTANDING_JOBS] - o->used[OWNER_RESIDENT_SESSIONS];
    if (room > 0) return 0;
    if (t->per_second == 0) return CROWD_FIRST_MS;
    struct rate_limit l = {turnover(t, now_us), (double)more};
    t->promised.tokens = (double)room;
    t->promised.at_us = now_us;
    int64_t ms = rate_promise_ms(&t->promised, &l, 1);
    return ms < (int64_t)(1000 / TURNOVER_MIN) ? ms : (int64_t)(1000 / TURNOVER_MIN);
}

int64_t owner_tokens_wait_ms(struct owner *o, int64_t now_us) {
    struct rate_limit l = limit_of_rate(o->limits.tokens_per_minute);
    if (!o->limits.tokens_per_minute || rate_take(&o->tokens, &l, 1, now_us)) return 0;
    return rate_promise_ms(&o->tokens, &l, 1);
}

void owner_charge_tokens(struct owner *o, int64_t n, int64_t now_us) {
    struct rate_limit l = limit_of_rate(o->limits.tokens_per_minute);
    if (o->limits.tokens_per_minute) rate_charge(&o->tokens, &l, (double)n, now_us);
    o->used[OWNER_TOKENS] += n;
}
