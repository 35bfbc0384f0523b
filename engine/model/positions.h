// Position tables that are computed by formulas and not stored in checkpoints.
#pragma once
#include <stdint.h>

// ALiBi's slopes, one for each of the model's query heads (Press et al. 2022): 2^(-8 k / n) for n
// heads, a power of two; beyond that power the odd entries of the table for 2n, as in BLOOM.
void alibi_slopes(float *out, int32_t n_heads);
// (n_rows, width), as XGLM has them: row p is sin(p f_i) for all i, then cos(p f_i), with
// f_i = 10000^(-i / (half - 1)), half = width / 2 >= 2; a last odd column is zero.
void sinusoidal_table(float *out, int64_t n_rows, int32_t width);
