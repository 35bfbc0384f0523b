// Which build of the program runs: the linker's build id, a hash of what it put together. Equal
// programs have equal ones; a version number says less.
#pragma once

#define BUILD_ID_DIGITS 16

// The first 16 hexadecimal digits of it, NUL-terminated; "" where the program was linked without
// one.
void build_id(char out[BUILD_ID_DIGITS + 1]);
