// The inner loops for AVX2 with FMA and F16C (Haswell and Zen on).
#if defined(__x86_64__)
#include "kernels/cpu/kernels.inc"

const struct cpu_kernels cpu_kernels_avx2 = KERNELS(PANEL_BF16);
#endif
