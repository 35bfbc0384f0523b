// The version that hello, the Server header and --version show, and the one that records name.
#pragma once
#define PARLEY_VERSION "0.1.0"

#define VERSION_BUILD_MAX 64
// "0.1.0 (build 1f00ba5e1f00ba5e)": what computed a turn, to the program's last byte.
void version_build(char out[VERSION_BUILD_MAX]);
