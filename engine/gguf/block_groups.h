// Blocks of GGUF files as codes, scales and zeros (kernels/groups.h): the same numbers as block_type's decode gives.
#pragma once
#include "engine/gguf/block_types.h"
#include "kernels/groups.h"

// false: the type has values of their own (F32, F16, BF16).
bool block_groups_format(const struct block_type *type, struct group_format *out);
// Puts n consecutive blocks of a row into the row's arrays, from their first element on. E_FORMAT: a scale that is
// infinite or no number.
int block_groups_read(const struct block_type *type, const uint8_t *blocks, int64_t n,
                      struct group_row *row);
