// The grids of ggml's IQ types: of all combinations of a few values, those that a stored index can choose.
#pragma once
#include <stdint.h>

// Eight values of 2 bits each.
extern const uint16_t iq2_xxs_grid[256], iq2_xs_grid[512], iq2_s_grid[1024], iq1_grid[2048];
// Four values of 3 bits each.
extern const uint16_t iq3_xxs_grid[256], iq3_s_grid[512];
