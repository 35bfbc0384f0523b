// Shared by the golden tests of models: reference results in a folder, and how far logits may be off.
#pragma once
#include "tests/golden/runner.h"

static const char *const families[] = {"llama", "mistral",  "qwen2", "qwen3", "gpt2",
                                       "gptj",  "gpt_neox", "bloom", "opt",   "xglm"};
enum { N_FAMILIES = sizeof families / sizeof *families };

// Opens DIR/golden.safetensors; *ids: its `input_ids`, n of them.
static inline struct safetensors *golden_open(const char *dir, size_t n, const int32_t **ids) {
    char path[192];
    struct err err = {0};
    struct safetensors *file;
    snprintf(path, sizeof path, "%s/golden.safetensors", dir);
    if (safetensors_open(&file, path, &err) < 0) fail_msg("%s", err.text);
    const struct tensor *t = safetensors_find(file, "input_ids");
    assert_non_null(t);
    assert_int_equal(t->bytes, n * sizeof(int32_t));
    *ids = t->data;
    return file;
}

// The README's measure: a difference counts in units of the logits' spread.
static inline double spread(const float *x, size_t n) {
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    for (size_t i = 0; i < n; i++) squares += (x[i] - sum / (double)n) * (x[i] - sum / (double)n);
    return sqrt(squares / (double)n);
}

// Fails if logits are off by more than the number format explains. Activations of 16 bits: the worst of
// some 10,000 logits of these tiny models was off by 0.363 (bf16) and 0.029 (f16) on an H200.
static inline void check_off(const char *what, double worst, double unit) {
    double bound = test_is_exact() ? 2e-4 : strcmp(test_compute(), "f16") == 0 ? 0.04 : 0.4;
    if (getenv("PARLEY_TEST_SHOW")) print_message("%s: %.3g of the spread\n", what, worst / unit);
    if (worst > bound * unit) fail_msg("%s: off by %.3g of the spread", what, worst / unit);
}
