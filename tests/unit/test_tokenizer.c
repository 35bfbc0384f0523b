// tokenizer: valid and invalid files, added tokens with all their flags, plain spans. Round trips
// and time have files of their own.
#include "engine/text/tokenizer.h"
#include "tests/cmocka.h"
#include "tests/unit/text_model.h"
#include "tests/unit/tokenizer_ids.h"
#include <time.h>

static struct tokenizer *open_model(const struct text_model *m) {
    struct tokenizer *t;
    struct err err = {0};
    if (text_model_open(&t, m, &err) < 0) fail_msg("%s", err.text);
    return t;
}

// --- files ---------------------------------------------------------------------------------------

#define SPLIT(pattern, behavior)                                                                   \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":" pattern           \
    ",\"behavior\":\"" behavior                                                                    \
    "\",\"invert\":false},{\"type\":\"ByteLevel\",\"use_regex\":false,"                            \
    "\"add_prefix_space\":false}]}"

struct file {
    struct text_model m;
    int rc;
    const char *says; // part of the sentence
};
static const struct file files[] = {
    // accepted, because they change no result
    {{.model_keys =
          ",\"byte_fallback\":true,\"unk_token\":\"a\",\"fuse_unk\":true,\"dropout\":null"},
     0,
     ""},
    {{.model_keys = ",\"continuing_subword_prefix\":\"\",\"end_of_word_suffix\":null"}, 0, ""},
    {{.root_keys = ",\"truncation\":{\"max_length\":3},\"padding\":{}"}, 0, ""},
    {{.root_keys =
          ",\"post_processor\":{\"type\":\"Sequence\",\"processors\":[{\"type\":\"ByteLevel\"}]}"},
     0,
     ""},
    {{.more_vocab = ",\"hole\":3000"}, 0, ""},
    {{.merges = "[\"a b\",[\"a\",\"b\"]]", .more_vocab = ",\"ab\":256"}, 0, ""},
    // refused by name
    {{.model_keys = ",\"dropout\":0.1"}, E_UNSUPPORTED, "dropout"},
    {{.model_keys = ",\"magic\":1"}, E_UNSUPPORTED, "magic"},
    {{.root_keys = ",\"magic\":1"}, E_UNSUPPORTED, "magic"},
    {{.root_keys = ",\"post_processor\":{\"type\":\"Magic\"}"}, E_UNSUPPORTED, "Magic"},
    {{.normalizer = "{\"type\":\"Magic\"}"}, E_UNSUPPORTED, "Magic"},
    {{.normalizer = "{\"type\":\"Lowercase\",\"magic\":1}"}, E_UNSUPPORTED, "magic"},
    {{.normalizer =
          "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Magic\"}]}"},
     E_UNSUPPORTED,
     "Magic"},
    {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(a)\\\\1\"},\"content\":\"\"}"},
     E_UNSUPPORTED,
     "\\1"},
    {{.decoder = "{\"type\":\"Magic\"}"}, E_UNSUPPORTED, "Magic"},
    {{.decoder = "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\",\"magic\":1}]}"},
     E_UNSUPPORTED,
     "magic"},
    {{.pre_tokenizer = "{\"type\":\"Magic\"}"}, E_UNSUPPORTED, "Magic"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"prepend_scheme\":\"magic\"}"},
     E_UNSUPPORTED,
     "magic"},
    {{.pre_tokenizer = "{\"type\":\"Punctuation\",\"behavior\":\"Magic\"}"},
     E_UNSUPPORTED,
     "Magic"},
    {{.pre_tokenizer = "{\"type\":\"ByteLevel\",\"magic\":1}"}, E_UNSUPPORTED, "magic"},
    {{.pre_tokenizer = SPLIT("{\"Regex\":\"a\"}", "Magic")}, E_UNSUPPORTED, "Magic"},
    {{.pre_tokenizer = SPLIT("{\"Regex\":\"(a)\\\\1\"}", "Isolated")}, E_UNSUPPORTED, "\\1"},
    {{.added = "{\"id\":256,\"content\":\"x\",\"magic\":true}"}, E_UNSUPPORTED, "magic"},
    // malformed
    {{.normalizer = "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"},
     E_FORMAT,
     "empty"},
    {{.normalizer = "{\"type\":\"Prepend\"}"}, E_FORMAT, "prepend"},
    {{.normalizer = "{\"type\":\"Precompiled\"}"}, E_FORMAT, "precompiled_charsmap"},
    {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"A===\"}"},
     E_FORMAT,
     "base64"},
    {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"abc\"}"},
     E_FORMAT,
     "base64"},
    {{.normalizer = "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////\"}"},
     E_FORMAT,
     "trie"},
    {{.decoder = "{\"type\":\"Strip\",\"content\":\"ab\",\"start\":1,\"stop\":0}"},
     E_FORMAT,
     "one character"},
    {{.decoder = "{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1,\"stop\":0}"},
     E_INVAL,
     "start"},
    {{.pre_tokenizer = "{\"type\":\"Metaspace\",\"replacement\":\"\"}"}, E_FORMAT, "one character"},
    {{.pre_tokenizer = "{\"type\":\"CharDelimiterSplit\",\"delimiter\":\"ab\"}"},
     E_FORMAT,
     "one character"},
    {{.pre_tokenizer = "{\"type\":\"FixedLength\",\"length\":0}"}, E_INVAL, "length"},
    {{.pre_tokenizer = SPLIT("{\"Regex\":\"a\",\"String\":\"a\"}", "Isolated")}, E_FORMAT, "Regex"},
    {{.pre_tokenizer = SPLIT("{}", "Isolated")}, E_FORMAT, "Regex"},
    {{.pre_tokenizer = SPLIT("{\"String\":\"\"}", "Isolated")}, E_FORMAT, "empty"},
    {{.pre_tokenizer = "[]"}, E_FORMAT, "pre_tokenizer"},
    {{.merges = "[\"a\"]"}, E_FORMAT, "two tokens"},
    {{.merges = "[\"a b c\"]"}, E_FORMAT, "two tokens"},
    {{.merges = "[[\"a\"]]"}, E_FORMAT, "pair"},
    {{.merges = "[[\"a\",\"b\",\"c\"]]"}, E_FORMAT, "pair"},
    {{.merges = "[7]"}, E_FORMAT, "pair"},
    {{.merges = "[\"a b\"]"}, E_FORMAT, "vocabulary"},
    {{.merges = "[\"zz b\"]", .more_vocab = ",\"zzb\":256"}, E_FORMAT, "vocabulary"},
    {{.merges = "[\"a \"]"}, E_FORMAT, "vocabulary"},
    {{.more_vocab = ",\"x1\":-1"}, E_FORMAT, "x1"},
    {{.more_vocab = ",\"x1\":1.5"}, E_FORMAT, "x1"},
    {{.more_vocab = ",\"x1\":\"7\""}, E_FORMAT, "x1"},
    {{.more_vocab = ",\"x1\":97"}, E_FORMAT, "97"},
    {{.more_vocab = ",\"x1\":1e300"}, E_FORMAT, "x1"},
    {{.more_vocab = ",\"x1\":2147483646"}, E_LIMIT, "2147483646"},
    {{.more_vocab = ",\"x1\":99999"}, E_LIMIT, "99999"},
    {{.more_vocab = ",\"x1\":256,\"x1\":257"}, E_FORMAT, "x1"},
    {{.added = "{\"id\":97,\"content\":\"<x>\"}"}, E_FORMAT, "97"},
    {{.added = "{\"id\":256,\"content\":\"a\"}"}, E_FORMAT, "two ids"},
    {{.added = "{\"id\":256,\"content\":\"\"}"}, E_FORMAT, "without content"},
    {{.added = "{\"content\":\"x1\"}"}, E_FORMAT, "(added)"},
    {{.added = "7"}, E_FORMAT, "added_tokens"},
    {{.config = "{\"bos_token\":7}"}, E_FORMAT, "bos_token"},
    {{.config = "[]"}, E_FORMAT, "tokenizer_config.json"},
    {{.config = "{"}, E_FORMAT, "tokenizer_config.json"},
};

