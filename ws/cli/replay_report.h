// What `parley replay` found, for people and as JSON.
#pragma once
#include "sessions/replay.h"
#include <stdbool.h>

// What computes now; the record has its own for each turn.
struct replay_side {
    const char *model, *fingerprint, *build, *instance;
};

struct replay_report {
    bool json;
    const struct engine *engine; // for the text of tokens
    const struct stored_session *stored;
    struct replay_side now;
    struct buf out;               // JSON
    int64_t n[REPLAY_FAILED + 1]; // turns by verdict
    struct replay_turn first;     // the first diverged or failed one
    bool has_first;
    const struct turn_record *last; // whose build and instance were printed last
};

void replay_report_begin(struct replay_report *r);
// From here on another engine computes.
void replay_report_now(struct replay_report *r, const struct engine *e, const char *instance);
void replay_report_turn(struct replay_report *r, const struct stored_turn *t,
                        const struct replay_turn *found);
// Prints what is left. True when nothing diverged or failed.
bool replay_report_end(struct replay_report *r);

// from: the first turn that is changed; TURN_NONE: there is none.
void what_if_report_begin(struct replay_report *r, const char *changes, int64_t from);
void what_if_report_pair(struct replay_report *r, const struct replay_pair *p);
void what_if_report_end(struct replay_report *r);
