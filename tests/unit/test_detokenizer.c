// detokenizer: for any ids, its pieces are whole UTF-8 and concatenate to the result of
// tokenizer_decode.
#include "base/utf8.h"
#include "engine/text/detokenizer.h"
#include "tests/cmocka.h"
#include "tests/unit/text_model.h"
#include <string.h>

// The characters that two texts begin with alike.
static size_t alike(const struct buf *a, const struct buf *b) {
    size_t n = 0;
    while (n < a->len && n < b->len && a->data[n] == b->data[n]) n++;
    return utf8_complete_len(buf_z(a), n);
}

// Behind the first k ids: what the whole text has more than theirs.
static void check_after(const struct tokenizer *t, const int32_t *ids, size_t n, size_t k,
                        const struct buf *whole) {
    struct detokenizer d = {0};
    struct buf before, after;
    struct err err;
    buf_init(&before, 1 << 20);
    buf_init(&after, 1 << 20);
    assert_int_equal(tokenizer_decode(t, ids, k, true, &before, &err), 0);
    assert_int_equal(detokenizer_start_after(&d, t, ids, k), 0);
    for (size_t i = k; i < n; i++) {
        size_t so_far = after.len;
        assert_int_equal(detokenizer_feed(&d, ids[i], &after), 0);
        assert_true(utf8_valid(buf_z(&after) + so_far, after.len - so_far));
    }
    assert_int_equal(detokenizer_flush(&d, &after), 0);
    assert_string_equal(buf_z(&after), buf_z(whole) + alike(&before, whole));
    buf_release(&before);
    buf_release(&after);
    detokenizer_release(&d);
}

static void check(const struct tokenizer *t, const int32_t *ids, size_t n) {
    struct detokenizer d = {0};
    struct buf pieces, whole;
    struct err err;
    buf_init(&pieces, 1 << 20);
    buf_init(&whole, 1 << 20);
    detokenizer_start(&d, t);
    for (size_t i = 0; i < n; i++) {
        size_t before = pieces.len;
        assert_int_equal(detokenizer_feed(&d, ids[i], &pieces), 0);
        assert_true(utf8_valid(buf_z(&pieces) + before, pieces.len - before));
    }
    assert_int_equal(detokenizer_flush(&d, &pieces), 0);
    assert_int_equal(tokenizer_decode(t, ids, n, true, &whole, &err), 0);
    assert_int_equal(pieces.len, whole.len);
    assert_memory_equal(buf_z(&pieces), buf_z(&whole), whole.len);
    if (!memchr(buf_z(&whole), 0, whole.len))
        check_after(t, ids, n, n ? (size_t)rand() % (n < 9 ? n : 9) : 0, &whole);
    buf_release(&pieces);
    buf_release(&whole);
    detokenizer_release(&d);
}

// Bytes that begin, continue, break and cannot occur in characters, weighted so that every pair
// occurs.
static int32_t random_byte(void) {
    static const unsigned char edges[] = {0xc2, 0xe0, 0xe4, 0xed, 0xf0, 0xf4, 0xf5,
                                          0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xff};
    int kind = rand() % 4;
    if (kind == 0) return 'a' + rand() % 26;
    if (kind == 1) return edges[(size_t)rand() % sizeof edges];
    return kind == 2 ? 0x80 + rand() % 64 : rand() % 256;
}

static void test_random_bytes(void **state) {
    struct text_model m = {.added = "{\"id\":256,\"content\":\"<x>\",\"special\":true},"
                                    "{\"id\":257,\"content\":\"你好\",\"special\":false}",
                           .more_vocab = ",\"äº\":258,\"åå\":259,\"aäºåð\":260,\"łłłłłłłłłł\":261"};
    struct tokenizer *t;
    struct err err = {0};
    if (text_model_open(&t, &m, &err) < 0) fail_msg("%s", err.text);
    srand(2);
    for (int round = 0; round < 30000; round++) {
        int32_t ids[24];
        size_t n = (size_t)rand() % 24;
        for (size_t i = 0; i < n; i++) ids[i] = rand() % 5 ? random_byte() : 256 + rand() % 6;
        check(t, ids, n);
    }
    tokenizer_close(t);
}

