// The states of a session in memory. See life.h.
#include "sessions/state/life.h"
#include <assert.h>

#define TO(state) (1u << LIFE_##state)

static const struct {
    const char *name;
    unsigned next;
} lives[N_LIVES] = {
    [LIFE_LOADING] = {"loading", TO(LIVE) | TO(UNLOADED)},
    [LIFE_UNLOADED] = {"unloaded", TO(LOADING)},
    [LIFE_OPENING] = {"opening", TO(LIVE) | TO(GONE)},
    [LIFE_LIVE] = {"live", TO(UNLOADED) | TO(LEAVING) | TO(CLOSING) | TO(DROPPING)},
    [LIFE_LEAVING] = {"leaving", TO(LIVE) | TO(UNLOADED)},
    [LIFE_CLOSING] = {"closing", TO(LIVE) | TO(DROPPING)},
    [LIFE_DROPPING] = {"dropping", TO(DELETING)},
    [LIFE_DELETING] = {"deleting", TO(LIVE) | TO(GONE)},
    [LIFE_GONE] = {"gone", 0},
};

const char *life_name(enum session_life life) {
    return lives[life].name;
}

bool life_leads_to(enum session_life from, enum session_life to) {
    return lives[from].next >> to & 1;
}

void life_set(enum session_life *life, enum session_life to) {
    assert(life_leads_to(*life, to));
    *life = to;
}
