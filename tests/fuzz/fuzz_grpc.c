// A ModelInferRequest of gRPC. The message's length bounds the memory; accepted tensors can be read to their
// last element.
#include "tests/fuzz/tensor_check.h"
#include "ws/kserve/grpc/inference.pb-c.h"
#include "ws/kserve/grpc/message.h"
#include "ws/kserve/grpc/tensor_message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Inference__ModelInferRequest *m =
        message_unpack(&inference__model_infer_request__descriptor, data, size);
    struct tensors tensors = {0};
    struct err err = {0};
    if (!m) return 0;
    int rc = tensors_of_message(&tensors, m, &err);
    fuzz_check_err(rc, &err);
    for (size_t i = 0; rc == 0 && i < tensors.n; i++) check_tensor(&tensors.list[i]);
    tensors_release(&tensors);
    message_free(m);
    return 0;
}
