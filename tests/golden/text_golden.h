// Reads results of other programs' tokenizers and compares them with ours.
#pragma once
#include "base/json.h"
#include "engine/text/detokenizer.h"
#include "engine/text/tokenizer.h"
#include "tests/cmocka.h"
#include <stdlib.h>
#include <string.h>

// The JSON reader refuses NUL, which one case holds: it travels as U+F8FF, which none holds.
static inline cJSON *read_results(const char *path) {
    struct err err = {0};
    struct buf file;
    if (buf_read_file(&file, path, 1 << 24, &err) < 0) fail_msg("%s", err.text);
    for (char *p = file.data; (p = strstr(p, "\\u0000"));) memcpy(p, "\\uf8ff", 6);
    cJSON *root = json_parse(file.data, file.len, &json_limits_file, &err);
    if (!root) fail_msg("%s: %s", path, err.text);
    buf_release(&file);
    return root;
}

static inline void read_text(const cJSON *c, const char *key, struct buf *out) {
    const char *s = cJSON_GetObjectItemCaseSensitive(c, key)->valuestring, *marker;
    buf_init(out, 1 << 20);
    for (; (marker = strstr(s, "\xef\xa3\xbf")); s = marker + 3) {
        buf_add(out, s, (size_t)(marker - s));
        buf_addc(out, '\0');
    }
    buf_addz(out, s);
}

static inline bool same(const struct buf *a, const struct buf *b) {
    return a->len == b->len && memcmp(buf_z(a), buf_z(b), a->len) == 0;
}

static inline void check_ids(const char *where, const char *text, const cJSON *want,
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

// Decoding as a whole, and token by token; want may be NULL.
static inline void check_decoding(const struct tokenizer *t, const char *where,
                                  const struct token_list *ids, const struct buf *want) {
    struct err err = {0};
    struct buf whole, pieces;
    buf_init(&whole, 1 << 20);
    buf_init(&pieces, 1 << 20);
    assert_int_equal(tokenizer_decode(t, ids->ids, ids->len, false, &whole, &err), 0);
    if (want && !same(&whole, want))
        fail_msg("%s: decoded '%s', not '%s'", where, buf_z(&whole), buf_z(want));
    buf_reset(&whole);
    assert_int_equal(tokenizer_decode(t, ids->ids, ids->len, true, &whole, &err), 0);
    struct detokenizer d = {0};
    detokenizer_start(&d, t);
    for (size_t i = 0; i < ids->len; i++)
        assert_int_equal(detokenizer_feed(&d, ids->ids[i], &pieces), 0);
    assert_int_equal(detokenizer_flush(&d, &pieces), 0);
    assert_true(same(&pieces, &whole));
    detokenizer_release(&d);
    buf_release(&whole);
    buf_release(&pieces);
}

// All cases of a list: text, ids and decoded, each of which but ids may be missing.
static inline int check_cases(const struct tokenizer *t, const char *where, const cJSON *cases) {
    struct err err = {0};
    const cJSON *item, *id;
    int n = 0;
    cJSON_ArrayForEach(item, cases) {
        const cJSON *want = cJSON_GetObjectItemCaseSensitive(item, "ids");
        struct buf text = {0}, decoded = {0};
        struct token_list ids;
        token_list_init(&ids);
        if (cJSON_HasObjectItem(item, "text")) {
            read_text(item, "text", &text);
            if (tokenizer_encode(t, buf_z(&text), text.len, NULL, &ids, &err) < 0)
                fail_msg("%s: %s", where, err.text);
            check_ids(where, buf_z(&text), want, &ids);
        } else {
            cJSON_ArrayForEach(id, want) token_list_push(&ids, id->valueint);
        }
        bool has_decoded = cJSON_HasObjectItem(item, "decoded");
        if (has_decoded) read_text(item, "decoded", &decoded);
        check_decoding(t, where, &ids, has_decoded ? &decoded : NULL);
        buf_release(&text);
        buf_release(&decoded);
        token_list_release(&ids);
        n++;
    }
    return n;
}
