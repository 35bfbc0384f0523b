// Headers of .safetensors files. Accepted tensors can be read from their first byte to their last.
#include "engine/model/safetensors.h"
#include "tests/fuzz/fuzz.h"

static void check_tensor(const struct safetensors *f, const struct tensor *t) {
    struct err err = {0};
    char byte;
    size_t n = 1;
    FUZZ_CHECK(safetensors_find(f, t->name) == t);
    FUZZ_CHECK(t->n_dims >= 0 && t->n_dims <= TENSOR_MAX_DIMS);
    for (int i = 0; i < t->n_dims; i++) FUZZ_CHECK(t->shape[i] >= 0);
    for (int i = 0; i < t->n_dims; i++) n *= (size_t)t->shape[i];
    FUZZ_CHECK(t->bytes == n * dtype_size(t->dtype));
    if (t->bytes == 0) return;
    FUZZ_CHECK(safetensors_read(f, t, 0, &byte, 1, &err) == 0);
    FUZZ_CHECK(safetensors_read(f, t, t->bytes - 1, &byte, 1, &err) == 0);
    FUZZ_CHECK(byte == ((const char *)t->data)[t->bytes - 1]);
    FUZZ_CHECK(safetensors_read(f, t, t->bytes, &byte, 1, &err) < 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct safetensors *f = NULL;
    struct err err = {0};
    int rc = safetensors_open(&f, fuzz_file("t.safetensors", data, size), &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(strstr(err.text, "t.safetensors"));
        return 0;
    }
    for (size_t i = 0; i < safetensors_count(f); i++) check_tensor(f, safetensors_at(f, i));
    safetensors_close(f);
    return 0;
}
