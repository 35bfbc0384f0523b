// What the build writes into the program (the Makefile's gen/build_info.c). "" where the source
// came without a git checkout and the build did not name it.
#pragma once

extern const char build_commit[]; // 12 hexadecimal digits; "-dirty" follows for a changed checkout
extern const char build_date[];   // of the commit, "2026-11-23"
