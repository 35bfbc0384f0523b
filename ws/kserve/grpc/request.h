// Requests of ModelInfer and ModelStreamInfer, from their messages. Any thread.
#pragma once
#include "ws/kserve/infer_request.h"

struct service;

// Reads a ModelInferRequest. NULL: no memory. A refused request has a code. Outputs are sent in raw
// form, unless the parameter binary_data_output is false.
struct infer_request *infer_message_read(const struct service *s, enum infer_form form,
                                         const void *bytes, size_t len);