static void test_files(void **state) {
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct tokenizer *t;
        struct err err = {0};
        int rc = text_model_open(&t, &files[i].m, &err);
        if (rc != files[i].rc || !strstr(err.text, files[i].says))
            fail_msg("%zu: %d '%s', wanted %d '%s'", i, rc, err.text, files[i].rc, files[i].says);
        if (rc < 0)
            assert_null(t);
        else
            assert_string_equal(encoded(t, "az", NULL), "97 122");
        tokenizer_close(t);
    }
}

static void test_broken_json(void **state) {
    static const struct {
        const char *json;
        int rc;
    } broken[] = {
        {"", E_FORMAT},
        {"[]", E_FORMAT},
        {"{}", E_FORMAT}, // names the missing model
        {"{\"model\":7}", E_INVAL},
        {"{\"version\":\"2.0\"}", E_UNSUPPORTED},
        {"{\"version\":7}", E_INVAL},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct tokenizer *t;
        struct err err = {0};
        int rc = text_model_open_json(&t, broken[i].json, strlen(broken[i].json), NULL, &err);
        if (broken[i].rc == E_INVAL ? rc >= 0 : rc != broken[i].rc)
            fail_msg("%zu: %d %s", i, rc, err.text);
    }
    struct tokenizer *t;
    struct err err = {0};
    assert_int_equal(tokenizer_open(&t, "/nonexistent", &err), E_NOTFOUND);
    assert_int_equal(tokenizer_open(&t, "/nonexistent", NULL), E_NOTFOUND);
}

