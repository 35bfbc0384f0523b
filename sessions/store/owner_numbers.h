// A number for each owner, from 1, fixed while the service runs: engine_turn.share_group. Net
// thread only.
#pragma once
#include <stdint.h>

struct owner_number;
struct owner_numbers {            // zeroed: empty
    struct owner_number *by_name; // uthash
    uint64_t last;
};

// 0, the group that shares with no other, when memory is out.
uint64_t owner_number(struct owner_numbers *n, const char *owner);
void owner_numbers_release(struct owner_numbers *n);
