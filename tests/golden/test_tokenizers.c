// Real and small vocabularies against Hugging Face tokenizers' own results (tests/fixtures/text).
// Run from the repository's root.
#include "base/json.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h> // needs the ones above

struct golden {
    const char *dir, *results;
    const char *description;
    int n_cases;
};

static const struct golden goldens[] = {
    {"tests/fixtures/text/gpt2", "tests/fixtures/text/gpt2.golden.json",
     "byte-level BPE, 50,257 tokens", 203},
    {"tests/fixtures/text/gpt_neox", "tests/fixtures/text/gpt_neox.golden.json",
     "byte-level BPE, 50,277 tokens", 203},
    {"tests/fixtures/text/bloom", "tests/fixtures/text/bloom.golden.json",
     "byte-level BPE, 2,000 tokens", 203},
    {"tests/fixtures/text/llama3", "tests/fixtures/text/llama3.golden.json",
     "byte-level BPE, 2,000 tokens", 203},
    {"configs/demo-model", "tests/fixtures/text/demo.golden.json", "byte-level BPE, 4,096 tokens",
     203},
};

// The JSON reader refuses NUL, which one case holds: it travels as U+F8FF, which none holds.
static cJSON *read_results(const char *path) {
    struct err err = {0};
    struct buf file;
    if (buf_read_file(&file, path, 1 << 24, &err) < 0) fail_msg("%s", err.text);
    for (char *p = file.data; (p = strstr(p, "\\u0000"));) memcpy(p, "\\uf8ff", 6);
    cJSON *root = json_parse(file.data, file.len, &json_limits_file, &err);
    if (!root) fail_msg("%s: %s", path, err.text);
    buf_release(&file);
    return root;
}

static void read_text(const cJSON *c, const char *key, struct buf *out) {
    const char *s = cJSON_GetObjectItemCaseSensitive(c, key)->valuestring, *marker;
    buf_init(out, 1 << 20);
    for (; (marker = strstr(s, "\xef\xa3\xbf")); s = marker + 3) {
        buf_add(out, s, (size_t)(marker - s));
        buf_addc(out, '\0');
    }
    buf_addz(out, s);
}

static bool same(const struct buf *a, const struct buf *b) {
    return a->len == b->len && memcmp(buf_z(a), buf_z(b), a->len) == 0;
}

static void check_ids(const char *where, const char *text, const cJSON *want,
                      const struct token_list *got) {
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, want) {
        if (i >= got->len || got->ids[i] != item->valueint)
            fail_msg("%s: '%s': id %zu is %d, not %d", where, text, i,
                     i < got->len ? got->ids[i] : -1, item->valueint);
        i++;
    }
    if (i != got->len) fail_msg("%s: '%s': %zu ids, not %zu", where, text, got->len, i);
}

// Decoding as a whole, and token by token.
static void check_decoding(const struct tokenizer *t, const char *where,
                           const struct token_list *ids, const struct buf *want) {
    struct err err = {0};
    struct buf whole, pieces;
    buf_init(&whole, 1 << 20);
    buf_init(&pieces, 1 << 20);
    assert_int_equal(tokenizer_decode(t, ids->ids, ids->len, false, &whole, &err), 0);
    if (!same(&whole, want))
        fail_msg("%s: decoded '%s', not '%s'", where, buf_z(&whole), buf_z(want));
    buf_reset(&whole);
    assert_int_equal(tokenizer_decode(t, ids->ids, ids->len, true, &whole, &err), 0);
    struct detokenizer d;
    detokenizer_init(&d, t);
    for (size_t i = 0; i < ids->len; i++)
        assert_int_equal(detokenizer_feed(&d, ids->ids[i], &pieces), 0);
    assert_int_equal(detokenizer_flush(&d, &pieces), 0);
    assert_true(same(&pieces, &whole));
    buf_release(&whole);
    buf_release(&pieces);
}

static void test_golden(void **state) {
    const struct golden *g = *state;
    struct err err = {0};
    struct tokenizer *t;
    if (tokenizer_open(&t, g->dir, &err) < 0) fail_msg("%s", err.text);
    assert_string_equal(tokenizer_description(t), g->description);
    cJSON *root = read_results(g->results);
    const cJSON *item;
    int n_cases = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, "cases")) {
        struct buf text, decoded;
        struct token_list ids;
        read_text(item, "text", &text);
        read_text(item, "decoded", &decoded);
        token_list_init(&ids);
        if (tokenizer_encode(t, buf_z(&text), text.len, NULL, &ids, &err) < 0)
            fail_msg("%s: %s", g->dir, err.text);
        check_ids(g->dir, buf_z(&text), cJSON_GetObjectItemCaseSensitive(item, "ids"), &ids);
        check_decoding(t, g->dir, &ids, &decoded);
        buf_release(&text);
        buf_release(&decoded);
        token_list_release(&ids);
        n_cases++;
    }
    assert_int_equal(n_cases, g->n_cases);
    cJSON_Delete(root);
    tokenizer_close(t);
}

int main(void) {
    struct CMUnitTest tests[sizeof goldens / sizeof *goldens];
    for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++)
        tests[i] =
            (struct CMUnitTest){goldens[i].dir, test_golden, NULL, NULL, (void *)&goldens[i]};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
