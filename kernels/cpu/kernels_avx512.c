// The inner loops for AVX-512 F, BW, VL and DQ (Skylake-SP and Zen 4 on).
#if defined(__x86_64__)
#include "kernels/cpu/kernels.inc"

const struct cpu_kernels cpu_kernels_avx512 = KERNELS(PANEL_BF12);
#endif
