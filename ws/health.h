// The routes for probes and operators: whether the server lives, whether it takes work, its metrics and its
// settings (http.h). user is the struct service.
#pragma once
#include "ws/net/http.h"
#include <stdbool.h>

struct service;
// No engine with work stands still.
bool health_is_live(const struct service *s);
// A model has lost the devices of all its instances: only a restart of the server brings it back.
bool health_is_lost(const struct service *s);
bool health_is_ready(const struct service *s);

void health_live(void *user, struct http *h);  // 503 when the engine stands still while it has work
void health_ready(void *user, struct http *h); // 503 with the reason: model, store, draining
void health_metrics(void *user, struct http *h); // Prometheus text
void health_history(void *user, struct http *h); // of the figures that the page plots
void health_config(void *user, struct http *h);  // every setting; of secrets, whether they are set
