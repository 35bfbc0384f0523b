// Unguessable ids: 128 bits from the kernel, as 32 lower-case hexadecimal digits.
#pragma once
#include <stdint.h>

#define RANDOM_ID_LEN 32
// Any thread. Both abort the process if the kernel gives no random bytes: ids without them are no secret.
void random_id(char out[RANDOM_ID_LEN + 1]);
uint64_t random_u64(void); // seeds
