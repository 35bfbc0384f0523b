// What ranks tell each other of themselves, so that they can watch those of their machine.
#pragma once
#include <stddef.h>
#include <stdint.h>

struct identity {
    char host[72];     // with its pid namespace
    uint64_t cpus;     // hash of the processors that it may use
    int32_t pid, pad_; // no byte is undefined: it is sent
};
// The file of the program that runs, also where it was replaced meanwhile: ranks are of its build.
void identity_program(char *path, size_t cap);
void identity_take(struct identity *me); // this process's
