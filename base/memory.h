// How much memory the process can still get, for sizes that a setting leaves open and for errors
// that say which size would fit.
#pragma once
#include <stdint.h>

// Bytes available without swapping, or what the control group (a container's limit) or RLIMIT_AS
// (ulimit -v) leaves where that is less. 0: unknown.
int64_t memory_left(void);
int64_t memory_resident(void); // bytes of this process in memory. 0: unknown
// For the end of an error about a size that is too large: "; 312 MiB would fit", which leaves room
// for threads and sessions, or how little is left.
struct memory_advice {
    char text[64];
};
// Begins with "; ", to be appended to an error.
struct memory_advice memory_advice(void);
