// SentencePiece's tokenizer.model, alone and beside a tokenizer_config.json that changes its rules.
// The model's bytes serve as text too.
#include "tests/fuzz/tokenizer_check.h"

static void open_and_check(const uint8_t *data, size_t size) {
    struct tokenizer *t = NULL;
    struct err err = {0};
    int rc = tokenizer_open(&t, fuzz_dir(), &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(strstr(err.text, "tokenizer.model"));
        return;
    }
    tokenizer_check(t, (const char *)data, size);
    tokenizer_close(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char config[] =
        "{\"legacy\":false,\"bos_token\":\"<s>\",\"additional_special_tokens\":[\"<x>\"]}";
    fuzz_file("tokenizer.model", data, size);
    fuzz_file("tokenizer_config.json", (const uint8_t *)config, sizeof config - 1);
    open_and_check(data, size);
    fuzz_remove("tokenizer_config.json");
    open_and_check(data, size);
    return 0;
}