static void test_random_ids(void **state) {
    static const char *const models[] = {
        "configs/demo-model", "tests/fixtures/text/llama2_spm", "tests/fixtures/text/xglm_spm",
        "tests/fixtures/text/xglm_json", "tests/fixtures/text/pieces_bpe"};
    srand(3);
    for (size_t k = 0; k < sizeof models / sizeof *models; k++) {
        struct tokenizer *t;
        struct err err;
        assert_int_equal(tokenizer_open(&t, models[k], &err), 0);
        for (int round = 0; round < 2000; round++) {
            int32_t ids[64], range = round % 2
                                         ? tokenizer_n_tokens(t)
                                         : 270; // the first ones are bytes, where there are any
            for (int i = 0; i < 64; i++) ids[i] = rand() % range;
            check(t, ids, 64);
        }
        tokenizer_close(t);
    }
}

// A Llama's tokenizer.json: a run of byte tokens is text only if all of it is UTF-8, so none of it
// may be released before the run ends.
static void test_byte_runs(void **state) {
    static const char json[] =
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
        "\"String\":\"\u2581\"},"
        "\"content\":\" "
        "\"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \","
        "\"start\":1,\"stop\":0}]},\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{"
        "\"\u2581a\":0,\"<0xE4>\":1,"
        "\"<0xBD>\":2,\"<0xA0>\":3,\"\u2581\":4,\"b\":5}}}";
    struct tokenizer *t;
    struct err err = {0};
    if (tokenizer_open_json(&t, json, strlen(json), &err) < 0) fail_msg("%s", err.text);
    struct detokenizer d = {0};
    struct buf out;
    buf_init(&out, 1000);
    detokenizer_start(&d, t);
    static const struct {
        int32_t id;
        const char *so_far;
    } steps[] = {{4, ""},
                 {0, " a"}, // the text's first space was dropped with the token before
                 {1, " a"},
                 {2, " a"},
                 {3, " a"},
                 {5, " a\u4f60b"},
                 {1, " a\u4f60b"},
                 {3, " a\u4f60b"},
                 {0, " a\u4f60b\ufffd\ufffd a"}};
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
        assert_int_equal(detokenizer_feed(&d, steps[i].id, &out), 0);
        assert_string_equal(buf_z(&out), steps[i].so_far);
    }
    assert_int_equal(detokenizer_feed(&d, 1, &out), 0);
    assert_int_equal(detokenizer_flush(&d, &out), 0);
    assert_string_equal(buf_z(&out), " a\u4f60b\ufffd\ufffd a\ufffd");
    detokenizer_start(&d, t); // a new turn knows nothing of the last one
    buf_reset(&out);
    assert_int_equal(detokenizer_feed(&d, 0, &out), 0);
    assert_string_equal(buf_z(&out), "a");
    detokenizer_release(&d);
    srand(4);
    for (int round = 0; round < 20000; round++) {
        int32_t ids[12];
        for (int i = 0; i < 12; i++) ids[i] = rand() % 6;
        check(t, ids, 12);
    }
    size_t len;
    assert_memory_equal(tokenizer_bytes(t, 1, &len), "\xe4", 1);
    assert_memory_equal(tokenizer_bytes(t, 0, &len), " a", 2);
    assert_int_equal(len, 2);
    buf_release(&out);
    tokenizer_close(t);
}

