// What probes and operators ask: is it alive, does it take work, what does it count, how is it set
// up. Each writes its body and returns the HTTP status. Net thread only.
#pragma once
#include "ws/net/server.h"

int health_live(struct server *s,
                struct buf *out); // 503 when the engine's loop stands still while it has work
int health_ready(struct server *s, struct buf *out); // 503 with the reason: model, store, draining
int health_metrics(struct server *s, struct buf *out); // Prometheus text
int health_config(struct server *s,
                  struct buf *out);     // every setting, secrets only by their being set
void health_register(struct server *s); // the wire's and the engine's gauges; once, at the start