// Cutting a good file short anywhere, or changing a byte of it, never does worse than an error.
static void test_damaged_files(void **state) {
    struct text_model m = {
        .more_vocab = ",\"ab\":256",
        .merges = "[\"a b\"]",
        .added = "{\"id\":257,\"content\":\"<x>\",\"special\":true,\"normalized\":false}",
        .normalizer = "{\"type\":\"NFC\"}",
        .pre_tokenizer = SPLIT("{\"Regex\":\"\\\\p{L}+|[^a-z]\"}", "Isolated")};
    struct buf json;
    text_model_json(&m, &json);
    srand(6);
    for (int i = 0; i < 600; i++) {
        struct tokenizer *t;
        struct err err = {0};
        size_t len = i % 3 ? json.len : (size_t)rand() % json.len, at = (size_t)rand() % json.len;
        char old = json.data[at];
        if (i % 3) json.data[at] = (char)(rand() % 96 + 32);
        if (text_model_open_json(&t, json.data, len, NULL, &err) == 0) {
            struct token_list ids;
            token_list_init(&ids);
            tokenizer_encode(t, "ab <x> ab 1", 11, NULL, &ids, &err);
            token_list_release(&ids);
            tokenizer_close(t);
        } else {
            assert_null(t);
            assert_true(strlen(err.text) > 0);
        }
        json.data[at] = old;
    }
    buf_release(&json);
}

static void test_missing_byte(void **state) {
    struct text_model m = {0};
    struct buf json;
    struct err err = {0};
    struct tokenizer *t;
    text_model_json(&m, &json);
    memcpy(strstr(json.data, "\"z\":122"), "\"~\"", 3); // 'z' is gone; '~' is there twice
    assert_int_equal(text_model_open_json(&t, json.data, json.len, NULL, &err), E_FORMAT);
    buf_release(&json);
    text_model_json(&m, &json);
    char *z = strstr(json.data, "\"z\":122");
    memmove(z + 1, z, strlen(z) + 1); // "z" becomes "zz"
    memcpy(z, "\"zz", 3);
    assert_int_equal(text_model_open_json(&t, json.data, json.len + 1, NULL, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "0x7a"));
    buf_release(&json);
}

