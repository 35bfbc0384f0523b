// Owners: what each may use and what it uses. One struct owner for each name, shared by all its
// connections, protocols and sessions. ws/net makes the table, from the token file; the session
// service counts in it too. Net thread only.
#pragma once
#include "base/config.h"
#include "base/hash.h"
#include "base/rate.h"

struct metric;
struct metrics;

// In the order of struct owner_limits and of owner_limit_keys.
enum owner_limit {
    OWNER_REQUESTS, // in a minute
    OWNER_TOKENS,   // computed in a minute
    OWNER_RUNNING_TURNS,
    OWNER_CONNECTIONS,
    OWNER_SESSIONS,          // stored
    OWNER_RESIDENT_SESSIONS, // in memory, attached or not
    OWNER_STORED_BYTES,
    OWNER_OUTSTANDING_JOBS, // turns that run or wait; replays, exports and imports
    OWNER_CACHE_SHARE,      // used: tokens of idle sessions in the KV cache
    N_OWNER_LIMITS
};
struct owner_limits { // 0: no limit
    int64_t requests_per_minute, tokens_per_minute, running_turns, connections, sessions,
        resident_sessions, stored_bytes, outstanding_jobs;
    double cache_share; // of the KV cache
};

// The keys of a token line, and of settings as owner_NAME (the defaults of all owners).
extern const struct config_table owner_limits_table;
// owner_NAME rows for a table of settings, which has struct owner_limits at `offset`. Returns how
// many.
int owner_limit_keys(struct config_key *out, size_t offset);
// Copies the limits whose bit is set.
void owner_limits_put(struct owner_limits *to, const struct owner_limits *from, unsigned bits);
double owner_limit_value(const struct owner_limits *l, enum owner_limit which);
static inline const char *owner_limit_name(enum owner_limit which) {
    return owner_limits_table.keys[which].name;
}

// How fast sessions leave memory.
struct owner_turnover {
    int64_t since_us, n; // n sessions have left since since_us
    double per_second;   // in the interval before; 0: unknown
    struct rate promised;
};

enum long_kind { LONG_INFERENCES, LONG_CONVERSATIONS, N_LONG_KINDS };

struct session;
struct owner {
    char *name;
    uint64_t number; // from 1, fixed while the process runs: engine_turn.share_group
    struct owner_limits limits;
    int64_t used[N_OWNER_LIMITS];    // in use now; of a rate: all since the start
    int64_t refused[N_OWNER_LIMITS]; // requests, since the start
    struct rate requests, tokens;
    struct rate changes; // of session.changed messages to all its watchers
    struct owner_turnover turnover;
    size_t waiting_bytes;            // of answers, on all its connections
    size_t long_bytes[N_LONG_KINDS]; // of its long requests (ws/net/long_body.h)
    struct session *waiting;         // sessions whose turn waits for a place, in order (turns.c)
    UT_hash_handle hh;
};

struct owners { // zeroed: empty, and nothing is limited
    struct owner *by_name;
    uint64_t last;
    struct metric *m_limited[N_OWNER_LIMITS];
};
// m: counts refusals by limit; NULL: nothing is counted.
void owners_init(struct owners *t, struct metrics *m);
void owners_release(struct owners *t); // frees the owners: no session and no connection may be left
// The owner of this name; a new one has no limits. It lives as long as the table. NULL: no memory.
struct owner *owners_get(struct owners *t, const char *name);
// The limits hold at once.
void owner_set_limits(struct owner *o, const struct owner_limits *l, int64_t now_us);

// n may be negative. Limits are checked before, by owner_has_room: this always counts.
static inline void owner_use(struct owner *o, enum owner_limit which, int64_t n) {
    o->used[which] += n;
}
bool owner_has_room(const struct owner *o, enum owner_limit which, int64_t n); // for n more
void owner_met(struct owners *t, struct owner *o,
               enum owner_limit which); // counts that the limit took effect
// For a limited rate (OWNER_REQUESTS, OWNER_TOKENS): how much may be used at once now; *full_ms: the time
// until the bucket is full again.
int64_t owner_rate_left(const struct owner *o, enum owner_limit which, int64_t now_us,
                        int64_t *full_ms);
// Counts a refusal, and puts a sentence with the limit into *err. Returns E_LIMIT.
int owner_refuse(struct owners *t, struct owner *o, enum owner_limit which, struct err *err);
// Takes a request of this cost and returns 0, or returns the milliseconds after which to try again.
int64_t owner_take_requests(struct owner *o, double cost, int64_t now_us);
void owner_charge_requests(struct owner *o, double cost,
                           int64_t now_us); // later cost of a taken one
// Tokens are charged when they have been computed. 0: a turn may start; else the milliseconds after which
// one may.
int64_t owner_tokens_wait_ms(struct owner *o, int64_t now_us);
void owner_charge_tokens(struct owner *o, int64_t n, int64_t now_us);

// Sessions that are not committed yet, or have events that a client has not read, cannot be unloaded.
// Together with idle ones an owner may have a quarter more of them than resident_sessions, and at least
// OWNER_CROWD_MIN; sessions with a turn count among outstanding_jobs.
#define OWNER_CROWD_MIN 64
// 0: one more may be opened or read; else the estimated milliseconds until one may.
int64_t owner_crowd_ms(struct owner *o, int64_t now_us);
void owner_session_left(struct owner *o, int64_t now_us);
