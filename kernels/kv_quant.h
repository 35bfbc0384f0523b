// Keys and values of 8 bits: how a head's vector of one position becomes 8-bit numbers and one F32
// scale, the same on every backend.
//
//   int8: scale = max |x| / 127, q = x / scale to the nearest integer, ties to even: -127 .. 127
//   e4m3: scale = max |x| / 448, q = x / scale to the nearest such number, ties to even
//
// One scale for each position and kv head, of K and of V apart: a position is quantised once, when
// it is written, from nothing but itself, so no other token, chunk or batch can change its bits. A
// scale for more than that (a block, a head) would have to be known before the later positions
// are. e4m3 has a scale too, though it has exponents of its own: keys of models with biases pass
// its 448, and values of some layers lie below its 2^-9; scaled, every vector has the same 15
// binades to itself.
//
// Stands for x: scale * q. Where x holds an infinity or NaN the scale is NaN, and so is what is
// read. A vector whose largest is below 2^-100 is zero.
#pragma once
#include "base/dtype.h"
#include "kernels/kv_map.h"
#include <stdbool.h>

#define KV_LARGEST_INT8 127.0f

KV_MAP_FN bool kv_is_8bit(enum dtype t) {
    return t == DTYPE_I8 || t == DTYPE_F8_E4M3;
}

struct kv_scale {
    float scale, inverse; // q is x * inverse, rounded
};

// Of a vector whose largest magnitude has these bits: as integers, magnitudes are ordered with
// infinity and NaN on top.
KV_MAP_FN struct kv_scale kv_scale_of(enum dtype t, uint32_t largest_bits) {
    float most = t == DTYPE_I8 ? KV_LARGEST_INT8 : E4M3_LARGEST, largest;
    struct kv_scale s = {0.0f, 0.0f};
    uint32_t none = 0x7fc00000u;
    memcpy(&largest, &largest_bits, 4);
    if (largest_bits >= 0x7f800000u)
        memcpy(&s.scale, &none, 4);
    else if (largest >= 0x1p-100f) {
        s.scale = largest / most;
        s.inverse = most / largest;
    }
    return s;
}
