// act(x) in F32, for the op and for kernels that end with it. `act` is the same for a whole launch:
// the switch costs one uniform branch.
#pragma once
#include "kernels/cuda/device.cuh"

__device__ __forceinline__ float activated(enum activation act, float x) {
    switch (act) {
    case ACT_SILU:
        return x / (1.0f + expf(-x));
    case ACT_GELU:
        return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    case ACT_GELU_TANH:
        // 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2/pi) (x + 0.044715 x^3)
        return x / (1.0f + expf(x * (x * x * 0.044715f + 1.0f) * -1.59576912160573071f));
    case ACT_RELU:
        return x < 0.0f ? 0.0f : x; // a NaN stays one
    case ACT_QUICK_GELU:
        return x / (1.0f + expf(x * -1.702f));
    case ACT_RELU2:
        return x < 0.0f ? 0.0f : x * x;
    case ACT_RELU6:
        return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
    case ACT_LEAKY_RELU:
        return x < 0.0f ? 0.01f * x : x;
    case ACT_SIGMOID:
        return 1.0f / (1.0f + expf(-x));
    case ACT_TANH:
        return tanhf(x);
    case ACT_MISH: { // x tanh(ln(1 + e^x)) = x n / (n + 2) with n = e^x (e^x + 2); from 20 on it is
                     // x
        float e = expf(fminf(x, 20.0f)), n = e * (e + 2.0f);
        return x > 20.0f ? x : x * (n / (n + 2.0f));
    }
    default:
        return x;
    }
}
