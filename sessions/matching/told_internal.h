// What told.c and told_holds.c share.
#pragma once
#include "sessions/matching/told.h"
#include <stdatomic.h>

struct told {
    atomic_int holds;
    struct hash128 chain, hash;
    size_t len;
    bool thinks;
    cJSON *tools, *messages;
    char follows[TOLD_DIGITS + 1]; // "": none
};
