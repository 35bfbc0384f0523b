// Tensors in KServe's HTTP form: described in JSON, their elements there too or, in binary form, behind
// it: the JSON takes as many bytes as the header Inference-Header-Content-Length says, and the raw
// tensors follow in the order of the inputs.
#pragma once
#include "base/json.h"
#include "ws/kserve/tensor.h"

// Reads the member "inputs" of a request. text: what request was parsed from; binary: (binary_len)
// what follows the JSON, which must be used up. Names and texts are borrowed from both. E_INVAL,
// E_NOMEM; *err names the input.
int tensors_read(struct tensors *out, const cJSON *request, const char *text, const char *binary,
                 size_t binary_len, struct err *err);
// Appends the output's object to an array. With t->binary, its raw bytes go to *raw.
void tensor_write(struct json_writer *w, const struct tensor_out *t, struct buf *raw);
