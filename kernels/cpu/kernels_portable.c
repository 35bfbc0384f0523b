// The inner loops in plain C with GCC's vectors of four: for any processor, and the least that
// x86-64 has.
#include "kernels/cpu/kernels.inc"

const struct cpu_kernels cpu_kernels_portable = KERNELS(PANEL_BF16);
