// Settling: saves touched sessions, delivers, starts queued turns, and frees memory, once, when the
// outermost call returns. Net thread only.
#pragma once
#include "sessions/state/service.h"

// Around each call into the service; they nest. The outermost service_leave settles.
void service_enter(struct sessions *ss);
void service_leave(struct sessions *ss);
void service_settle(
    struct sessions *ss);             // settles touched sessions; unloads those beyond the limits
void service_used(struct session *s); // makes it the most recently used
void service_destroy(struct session *s); // frees it; it must not be touched
