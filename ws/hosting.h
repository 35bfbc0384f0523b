// Loading and unloading instances while the server runs. Their engines are opened and closed on threads of
// their own. All calls are made on the net thread, which also gives the instances to the session service
// and removes them.
#pragma once
#include "base/json.h"
#include "ws/instances.h"

struct hosting;
struct json_writer;
struct service;

// v and s are borrowed until hosting_close. E_NOMEM.
int hosting_open(struct hosting **out, struct instances *v, struct service *s, struct err *err);
// Waits for the threads. Before the loop ends, and before the session service is closed.
void hosting_close(struct hosting *h);

// These begin the work and return at once, or return an error. settings: an object of values by their
// names in the ini file, for this instance alone; NULL: those of its section there, or the server's.
int hosting_load(struct hosting *h, const char *name, const cJSON *settings, struct err *err);
// last: drains even the only instance of a model.
int hosting_drain(struct hosting *h, const char *name, bool last, struct err *err);
int hosting_unload(struct hosting *h, const char *name, bool last, struct err *err); // drains first

enum hosting_goal { HOSTING_SERVES, HOSTING_DRAINED, HOSTING_GONE };
// 1: the goal is reached; 0: not yet; negative: it will not be, *err says why.
int hosting_reached(const struct hosting *h, const char *name, enum hosting_goal goal,
                    struct err *err);
// Writes an element for each instance into an open array.
void hosting_put(const struct hosting *h, struct json_writer *w);
