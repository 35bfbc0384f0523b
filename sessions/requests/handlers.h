// The short requests of one session. Net thread only.
#pragma once
#include "sessions/state/service.h"

// ATTACH, DETACH, GET, UPDATE, CANCEL and TYPING (request.h).
int handle_attach(struct session *s, const struct request *r);
int handle_detach(struct session *s, const struct request *r);
int handle_get(struct session *s, const struct request *r);
int handle_update(struct session *s, const struct request *r);
int handle_cancel(struct session *s, const struct request *r);
void handle_typing(struct sessions *ss, const struct request *r);
