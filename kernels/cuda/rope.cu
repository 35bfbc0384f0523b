// The step's rotary angles, once for all layers (Su et al. 2021). kv_write.cu rotates.
#include "kernels/cuda/device.cuh"
#include "kernels/cuda/pdl.cuh"

// The product is rounded before the cosine, as on the CPU and in Hugging Face's code.
__global__ void rope_angles_kernel(float *cos_sin, const int32_t *positions,
                                   const int32_t *short_rope, const float *inv_freq,
                                   const float *short_inv_freq, int32_t half, float scale) {
    pdl_trigger();
    float position = (float)positions[blockIdx.x];
    if (short_inv_freq && short_rope[blockIdx.x]) inv_freq = short_inv_freq;
    float *out = cos_sin + (int64_t)blockIdx.x * 2 * half;
    pdl_wait();
    for (int32_t i = threadIdx.x; i < half; i += blockDim.x) {
        float angle = __fmul_rn(position, inv_freq[i]), s, c;
        sincosf(angle, &s, &c);
        out[i] = c * scale;
        out[half + i] = s * scale;
    }
}

int cuda_rope_angles(float *cos_sin, const struct cuda_batch *b, int32_t n, const float *inv_freq,
                     const float *short_inv_freq, int32_t rot_dim, float scale,
                     cudaStream_t stream) {
    if (n == 0) return 0;
    pdl_launch(rope_angles_kernel, dim3((unsigned)n), dim3(64), 0, stream, cos_sin, b->positions,
               b->short_rope, inv_freq, short_inv_freq, rot_dim / 2, scale);
    return cuda_launched("rope_angles");
}
