// The model's final norm on the host, for the few hidden states that clients ask for (context.h). The
// forward pass has its own on the device, often fused with the head.
#pragma once
#include "engine/model/model.h"
#include "kernels/backend.h"

struct final_norm {
    enum norm_kind kind;
    float eps;
    int32_t width;
    bool none;            // the model has no final norm: hidden states stay as they are
    float *weight, *bias; // (width), copies in host memory; NULL: none
};

// Copies the weights on the rank that has the last layer; on other ranks *n is unusable.
int final_norm_init(struct final_norm *n, const struct model *m, struct backend *be,
                    struct err *err);
void final_norm_release(struct final_norm *n); // a zeroed one is allowed
// Whether this rank has what final_norm_apply needs. Any thread.
bool final_norm_usable(const struct final_norm *n);
void final_norm_apply(const struct final_norm *n, float *x /* (width) */);
