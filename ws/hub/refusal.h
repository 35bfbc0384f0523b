// Sentences for answers other than 2xx and 3xx, which say what the user can do.
#pragma once
#include "ws/hub/place.h"

struct refusal {
    const struct hub_place *place;
    const char *repo, *what; // "ORG/NAME"; what was asked for
    long status;
    const char *code, *message; // X-Error-Code and X-Error-Message; "" without
};

// Sets *err and returns its code: E_DENIED, E_NOTFOUND, E_BUSY (429), E_IO.
int refusal_say(const struct refusal *r, struct err *err);
