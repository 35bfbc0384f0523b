// The facts about themselves that ranks exchange, so that they can watch the ranks of their own machine.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct identity {
    char host[72];     // with its pid namespace
    uint64_t cpus;     // hash of the processors that the rank may use
    int32_t pid, pad_; // pad_: the struct is sent, so no byte may be undefined
};
// The file of the running program, even if it was replaced meanwhile: ranks must have the same build.
void identity_program(char *path, size_t cap);
void identity_take(struct identity *me); // of this process
