// Position tables that follow from formulas and are not stored in checkpoints.
#pragma once
#include <stdint.h>

// ALiBi's slopes, one for each of the model's query heads (Press et al. 2022). With n the largest power
// of two that is at most n_heads: 2^(-8 k / n) for k = 1 .. n. As in BLOOM, further heads take the odd
// k of the same formula with 2n.
void alibi_slopes(float *out, int32_t n_heads);
// XGLM's table (n_rows, width). Row p: sin(p f_i) for i = 0 .. half - 1, then cos(p f_i), with
// half = width / 2 >= 2 and f_i = 10000^(-i / (half - 1)). The last column of an odd width is zero.
void sinusoidal_table(float *out, int64_t n_rows, int32_t width);
