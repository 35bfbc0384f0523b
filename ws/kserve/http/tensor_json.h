// Tensors in KServe's HTTP form. JSON describes them and holds their elements or, in binary form, the elements
// follow the JSON: the header Inference-Header-Content-Length gives the length of the JSON, and the raw tensors
// follow in the order of the inputs.
#pragma once
#include "base/json.h"
#include "ws/kserve/tensor.h"

// Reads the member "inputs" of a request. text: the JSON that request was parsed from. binary (binary_len):
// the bytes after the JSON, all of which the inputs must use. Names and texts are borrowed from both.
// E_INVAL, E_NOMEM; *err names the input.
int tensors_read(struct tensors *out, const cJSON *request, const char *text, const char *binary,
                 size_t binary_len, struct err *err);
// Appends the output's object to an array. With t->binary, its raw bytes go to *raw.
void tensor_write(struct json_writer *w, const struct tensor_out *t, struct buf *raw);
