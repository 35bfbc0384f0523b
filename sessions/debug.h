// Looking into a session: a turn as it is on record, the session's events, and a turn run again on
// the server's own engine. Part of the service of sessions.h; net thread only.
//
// A turn is read from the database, whatever memory has of it, so what is shown is what is kept. Of
// one that runs that may be the state of some milliseconds ago.
#pragma once
#include "sessions/rerun.h"
#include "sessions/sessions.h"
#include "sessions/store/record.h"

struct turn_detail { // borrowed during the callback, as all here
    struct turn_view turn;
    const struct turn_record *rec;
    const int32_t *ids;    // (n_ids) of the answer
    const float *logprobs; // (n_ids)
    size_t n_ids;
    const struct engine_alternative *alternatives; // (n_ids, rec->n_alternatives) or NULL
};

// An event as it is listed: with what became of the cache that its turn found gone, and where a
// fork is from.
struct listed_event {
    struct event_record rec;
    const struct turn_numbers *resumed; // EVENT_DONE: NULL where the cache was there, or new
    const char *forked_from;            // EVENT_OPENED: NULL: of none
    int64_t forked_turn;                // TURN_NONE: of its empty log
};

struct replay_detail {
    const struct replay_turn *found;
    const struct answer *answer;   // computed now, with REPLAY_TOP alternatives each
    const struct turn_record *rec; // as on record
    const char *build, *instance;  // of this server
};

// Each is answered once. sessions_turn_get: ANSWER_TURN (detail). sessions_events: ANSWER_EVENTS
// (events, more): the last `last` (0: 100) of those that have a number below `before` (-1: the
// newest), deltas left out.
void sessions_turn_get(struct sessions *ss, const struct sessions_request *r, const char *id,
                       int64_t turn);
void sessions_events(struct sessions *ss, const struct sessions_request *r, const char *id,
                     int64_t before, int64_t last);
// Runs a turn that has ended again: from an empty cache, as a turn of a sequence of its own, behind
// the engine's scheduler like any other. Nothing is recorded. ANSWER_REPLAYING when the engine has
// taken it; then ANSWER_REPLAYED (replay) or an error under the same request id, unless the client
// leaves: that ends it. One at a time for each client.
void sessions_replay(struct sessions *ss, const struct sessions_request *r, const char *id,
                     int64_t turn);
// Ends this client's replay of a turn of the session: that is answered by the error "cancelled",
// this by ANSWER_CANCELLING, also where none runs.
void sessions_cancel_replay(struct sessions *ss, const struct sessions_request *r, const char *id);
