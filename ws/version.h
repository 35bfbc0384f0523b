// The version in hello, the Server header, --version and records.
#pragma once
#define PARLEY_VERSION "0.1.0"

#define VERSION_BUILD_MAX 64
// "0.1.0 (build 1f00ba5e1f00ba5e)": identifies the program that computed a turn, byte for byte.
void version_build(char out[VERSION_BUILD_MAX]);
