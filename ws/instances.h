// The engines of a server: opened from its settings, given to the session service, closed.
#pragma once
#include "sessions/placement.h"
#include "ws/serve_config.h"

struct metrics;
struct sessions;

struct hosted {                       // one instance
    char name[INSTANCE_NAME_MAX + 1]; // "": the only one, without a name
    struct serve_config config;       // its settings: the server's with its own over them
    struct engine *engine;            // NULL: not open
};
struct instances {
    const struct serve_config *config;
    struct hosted *list; // (n)
    size_t n;
    struct metrics *metrics;
    void (*wake)(void *ctx); // of every engine
    void *wake_ctx;
    bool shows_progress; // on stderr
};

// What is to be opened: one for each section [instance NAME], else `instances` of them.
int instances_plan(struct instances *v, const struct serve_config *c, struct err *err);
// Opens all, one after another. An error names the instance.
int instances_open(struct instances *v, struct err *err);
int instances_add(struct instances *v, struct sessions *ss, struct err *err); // all, in order
void instances_save_at_stop(struct instances *v);
void instances_release(struct instances *v); // closes them; after the session service
