// The engines of a server: opened from its settings, given to the session service, closed. opening.h opens
// those of the start, hosting.h loads and unloads others while the server runs.
#pragma once
#include "sessions/engines/placement.h"
#include "ws/serve_config.h"

struct metrics;
struct progress_part;
struct sessions;
struct volatile_text;

//   PLANNED --> LOADING --> OPEN --> UNLOADING --> CLOSING --> (gone)
//                  '----> FAILED --------------------------------'
enum hosted_state {
    HOSTED_PLANNED,   // it has settings
    HOSTED_LOADING,   // a thread opens its engine
    HOSTED_FAILED,    // opening failed: `why`
    HOSTED_OPEN,      // the session service has it (enum instance_state)
    HOSTED_UNLOADING, // it is removed as soon as it is drained
    HOSTED_CLOSING,   // a thread closes its engine when nothing else uses it
    N_HOSTED_STATES
};

struct hosted {                       // one instance
    char name[INSTANCE_NAME_MAX + 1]; // "": the only one, without a name
    enum hosted_state state;
    struct serve_config config; // its settings: the server's with its own over them
    struct engine *engine;      // NULL: not open
    struct err why;             // FAILED
    struct hosted *prev, *next;
};
struct instances {
    const struct serve_config *config;
    struct hosted *list;
    struct metrics *metrics;
    const struct volatile_text *volatile_text; // NULL: none
    void (*wake)(void *ctx);                   // of every engine
    void *wake_ctx;
    bool shows_progress; // on stderr
};

// What an instance shares with those that open beside it. All zero: it opens alone, and shows nothing.
struct instance_opening {
    int32_t n_beside; // these three as in engine_options
    bool (*wanted)(void *ctx);
    void *wanted_ctx;
    struct progress_part *loading, *measuring; // NULL: not shown
};

void hosted_set(struct hosted *h, enum hosted_state to); // asserts that the diagram has this arrow
const char *hosted_state_name(enum hosted_state s);      // as `parley instances` prints it

// Lists the instances to open: one for each section [instance NAME], else `instances` of them.
int instances_plan(struct instances *v, const struct serve_config *c, struct err *err);
// Adds one, with the settings of this part (NULL: the server's). E_EXISTS, E_INVAL, E_NOMEM.
int instances_plan_more(struct instances *v, const char *name, const struct config_part *p,
                        struct hosted **out, struct err *err);
struct hosted *instances_find(const struct instances *v, const char *name); // or NULL
size_t instances_n(const struct instances *v);
// Opens one engine. An error names the instance. Any thread.
int instances_open_one(const struct instances *v, struct hosted *h,
                       const struct instance_opening *with, struct err *err);
int instances_add(struct instances *v, struct sessions *ss, struct err *err); // all, in order
int instances_add_one(const struct instances *v, struct hosted *h, struct sessions *ss,
                      bool is_tidy, struct err *err);
void instances_forget(struct instances *v, struct hosted *h); // frees it; its engine is closed
void instances_save_at_stop(struct instances *v);
void instances_release(struct instances *v); // closes them; after the session service
