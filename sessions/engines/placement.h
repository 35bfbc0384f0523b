// Which models a server has, which instances run them, and where a session's next turn goes.
//
// An instance is an engine with a name. All instances of one model compute alike (same weights,
// number formats, tokens and chat template), so a turn has the same tokens on any of them. A session lives on
// one instance while that instance has its cache or a turn of it. A cold session's next turn goes to the
// instance that
//   1. has its snapshot, or that of the session it was forked from,
//   2. computed a log of its owner that begins alike (the blocks are shared), unless that one has
//      PLACEMENT_SLACK turns more than the least loaded one,
//   3. has the smallest share of its places taken.
// If the queue of that instance is full, the next best one takes the turn.
//
// Net thread only, except placement_hold: other threads hold a model while they use its engine for
// texts, and no instance of a held model is removed.
#pragma once
#include "engine/engine.h"
#include <pthread.h>
#include <stdatomic.h>

#define INSTANCE_NAME_MAX 32
#define PLACEMENT_SLACK 2
#define PLACEMENT_PREFIXES 1024 // remembered beginnings, a power of two

//                 asked                  nothing is left
//   SERVING ------------------> DRAINING ------------------> DRAINED
//      |  ^                        |                         ^  |
//      |  | opened again           | device failed           |  | unloaded
//      '--+------> LOST <----------'                         |  v
//                    '---------------------------------------'  (removed)
//                      asked to drain, nothing is left
enum instance_state {
    INSTANCE_SERVING,
    INSTANCE_DRAINING, // finishes its turns, takes no new ones, and gives its caches away
    INSTANCE_DRAINED,  // has no turn, and no cache that another instance would take
    INSTANCE_LOST,     // its device failed: takes no turn until it is opened again
    N_INSTANCE_STATES
};
const char *instance_state_name(enum instance_state s); // "serving", "draining", "drained", "lost"

struct served_model;
struct volatile_text;
struct session;

struct instance {
    char name[INSTANCE_NAME_MAX + 1]; // "": the instance without a name
    struct engine *engine;            // borrowed
    const struct engine_info *info;
    struct served_model *model;
    enum instance_state state;
    bool failed;              // a turn was refused because of its device
    bool leaves;              // asked to drain: it serves no more, also if it is opened again
    bool reopens;             // the server opens it again when it is lost
    int64_t lost_us;          // when it became LOST
    int64_t lost_ms;          // the same, since 1970
    int32_t max_sequences;    // turns that run at once
    int64_t n_turns;          // with the engine, queued ones included
    int64_t n_sessions;       // that live here, and replays that run here
    struct session *sessions; // those that live here (routing.c)
    struct instance *prev, *next;
};
// The only way to change an instance's state; asserts that the picture above has this change.
void instance_set(struct instance *i, enum instance_state to);
bool instance_takes_turns(const struct instance *i);
bool instance_leads_to(enum instance_state from, enum instance_state to);

// A model and an engine for its texts. Constant while it is held. When that engine's instance is removed,
// a new served_model of the same name replaces this one in the list; holders of this one keep using its
// engine.
struct served_model {
    // alias: another name for clients; NULL: none. Names of its instances are further ones.
    char *name, *alias;
    // An engine of one of its instances, never NULL. Texts are the same on all of them.
    const struct engine *engine;
    const struct engine_info *info;
    struct sampling_params sampling; // the server's defaults, over the model's suggestions
    // Defaults of new sessions.
    int32_t memory_len, sink_len;
    int64_t session_len;
    int64_t loaded_s;                          // since 1970
    const struct volatile_text *volatile_text; // borrowed from the options; NULL: none
    char *suggestions; // for an empty chat: a JSON array (ws/suggestions.h); NULL: none
    atomic_int holds;  // the placement's and those of placement_hold; the last one frees it
    struct served_model *prev, *next;
};

struct instance_options {
    const char *name;  // at most INSTANCE_NAME_MAX letters, digits, '-', '_', '.'; NULL: ""
    const char *alias; // another name for its model; NULL or "": none. The first instance's is used
    struct engine *engine;
    bool reopens;          // the server opens it again when it is lost
    bool is_tidy;          // snapshots of sessions that are gone were removed (sessions_tidy)
    int32_t max_sequences; // as the engine was opened with; 0: 1
    int32_t memory_len;    // 0: the model's
    int32_t sink_len;
    int64_t session_len; // 0: the engine's maximum
    struct sampling_params sampling;
    // Outlives the placement and every hold of a model. NULL: none
    const struct volatile_text *volatile_text;
    const char *suggestions; // as in served_model; the first instance's are used
};

