// Quantises keys and values: a head's vector of one position becomes 8-bit numbers and one F32
// scale, with the same bits on every backend.
//
//   int8: scale = max |x| / 127, q = x / scale to the nearest integer, ties to even: -127 .. 127
//   e4m3: scale = max |x| / 448, q = x / scale to the nearest such number, ties to even
//
// K and V each have one scale for a position and kv head. A position is quantised once, when it is
// written, from its own values, so no other token, chunk or batch can change its bits. (One scale for
// several positions would depend on values that are computed later.) e4m3 needs a scale too: keys of
// models with biases exceed its largest number, 448, and values of some layers lie below its
// smallest, 2^-9.
//
// scale * q stands for x. If x holds an infinity or NaN, the scale is NaN and so are the values
// read. A vector whose largest magnitude is below 2^-100 is stored as zero.
#pragma once
#include "base/dtype.h"
#include "kernels/kv_map.h"
#include <stdbool.h>

#define KV_LARGEST_INT8 127.0f

KV_MAP_FN bool kv_is_8bit(enum dtype t) { // stored with scales
    return t == DTYPE_I8 || t == DTYPE_F8_E4M3;
}

struct kv_scale {
    float scale, inverse; // q is x * inverse, rounded
};

// The scale of a vector whose largest magnitude has these bits. Compared as integers, magnitudes
// are in order, with infinity and NaN above all others.
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
