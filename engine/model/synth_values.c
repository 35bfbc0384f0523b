// Converts Philox draws to values by table look-ups. See synth_values.h.
#include "engine/model/synth_values.h"
#include "base/philox.h"
#include <math.h>

#define GROUP 32 // Philox calls at a time: long enough for the compiler to vectorise the rounds

// FNV-1a, 64 bits: spreads names over keys.
static uint64_t hash_name(const char *name) {
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

void synth_values_init(struct synth_values *v, uint64_t seed, const char *tensor_name,
                       enum dtype dtype, float mean, float deviation) {
    // Sum of four uniform bytes: mean 510, variance 4 (256^2 - 1) / 12.
    const double unit = 1 / sqrt(4 * 65535.0 / 12);
    const uint64_t spread = 0x9e3779b97f4a7c15u; // odd: distinct seeds stay distinct
    v->key = hash_name(tensor_name) ^ (seed + 1) * spread;
    v->dtype = dtype;
    for (int sum = 0; sum < 1024; sum++) {
        float x = (float)(mean + deviation * (sum - 510) * unit);
        if (dtype == DTYPE_F32) v->table.f32[sum] = x;
        if (dtype == DTYPE_BF16) v->table.half[sum] = bf16_from_f32(x);
        if (dtype == DTYPE_F16) v->table.half[sum] = f16_from_f32(x);
    }
}

static inline uint32_t byte_sum(uint32_t x) {
    x = (x & 0x00ff00ff) + ((x >> 8) & 0x00ff00ff);
    return (x & 0xffff) + (x >> 16);
}

// Table indices of 4 * GROUP values, draws first, first + 1 ...
static void draw(uint64_t key, uint64_t first, uint32_t out[4 * GROUP]) {
    uint32_t words[4][GROUP];
    for (int i = 0; i < GROUP; i++) {
        uint64_t at = first + (uint64_t)i;
        uint32_t counter[4] = {(uint32_t)at, (uint32_t)(at >> 32), 0, 0}, w[4];
        philox4x32(key, counter, w);
        for (int k = 0; k < 4; k++) words[k][i] = byte_sum(w[k]);
    }
    for (int i = 0; i < GROUP; i++)
        for (int k = 0; k < 4; k++) out[4 * i + k] = words[k][i];
}

void synth_values_fill(const struct synth_values *v, void *out, uint64_t first, size_t n) {
    uint32_t index[4 * GROUP];
    for (size_t done = 0; done < n; done += 4 * GROUP) {
        size_t take = n - done < 4 * GROUP ? n - done : 4 * GROUP;
        draw(v->key, (first + done) / 4, index);
        if (v->dtype == DTYPE_F32) {
            float *to = (float *)out + done;
            for (size_t i = 0; i < take; i++) to[i] = v->table.f32[index[i]];
        } else {
            uint16_t *to = (uint16_t *)out + done;
            for (size_t i = 0; i < take; i++) to[i] = v->table.half[index[i]];
        }
    }
}
