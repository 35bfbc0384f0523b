// Reads the inputs of a ModelInferRequest, with typed or raw contents. Any thread.
#pragma once
#include "ws/kserve/tensor.h"

struct Inference__ModelInferRequest;

// Names and texts are borrowed from the message. E_INVAL, E_NOMEM; *err names the input.
int tensors_of_message(struct tensors *all, const struct Inference__ModelInferRequest *m,
                       struct err *err);
