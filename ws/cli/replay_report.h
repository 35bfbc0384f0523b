// Prints the result of `parley replay`, as text or JSON.
#pragma once
#include "sessions/replay/replay.h"
#include "ws/cli/cli.h"

// The current model and engine; the record has its own for each turn.
struct replay_side {
    const char *model, *fingerprint, *build, *instance;
};

struct replay_report {
    bool json;
    const struct engine *engine; // for the text of tokens
    const struct stored_session *stored;
    struct replay_side now;
    struct cli_json out;
    int64_t n[REPLAY_FAILED + 1]; // turns by verdict
    struct replay_turn first;     // the first diverged or failed one
    bool has_first;
    const struct turn_record *last; // its build and instance were printed last
};

// The caller fills in json, engine, stored and now first.
void replay_report_begin(struct replay_report *r);
// Another engine runs the next turns. e and instance are borrowed.
void replay_report_now(struct replay_report *r, const struct engine *e, const char *instance);
void replay_report_turn(struct replay_report *r, const struct stored_turn *t,
                        const struct replay_turn *found);
// Prints the summary. *equal: nothing diverged or failed.
int replay_report_end(struct replay_report *r, bool *equal, struct err *err);

// from: the first changed turn; TURN_NONE: none.
void what_if_report_begin(struct replay_report *r, const char *changes, int64_t from);
void what_if_report_pair(struct replay_report *r, const struct replay_pair *p);
int what_if_report_end(struct replay_report *r, struct err *err);
