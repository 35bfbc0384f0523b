// Who holds a struct told. Apart from told.c: a request is copied and freed without an engine.
#include "sessions/matching/told_internal.h"
#include <stdlib.h>

struct told *told_hold(struct told *t) {
    if (t) atomic_fetch_add(&t->holds, 1);
    return t;
}

void told_free(struct told *t) {
    if (!t || atomic_fetch_sub(&t->holds, 1) != 1) return;
    cJSON_Delete(t->tools);
    cJSON_Delete(t->messages);
    free(t);
}
