// A number for each owner, from 1 on, the same as long as the service runs:
// engine_turn.share_group. Numbers are given out in order, so two owners never have one. Net thread
// only.
#pragma once
#include <stdint.h>

struct owner_number;
struct owner_numbers {            // zeroed: empty
    struct owner_number *by_name; // uthash
    uint64_t last;
};

// 0, the group that shares with nobody, when memory is out.
uint64_t owner_number(struct owner_numbers *n, const char *owner);
void owner_numbers_release(struct owner_numbers *n);