struct placement {
    pthread_mutex_t lock;        // of the list of models, against other threads' placement_hold
    struct served_model *models; // in the order in which they came; the first one is the default
    uint64_t models_version;     // another one after each change of `models`; never 0
    struct instance *instances;
    struct placed_prefix { // where a log with this beginning was computed last
        uint64_t hash;     // 0: none
        struct instance *at;
    } prefixes[PLACEMENT_PREFIXES];
};

int placement_init(struct placement *p); // E_NOMEM
bool instance_name_valid(
    const char *name); // letters, digits and _-. up to INSTANCE_NAME_MAX, no dot first
// E_INVAL: the name is taken or invalid, the lengths do not suit the model, or the model of that name
// computes otherwise.
int placement_add(struct placement *p, const struct instance_options *o, struct instance **out,
                  struct err *err);
// Removes an instance without turns and sessions. If *model is not NULL, others may still use the engine
// for texts: the caller closes the engine when placement_is_unused(*model), and ends its own hold with
// placement_drop. E_NOMEM: nothing has changed.
int placement_remove(struct placement *p, struct instance *i, const struct served_model **model);
bool placement_is_unused(const struct served_model *m); // only the caller holds it
// Whether another instance of its model serves.
bool placement_has_other(const struct placement *p, const struct instance *i);
void placement_release(struct placement *p);

// The models' names for a sentence: "'a', 'b'", or "none".
#define PLACEMENT_NAMES_MAX 300
const char *placement_names(const struct placement *p, char out[PLACEMENT_NAMES_MAX]);
// The model of this name; name NULL: the default one. E_INVAL: the error lists the models; E_BUSY: no
// model is loaded.
int placement_find_model(const struct placement *p, const char *name, struct served_model **out,
                         struct err *err);
// The same, and holds the model until placement_drop. Any thread. NULL: not found.
const struct served_model *placement_hold(struct placement *p, const char *name);
// The same for a request of a stateless protocol, which may leave out the name if there is one model. name NULL or "":
// left out. NULL: *err says why, E_NOTFOUND for a name that no model has, or E_INVAL.
const struct served_model *placement_hold_asked(struct placement *p, const char *name,
                                                struct err *err);
// Another hold for one who holds the model, or has it from the placement on the net thread. Any thread. NULL is fine.
const struct served_model *placement_keep(const struct served_model *m);
void placement_drop(const struct served_model *m); // NULL is fine
// Refuses a request that has waited for a model of this name, which was unloaded meanwhile: E_BUSY, because another
// server may have the model, or this one again.
int placement_unloaded(const struct placement *p, const char *name, struct err *err);
// A held model as it is served now: itself, or the one that replaced it since. E_BUSY: placement_unloaded.
int placement_find_held(const struct placement *p, const struct served_model *held,
                        struct served_model **out, struct err *err);
// The model that a session was made with, also if it has another name now; NULL: it is not served.
struct served_model *placement_model_of(const struct placement *p, const char *name,
                                        const char *fingerprint);
struct instance *placement_find(const struct placement *p, const char *name); // or NULL
int32_t placement_max_vocab(const struct placement *p);
// The least loaded instance that takes turns; NULL: none does.
struct instance *placement_least_loaded(const struct placement *p);
bool placement_has_snapshot(const struct placement *p, const char *lasting);

// A turn that needs an instance.
struct placement_turn {
    const struct served_model *model;
    const char *lasting;        // name of the session's snapshot
    const char *const *origins; // (n_origins) snapshots of the sessions it was forked from
    size_t n_origins;
    uint64_t owner;
    const int32_t *ids; // (n_ids) its log
    size_t n_ids;
};
// The instances that can take it, best first; returns their number, at most cap: of more, the best ones.
// *prefix: for placement_note.
size_t placement_choose(const struct placement *p, const struct placement_turn *t,
                        struct instance **out, size_t cap, uint64_t *prefix);
void placement_note(struct placement *p, uint64_t prefix, struct instance *i); // it went there
