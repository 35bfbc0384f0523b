// detokenizer: for any ids, what it gives out piece by piece is whole UTF-8 and adds up to
// tokenizer_decode.
#include "base/utf8.h"
#include "engine/text/detokenizer.h"
#include "tests/unit/text_model.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h> // needs the ones above

static void check(const struct tokenizer *t, const int32_t *ids, size_t n) {
    struct detokenizer d;
    struct buf pieces, whole;
    struct err err;
    buf_init(&pieces, 1 << 20);
    buf_init(&whole, 1 << 20);
    detokenizer_init(&d, t);
    for (size_t i = 0; i < n; i++) {
        size_t before = pieces.len;
        assert_int_equal(detokenizer_feed(&d, ids[i], &pieces), 0);
        assert_true(utf8_valid(buf_z(&pieces) + before, pieces.len - before));
        assert_true(d.n_pending <= 3);
    }
    assert_int_equal(detokenizer_flush(&d, &pieces), 0);
    assert_int_equal(d.n_pending, 0);
    assert_int_equal(tokenizer_decode(t, ids, n, true, &whole, &err), 0);
    assert_int_equal(pieces.len, whole.len);
    assert_memory_equal(buf_z(&pieces), buf_z(&whole), whole.len);
    buf_release(&pieces);
    buf_release(&whole);
}

// Bytes that begin, continue, break and cannot be in characters, weighted so that all meet.
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

static void test_demo_ids(void **state) {
    struct tokenizer *t;
    struct err err;
    assert_int_equal(tokenizer_open(&t, "configs/demo-model", &err), 0);
    srand(3);
    for (int round = 0; round < 2000; round++) {
        int32_t ids[64];
        for (int i = 0; i < 64; i++) ids[i] = rand() % tokenizer_n_tokens(t);
        check(t, ids, 64);
    }
    tokenizer_close(t);
}

static void test_one_character_in_pieces(void **state) {
    struct text_model m = {0};
    struct tokenizer *t;
    struct err err;
    assert_int_equal(text_model_open(&t, &m, &err), 0);
    struct detokenizer d;
    struct buf out;
    buf_init(&out, 100);
    detokenizer_init(&d, t);
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
    tokenizer_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_demo_ids),
        cmocka_unit_test(test_one_character_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
