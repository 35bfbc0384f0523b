// A worker prepares long inputs of turns, new grammars and imports, because rendering, tokenizing, compiling
// and parsing would hold up the net thread. See service.h, base/workers.h.
//
//     START (long) -> preparing_request() ... worker ... requests_prepared() -> turns_start() again
//     a queued turn whose time has come: TURN_PREPARING ... turns_prepared() -> it starts
//     a replay under a new grammar: preparing_replay() ... replays_prepared() -> it starts
//
// While a request is prepared, later requests for its session wait, as they do behind a request that waits
// for older turns. CANCEL and CLOSE do not wait for the worker: they abort the preparation, and the
// turn is recorded as cancelled.
#pragma once
#include "base/workers.h"
#include "sessions/input.h"

struct preparation {
    struct work work;
    struct sessions *ss;              // NULL: no longer wanted
    const struct served_model *model; // held; NULL: of an import
    int64_t key;                      // of the session
    int64_t turn;                     // the queued one; TURN_NONE: the session's waiting request
    uint64_t replay;                  // the replay's sequence; 0: it is for no replay
    struct request *import;           // IMPORT instead; owned
    int64_t now_ms;
    struct input_source source;         // its text and system are owned
    struct input_ids made;              // from the source
    const struct grammar_text *grammar; // held; NULL: none
    struct grammar *compiled; // of it; held, so that it is not dropped before the turn starts
    struct stored_session *imported;
    bool ended, aborted; // run or not; the request need not be
    int rc;
    struct err err;
    struct preparation *prev, *next; // in one of the service's lists: outstanding, prepared
};
