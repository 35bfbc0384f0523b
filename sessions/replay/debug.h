// Looking into a session: a turn as it is on record, the session's events, and a turn run again on
// the server's own engine. Part of the service of sessions.h; net thread only.
//
// A turn is read from the database even where memory has it, so clients see the record. Of a running
// turn that is the state of some milliseconds ago.
#pragma once
#include "sessions/replay/rerun.h"
#include "sessions/sessions.h"
#include "sessions/store/record.h"

struct turn_detail { // borrowed during the callback, as all here
    struct turn_view turn;
    const struct turn_record *rec;
    const int32_t *ids;        // (n_ids) of the answer
    const float *logprobs;     // (n_ids)
    const uint32_t *text_ends; // (n_ids) where each token's text ends in turn.text
    size_t n_ids;
    const struct engine_alternative *alternatives; // (n_ids, rec->n_alternatives) or NULL
};

// A listed event, with how its turn restored the cache, and where a fork is from.
struct listed_event {
    struct event_record rec;
    const struct turn_numbers *resumed; // EVENT_DONE; NULL: the cache was kept, or is new
    const char *forked_from;            // EVENT_OPENED of a fork; else NULL
    int64_t forked_turn;                // TURN_NONE: the empty log
};

struct replay_detail {
    const struct replay_turn *found;
    const struct answer *answer;   // computed now, with REPLAY_TOP alternatives each
    const struct turn_record *rec; // as on record
    const char *build, *instance;  // of this server
};
