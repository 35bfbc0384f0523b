// Writes rows of values as blocks of a GGUF type: what block_types.h decodes.
#pragma once
#include "base/err.h"
#include "engine/gguf/block_types.h"

// The types that files are written in, by their numbers in GGUF.
enum block_id {
    BLOCK_F32 = 0,
    BLOCK_F16 = 1,
    BLOCK_Q4_0 = 2,
    BLOCK_Q8_0 = 8,
    BLOCK_BF16 = 30,
    BLOCK_MXFP4 = 39,
};

// row: (n) finite values, n a multiple of type->values; out: n / type->values blocks. Q4_0: the scale of each block
// that leaves the least squared error. MXFP4: blocks that are MXFP4 already keep their values. E_INVAL: a value is beyond the type's range. E_UNSUPPORTED: another type.
int block_encode_row(const struct block_type *type, const float *row, int64_t n, uint8_t *out);
