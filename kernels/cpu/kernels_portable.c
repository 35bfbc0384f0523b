// The inner loops in plain C with GCC's vectors of four, for any processor. On x86-64 they need only the
// baseline instructions.
#include "kernels/cpu/kernels.inc"

const struct cpu_kernels cpu_kernels_portable = KERNELS(PANEL_BF16);