// A continued text keeps the space in front of its first word, with every tokenizer.
static void test_in_the_midst_of_a_text(void **state) {
    static const char text[] =
        "The capital of France is Paris,\n\nthat of Japan \u6771\u4eac \U0001f642 now.";
    static const char *const folders[] = {"llama2_spm", "xglm_spm", "xglm_json", "gpt2", "bloom"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        char path[100];
        struct tokenizer *t;
        struct err err = {0};
        struct token_list ids;
        struct buf whole;
        snprintf(path, sizeof path, "tests/fixtures/text/%s", folders[f]);
        if (tokenizer_open(&t, path, &err) < 0) fail_msg("%s", err.text);
        token_list_init(&ids);
        buf_init(&whole, 1000);
        assert_int_equal(tokenizer_encode(t, text, strlen(text), NULL, &ids, &err), 0);
        assert_int_equal(tokenizer_decode(t, ids.ids, ids.len, true, &whole, &err), 0);
        for (size_t k = 0; k <= ids.len; k++) check_after(t, ids.ids, ids.len, k, &whole);
        buf_release(&whole);
        token_list_release(&ids);
        tokenizer_close(t);
    }
}

// A text that comes in two parts stays the same text, whether the cut is in a word, before or
// behind a space: nothing is put between them.
static void test_text_in_two_parts(void **state) {
    static const char text[] = "The capital of  France";
    static const char *const folders[] = {"llama2_spm", "xglm_spm", "xglm_json", "gpt2", "bloom"};
    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++) {
        char path[100];
        struct tokenizer *t;
        struct err err = {0};
        snprintf(path, sizeof path, "tests/fixtures/text/%s", folders[f]);
        if (tokenizer_open(&t, path, &err) < 0) fail_msg("%s", err.text);
        bool joins_spaces = strncmp(folders[f], "xglm", 4) == 0;
        for (size_t cut = 1; cut < strlen(text); cut++) {
            struct token_list ids;
            struct buf whole;
            struct encode_options behind = {.continues = true, .in_midst = true};
            // This tokenizer drops spaces at the end of a text: they are lost.
            if (joins_spaces && text[cut - 1] == ' ') continue;
            token_list_init(&ids);
            buf_init(&whole, 1000);
            assert_int_equal(tokenizer_encode(t, text, cut, NULL, &ids, &err), 0);
            assert_int_equal(
                tokenizer_encode(t, text + cut, strlen(text + cut), &behind, &ids, &err), 0);
            assert_int_equal(tokenizer_decode(t, ids.ids, ids.len, true, &whole, &err), 0);
            assert_string_equal(buf_z(&whole), joins_spaces ? "The capital of France" : text);
            buf_release(&whole);
            token_list_release(&ids);
        }
        tokenizer_close(t);
    }
}

static void test_one_character_in_pieces(void **state) {
    struct text_model m = {0};
    struct tokenizer *t;
    struct err err;
    assert_int_equal(text_model_open(&t, &m, &err), 0);
    struct detokenizer d = {0};
    struct buf out;
    buf_init(&out, 100);
    detokenizer_start(&d, t);
    static const unsigned char thumb[] = {0xf0, 0x9f, 0x91, 0x8d};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(detokenizer_feed(&d, thumb[i], &out), 0);
        assert_int_equal(out.len, 0);
    }
    assert_int_equal(detokenizer_feed(&d, thumb[3], &out), 0);
    assert_string_equal(buf_z(&out), "👍");
    assert_int_equal(detokenizer_feed(&d, thumb[0], &out), 0);
    assert_int_equal(detokenizer_flush(&d, &out), 0);
    assert_string_equal(buf_z(&out), "👍\xef\xbf\xbd");
    assert_int_equal(detokenizer_feed(&d, 256, &out), E_INVAL);
    assert_int_equal(detokenizer_feed(&d, -1, &out), E_INVAL);
    buf_release(&out);
    detokenizer_release(&d);
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_bytes),      cmocka_unit_test(test_random_ids),
        cmocka_unit_test(test_byte_runs),         cmocka_unit_test(test_in_the_midst_of_a_text),
        cmocka_unit_test(test_text_in_two_parts), cmocka_unit_test(test_one_character_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
