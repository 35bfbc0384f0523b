// The inputs of a KServe request: JSON, behind a NUL the binary tensors. What is accepted can be read to
// its last element.
#include "tests/fuzz/fuzz.h"
#include "ws/kserve/tensor.h"
#include <string.h>

static void check(const struct tensor *t) {
    size_t n = 1;
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    FUZZ_CHECK(n == t->n);
    volatile double sum = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->type != TENSOR_BYTES)
            sum = sum + tensor_number(t, i);
        else if (t->texts[i].len)
            sum = sum + t->texts[i].bytes[t->texts[i].len - 1];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t json_len = nul ? (size_t)(nul - data) : size;
    const char *binary = nul ? (const char *)nul + 1 : "";
    struct tensors tensors = {0};
    struct err err = {0};
    cJSON *json = json_parse((const char *)data, json_len, &json_limits_message, &err);
    if (!json) return 0;
    int rc = tensors_read(&tensors, json, binary, nul ? size - json_len - 1 : 0, &err);
    fuzz_check_err(rc, &err);
    for (size_t i = 0; rc == 0 && i < tensors.n; i++) check(&tensors.list[i]);
    tensors_release(&tensors);
    cJSON_Delete(json);
    return 0;
}
