// Identifies the running build by the linker's build id, a hash of the program's contents. Equal
// programs have equal ids, which a version number does not guarantee.
#pragma once

#define BUILD_ID_DIGITS 16

// The first 16 hexadecimal digits, NUL-terminated; "" if the program was linked without a build id.
void build_id(char out[BUILD_ID_DIGITS + 1]);
