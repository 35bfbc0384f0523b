// The inputs of a KServe request: JSON, then after a NUL the binary tensors. Accepted tensors can be read to
// their last element.
#include "tests/fuzz/tensor_check.h"
#include "ws/kserve/http/number_data.h"
#include "ws/kserve/http/tensor_json.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const uint8_t *nul = size ? memchr(data, 0, size) : NULL;
    size_t json_len = nul ? (size_t)(nul - data) : size;
    const char *binary = nul ? (const char *)nul + 1 : "";
    struct tensors tensors = {0};
    struct err err = {0};
    char *hollow = number_data_hollow((const char *)data, json_len, 8);
    if (!hollow) abort();
    cJSON *json = json_parse(hollow, json_len, &json_limits_message, &err);
    free(hollow);
    if (!json) return 0;
    int rc = tensors_read(&tensors, json, (const char *)data, binary, nul ? size - json_len - 1 : 0,
                          &err);
    fuzz_check_err(rc, &err);
    for (size_t i = 0; rc == 0 && i < tensors.n; i++) check_tensor(&tensors.list[i]);
    tensors_release(&tensors);
    cJSON_Delete(json);
    return 0;
}
