// XXH64 (Collet, "xxHash fast digest algorithm", specification 0.1.1): a 64-bit checksum as fast as
// memory can be read, the same on every machine. It detects damage, not tampering: an attacker can
// compute a new checksum.
#pragma once
#include <stddef.h>
#include <stdint.h>

// data may be NULL if len is 0.
uint64_t xxh64(const void *data, size_t len, uint64_t seed);
