// vocab.json, merges.txt and tokenizer_config.json, separated by NULs.
#include "tests/fuzz/tokenizer_check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct tokenizer *t = NULL;
    struct err err = {0};
    const uint8_t *merges, *config;
    size_t n_merges, n_config, n = fuzz_split(data, size, &merges, &n_merges);
    n_merges = fuzz_split(merges, n_merges, &config, &n_config);
    fuzz_file("vocab.json", data, n);
    fuzz_file("merges.txt", merges, n_merges);
    fuzz_file("tokenizer_config.json", config, n_config);
    if (n_config == 0) fuzz_remove("tokenizer_config.json");
    int rc = tokenizer_open(&t, fuzz_dir(), &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(strstr(err.text, fuzz_dir()));
        return 0;
    }
    tokenizer_check(t, (const char *)merges, n_merges);
    tokenizer_close(t);
    return 0;
}
