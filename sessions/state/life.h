// The states of a session in memory, and which of them lead to which. One table (life.c) has all
// transitions; README.md shows it.
#pragma once
#include <stdbool.h>

enum session_life {
    LIFE_LOADING,  // the store reads it: only the id is known, requests wait
    LIFE_UNLOADED, // idle with clients: only its name and their cursors are here; a request loads it
    LIFE_OPENING,  // new: requests wait until its first commit
    LIFE_LIVE,     // answers requests
    LIFE_LEAVING,  // leaves memory when the engine has released its cache; a request keeps it
    LIFE_CLOSING,  // becomes closed when its turns have ended
    LIFE_DROPPING, // becomes deleted when its turns have ended
    LIFE_DELETING, // the store deletes it: requests wait
    LIFE_GONE,     // deleted, or its opening was refused: its clients take the last events
};
#define N_LIVES (LIFE_GONE + 1)

const char *life_name(enum session_life life);                    // "loading" ...
bool life_leads_to(enum session_life from, enum session_life to); // by the table
// Changes *life by a transition of the table. Another one is a bug of ours.
void life_set(enum session_life *life, enum session_life to);