static void test_huge_pattern(void **state) {
    size_t len = 10 << 20;
    char *pattern = malloc(len + 200);
    size_t n = (size_t)sprintf(
        pattern, "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"");
    memset(pattern + n, 'a', len);
    strcpy(pattern + n + len, "\"}}");
    struct text_model m = {.pre_tokenizer = pattern};
    struct tokenizer *t;
    struct err err = {0};
    assert_int_equal(text_model_open(&t, &m, &err), E_LIMIT);
    free(pattern);
}

static void test_catastrophic_pattern(void **state) {
    struct text_model m = {.pre_tokenizer =
                               SPLIT("{\"Regex\":\"(?:a+)+$x|(?:a|aa)+!\"}", "Isolated")};
    struct tokenizer *t = open_model(&m);
    struct token_list ids;
    struct err err = {0};
    char text[101];
    memset(text, 'a', 100);
    text[100] = '\0';
    token_list_init(&ids);
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    assert_int_equal(tokenizer_encode(t, text, 100, NULL, &ids, &err), E_LIMIT);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    assert_true(to.tv_sec - from.tv_sec < 10);
    assert_int_equal(ids.len, 0);
    assert_non_null(strstr(err.text, "pattern"));
    token_list_release(&ids);
    tokenizer_close(t);
}

// --- added tokens --------------------------------------------------------------------------------

#define TOKEN(id, content, flags) "{\"id\":" id ",\"content\":\"" content "\"" flags "}"

static void test_added_token_flags(void **state) {
    struct text_model m = {
        .added = TOKEN("256", "<x>", ",\"special\":true") "," TOKEN("257", "<xy>", "") "," TOKEN(
            "258", "[L]",
            ",\"lstrip\":true") "," TOKEN("259", "[R]",
                                          ",\"rstrip\":true") "," TOKEN("260", "word",
                                                                        ",\"single_word\":"
                                                                        "true") "," TOKEN("26"
                                                                                          "1",
                                                                                          "<x",
                                                                                          "")};
    struct tokenizer *t = open_model(&m);
    assert_string_equal(encoded(t, "a<x>b", NULL), "97 256 98");
    assert_string_equal(encoded(t, "<x><xy><xz", NULL), "256 257 261 122"); // the longest wins
    assert_string_equal(encoded(t, "a \t\u3000[L] b", NULL), "97 258 32 98");
    assert_string_equal(encoded(t, "a [R] \n\u00a0b", NULL), "97 32 259 98");
    // A space between two tokens is taken by one of them only
    assert_string_equal(encoded(t, "[R]  [L]", NULL), "259 258");
    assert_string_equal(encoded(t, "word", NULL), "260");
    assert_string_equal(encoded(t, "a word.", NULL), "97 32 260 46");
    assert_string_equal(encoded(t, "aword", NULL), "97 119 111 114 100");
    assert_string_equal(encoded(t, "words", NULL), "119 111 114 100 115");
    assert_string_equal(encoded(t, "\u00e9word", NULL), "195 169 119 111 114 100");
    assert_string_equal(encoded(t, "-word-", NULL), "45 260 45");
    struct encode_options words = {.no_special = true};
    // Special ones are not looked for, others are
    assert_string_equal(encoded(t, "<x>", &words), "261 62");
    assert_true(tokenizer_is_special(t, 256));
    assert_false(tokenizer_is_special(t, 257));
    assert_int_equal(tokenizer_find(t, "<xy>"), 257);
    assert_int_equal(tokenizer_find(t, "nothing"), -1);
    tokenizer_close(t);
}

static void test_normalized_added_tokens(void **state) {
    struct text_model m = {
        .normalizer = "{\"type\":\"NFC\"}",
        .added = TOKEN("256", "é!", ",\"normalized\":true") "," TOKEN(
            "257", "ü!",
            ",\"normalized\":false") "," TOKEN("258", "<c>",
                                               ",\"normalized\":true,\"special\":true")};
    struct tokenizer *t = open_model(&m);
    assert_string_equal(encoded(t, "e\u0301!", NULL), "256"); // found after normalising
    assert_string_equal(encoded(t, "\u00fc!", NULL), "257");
    // Found before it or not at all
    assert_string_equal(encoded(t, "u\u0308!", NULL), "195 188 33");
    // Plain spans follow the text through normalising.
    const char *text = "e\u0301<c>e\u0301<c>";
    struct text_span plain[] = {{6, 12}};
    struct encode_options opt = {.plain = plain, .n_plain = 1};
    assert_string_equal(encoded(t, text, NULL), "195 169 258 195 169 258");
    assert_string_equal(encoded(t, text, &opt), "195 169 258 195 169 60 99 62");
    plain[0] = (struct text_span){0, 6};
    assert_string_equal(encoded(t, text, &opt), "195 169 60 99 62 195 169 258");
    tokenizer_close(t);
}

static void test_plain_spans(void **state) {
    struct text_model m = {.added = TOKEN("256", "<x>", ",\"special\":true") "," TOKEN(
                               "257", "<y>", "") "," TOKEN("258", "    ", "")};
    struct tokenizer *t = open_model(&m);
    struct text_span plain[] = {{3, 6}, {6, 6}, {9, 10}};
    struct encode_options opt = {.plain = plain, .n_plain = 3};
    assert_string_equal(encoded(t, "<x><x><x><x>", &opt), "256 60 120 62 256 60 120 62");
    // A token that begins inside plain text and ends outside is not recognised
    plain[0] = (struct text_span){0, 2};
    opt.n_plain = 1;
    assert_string_equal(encoded(t, "<x><x>", &opt), "60 120 62 256");
    plain[0] = (struct text_span){2, 3};
    assert_string_equal(encoded(t, "<x><x>", &opt), "60 120 62 256");
    // Added tokens that are no markup are found in plain text too
    plain[0] = (struct text_span){0, 10};
    assert_string_equal(encoded(t, "    <y>   ", &opt), "258 60 121 62 32 32 32");
    struct token_list ids;
    struct err err = {0};
    token_list_init(&ids);
    struct text_span bad[] = {{5, 6}, {2, 3}};
    opt = (struct encode_options){.plain = bad, .n_plain = 2};
    assert_int_equal(tokenizer_encode(t, "0123456789", 10, &opt, &ids, &err), E_INVAL);
    bad[0] = (struct text_span){5, 11};
    opt.n_plain = 1;
    assert_int_equal(tokenizer_encode(t, "0123456789", 10, &opt, &ids, &err), E_INVAL);
    tokenizer_close(t);
}

// --- vocabulary ----------------------------------------------------------------------------------

static void test_merges_and_ignore_merges(void **state) {
    struct text_model m = {.more_vocab = ",\"ab\":256,\"abc\":257,\"bc\":258",
                           .merges = "[\"b c\",\"a b\"]"};
    struct tokenizer *t = open_model(&m);
    assert_string_equal(encoded(t, "abc", NULL), "97 258"); // no merge leads to abc
    assert_string_equal(encoded(t, "abab", NULL), "256 256");
    tokenizer_close(t);
    m.model_keys = ",\"ignore_merges\":true";
    t = open_model(&m);
    assert_string_equal(encoded(t, "abc", NULL), "257");
    tokenizer_close(t);
    m.model_keys = NULL;
    m.merges = "[\"a b\",\"b c\",\"a b\"]"; // the later rank counts
    t = open_model(&m);
    assert_string_equal(encoded(t, "abc", NULL), "97 258");
    tokenizer_close(t);
}

static void test_prefix_space(void **state) {
    struct text_model m = {.pre_tokenizer = "{\"type\":\"ByteLevel\"}",
                           .added = TOKEN("256", "<x>", ",\"special\":true")};
    struct tokenizer *t = open_model(&m);
    assert_string_equal(encoded(t, "a b", NULL), "32 97 32 98");
    assert_string_equal(encoded(t, " a<x>b", NULL), "32 97 256 32 98");
    assert_string_equal(encoded(t, "", NULL), "");
    tokenizer_close(t);
}

static void test_decoding(void **state) {
    struct text_model m = {
        .added = TOKEN("256", "<x>", ",\"special\":true") "," TOKEN("260", "你 好", ""),
        .config = "{\"bos_token\":{\"content\":\"<x>\",\"lstrip\":false},\"eos_token\":\"<e>\"}"};
    struct tokenizer *t = open_model(&m);
    struct buf out;
    struct err err = {0};
    size_t len;
    buf_init(&out, 100);
    int32_t ids[] = {'a', 256, 0xe4, 0xbd, 0xa0, 260, 0xe4};
    assert_int_equal(tokenizer_decode(t, ids, 7, false, &out, &err), 0);
    assert_string_equal(buf_z(&out), "a<x>你你 好\xef\xbf\xbd");
    buf_reset(&out);
    assert_int_equal(tokenizer_decode(t, ids, 7, true, &out, &err), 0);
    assert_string_equal(buf_z(&out), "a你你 好\xef\xbf\xbd");
    buf_reset(&out);
    for (int i = 0; i < 3; i++) {
        ids[1] = (int32_t[]){257, -1, 1000000}[i]; // an unused id, and ids outside on both sides
        assert_int_equal(tokenizer_decode(t, ids, 7, false, &out, &err), E_INVAL);
        assert_null(tokenizer_bytes(t, ids[1], &len));
        assert_false(tokenizer_is_special(t, ids[1]));
    }
    assert_int_equal(out.len, 0);
    assert_memory_equal(tokenizer_bytes(t, 0xe4, &len), "\xe4", 1);
    assert_int_equal(len, 1);
    assert_int_equal(tokenizer_n_tokens(t), 261);
    assert_string_equal(tokenizer_bos(t), "<x>");
    assert_string_equal(tokenizer_eos(t), "<e>");
    assert_string_equal(tokenizer_description(t), "byte-level BPE, 258 tokens");
    out.max = 3;
    assert_int_equal(tokenizer_decode(t, (int32_t[]){'a', 'b', 'c', 'd'}, 4, false, &out, &err),
                     E_LIMIT);
    buf_release(&out);
    tokenizer_close(t);
}

static void test_invalid_text(void **state) {
    struct text_model m = {0};
    struct tokenizer *t = open_model(&m);
    struct token_list ids;
    struct err err = {0};
    token_list_init(&ids);
    assert_int_equal(token_list_push(&ids, 7), 0);
    assert_int_equal(tokenizer_encode(t, "a\xff", 2, NULL, &ids, &err), E_INVAL);
    assert_int_equal(tokenizer_encode(t, "\xed\xa0\x80", 3, NULL, &ids, &err), E_INVAL);
    assert_int_equal(ids.len, 1); // nothing was appended by the refused call
    // NUL is a character like others
    assert_int_equal(tokenizer_encode(t, "a\0b", 3, NULL, &ids, &err), 0);
    assert_int_equal(ids.len, 4);
    assert_int_equal(ids.ids[2], 0);
    token_list_release(&ids);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_broken_json),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_missing_byte),
        cmocka_unit_test(test_huge_pattern),
        cmocka_unit_test(test_catastrophic_pattern),
        cmocka_unit_test(test_added_token_flags),
        cmocka_unit_test(test_normalized_added_tokens),
        cmocka_unit_test(test_plain_spans),
        cmocka_unit_test(test_merges_and_ignore_merges),
        cmocka_unit_test(test_prefix_space),
        cmocka_unit_test(test_decoding),
        cmocka_unit_test(test_invalid_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
