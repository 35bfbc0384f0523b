// A worker prepares long inputs of turns, new grammars and imports, because rendering, tokenizing, compiling
// and parsing would hold up the net thread. See service.h, base/workers.h.
//
//     START (long), OPEN, UPDATE -> preparing_request() ... worker ... requests_prepared() -> turns_start() again
//     a queued turn whose time has come: TURN_PREPARING ... turns_prepared() -> it starts
//     a replay under a new grammar: preparing_replay() ... replays_prepared() -> it starts
//
// While a request is prepared, later requests for its session wait, as they do behind a request that waits
// for older turns. CANCEL and CLOSE do not wait for the worker: they abort the preparation, and the
// turn is recorded as cancelled; an UPDATE is refused. An OPEN is not aborted.
#pragma once
#include "base/workers.h"
#include "sessions/state/service.h"
#include "sessions/turns/input.h"

struct preparation {
    struct work work;
    struct sessions *ss;              // NULL: no longer wanted
    const struct served_model *model; // held; NULL: of an import
    int64_t key;                      // of the session
    int64_t turn;                     // the queued one; TURN_NONE: the session's waiting request
    uint64_t replay;                  // the replay's sequence; 0: it is for no replay
    struct request *import;           // IMPORT instead; owned
    int64_t now_ms;
    struct input_source source;         // its strings are owned
    struct input_ids made;              // from the source
    const struct grammar_text *grammar; // held; NULL: none
    struct grammar *compiled; // of it; held, so that it is not dropped before the turn starts
    struct stored_session *imported;
    bool ended, aborted; // run or not; the request need not be
    int rc;
    struct err err;
    struct preparation *prev, *next; // in one of the service's lists: outstanding, prepared
};

// Whether a worker must make the ids first: the input is long, and `made` (NULL: none) does not fit.
bool preparing_wanted(const struct session *s, const struct turn_input *in, int64_t parent,
                      const struct input_ids *made);
// Whether a worker must compile the grammar of a turn with these values given. If not, *compiled is its grammar, or NULL
// if it has none or there are no workers; the caller holds it.
bool preparing_compiles(struct session *s, const struct turn_sampling *given,
                        struct grammar **compiled);
// The request, and later ones for its session, wait for a worker. grammar: to find or compile; NULL: none.
// E_BUSY: the workers' queue is full.
int preparing_request(struct session *s, const struct request *r, int64_t parent,
                      const struct grammar_text *grammar, struct err *err);
// Compiles the grammar that an OPEN or UPDATE gives the session, whose turns it would refuse if it is invalid. 0: it is
// valid, or there is none, or no worker. 1: the request waits for a worker, and runs again. E_*: refused.
int preparing_grammar(struct session *s, const struct request *r, struct err *err);
int preparing_turn(struct session *s, struct turn *t, struct err *err); // PREPARING now
int preparing_import(struct sessions *ss, const struct request *r, struct err *err);
// Compiles the grammar of a replay, a sequence of debug_replay.c, of the session with this key.
int preparing_replay(struct sessions *ss, uint64_t replay, int64_t key, const char *owner,
                     const struct served_model *m, const struct grammar_text *grammar,
                     struct err *err);
void preparing_forget(struct preparation *p); // drops its result
void preparing_free(struct preparation *p);   // one that is done
void preparing_close(struct sessions *ss);
