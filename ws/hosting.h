// Instances that come and go while the server runs: opened and closed on threads of their own, and
// given to and taken from the session service on the net thread, where all calls are made.
#pragma once
#include "base/json.h"
#include "ws/instances.h"

struct hosting;
struct json_writer;
struct service;

int hosting_open(struct hosting **out, struct instances *v, struct service *s, struct err *err);
// Waits for the threads. Before the loop ends, and before the session service is closed.
void hosting_close(struct hosting *h);

// Each begins what it says and returns at once; an error says why it cannot be. settings: an object of
// values by their name in the ini file, for this instance alone; NULL: those of its section there, or
// the server's.
int hosting_load(struct hosting *h, const char *name, const cJSON *settings, struct err *err);
// last: also where turns of the model have no other place to go.
int hosting_drain(struct hosting *h, const char *name, bool last, struct err *err);
int hosting_unload(struct hosting *h, const char *name, bool last, struct err *err); // drains first

enum hosting_goal { HOSTING_SERVES, HOSTING_DRAINED, HOSTING_GONE };
// 1: it has come about; 0: not yet; negative: it will not, *err says why.
int hosting_reached(const struct hosting *h, const char *name, enum hosting_goal goal,
                    struct err *err);
// The elements of an array that is open.
void hosting_put(const struct hosting *h, struct json_writer *w);
