// tokenizer.json, then after a NUL a text.
#include "tests/fuzz/tokenizer_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *t = NULL;
    struct err err = {0};
    const uint8_t *rest;
    size_t n_rest, n = fuzz_split(data, size, &rest, &n_rest);
    fuzz_file("tokenizer.json", data, n);
    int rc = tokenizer_open(&t, fuzz_dir(), &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(strstr(err.text, "tokenizer.json"));
        return 0;
    }
    tokenizer_check(t, (const char *)rest, n_rest);
    tokenizer_close(t);
    return 0;
}
