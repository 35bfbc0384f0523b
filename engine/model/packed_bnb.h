// Matrices in bitsandbytes' 4 bits, as transformers stores them: the codes of all values in the matrix's order, two a
// byte, the first one in the high half; a scale (absmax) for each block of values, whatever rows it crosses; 16 numbers
// that the codes stand for. With double quantisation scales are bytes, for 256 numbers times a scale for each block of
// scales, plus an offset for all.
//
//   STEM.weight                                  any type: its bytes are the codes; often U8 (values / 2, 1)
//   STEM.weight.quant_state.bitsandbytes__nf4    U8, JSON: shape, dtype, blocksize, nested_*; or ..__fp4
//   STEM.weight.quant_map                        F32 (16)
//   STEM.weight.absmax                           F32 (blocks), or U8 with the next two
//   STEM.weight.nested_absmax, .nested_quant_map F32 (blocks of scales), F32 (256)
//
// A value is rounded to the quant_state's dtype, as bitsandbytes rounds it before it multiplies.
#pragma once
#include "engine/model/packed_tensors.h"

struct bnb_matrix;

// What a part of STEM.weight is called: "nested_absmax" and so on. NULL: the folder has none.
struct bnb_parts {
    const struct tensor *codes, *state, *map, *absmax, *nested_absmax, *nested_map;
};
#define BNB_STATE "quant_state.bitsandbytes__" // followed by nf4 or fp4

// Reads what is small and checks that the parts fit: sets *shown's shape, dtype and bytes. The parts are borrowed.
// E_FORMAT, E_UNSUPPORTED: a sentence that names the matrix, which is shown->name.
int bnb_matrix_open(struct bnb_matrix **out, const struct bnb_parts *parts, struct tensor *shown,
                    struct packed_reader reader, struct err *err);
void bnb_matrix_close(struct bnb_matrix *m); // NULL is allowed
// Bytes [offset, offset + n) of the matrix as shown. Any thread. E_FORMAT: a scale that is infinite or no number.
int bnb_matrix_read(const struct bnb_matrix *m, size_t offset, void *out, size_t n,
                    struct err *err);
