// XXH64 (Collet, "xxHash fast digest algorithm", specification 0.1.1): a checksum of 64 bits at the
// rate at which memory is read, the same on every machine. It notices damage, not malice: whoever
// can write the bytes can write their sum.
#pragma once
#include <stddef.h>
#include <stdint.h>

uint64_t xxh64(const void *data, size_t len, uint64_t seed);
