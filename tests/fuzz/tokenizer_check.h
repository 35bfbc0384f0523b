// Checks every tokenizer that a reader accepts: it encodes any text into ids of its own, and
// decodes them to valid UTF-8.
#pragma once
#include "base/utf8.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/fuzz.h"

static inline void tokenizer_check_text(const struct tokenizer *t, const char *text, size_t len,
                                        const struct encode_options *opt) {
    struct token_list ids;
    struct buf back;
    struct err err = {0};
    token_list_init(&ids);
    buf_init(&back, SIZE_MAX);
    int rc = tokenizer_encode(t, text, len, opt, &ids, &err);
    fuzz_check_err(rc, &err);
    for (size_t i = 0; i < ids.len; i++)
        FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_n_tokens(t));
    rc = tokenizer_decode(t, ids.ids, ids.len, false, &back, &err);
    FUZZ_CHECK(rc == 0 || err.code == E_LIMIT);
    FUZZ_CHECK(utf8_valid(buf_z(&back), back.len));
    buf_release(&back);
    token_list_release(&ids);
}

// text: of the fuzzer, as good as it is.
static inline void tokenizer_check(const struct tokenizer *t, const char *text, size_t len) {
    static const char sample[] = " Hello, wo\xcc\x88rld! it's  12345\n\n\t\xe4\xbd\xa0\xe5\xa5\xbd "
                                 "\xf0\x9f\x91\x8d<|end|> \xef\xac\x81 ab<x>";
    struct text_span middle = {1, 5};
    struct encode_options plain = {.plain = &middle, .n_plain = 1}, none = {.no_special = true};
    tokenizer_check_text(t, sample, sizeof sample - 1, NULL);
    tokenizer_check_text(t, sample, sizeof sample - 1, &plain);
    if (utf8_valid(text, len)) tokenizer_check_text(t, text, len, &none);
    for (int32_t id = -1; id <= tokenizer_n_tokens(t) && id < 1000; id++) {
        size_t n;
        tokenizer_bytes(t, id, &n);
        tokenizer_is_special(t, id);
    }
}
