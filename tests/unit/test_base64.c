// Base64: the vectors of RFC 4648, every byte, and non-canonical input.
#include "base/base64.h"
#include "base/err.h"
#include "tests/cmocka.h"
#include <string.h>

static const struct {
    const char *bytes, *text;
} vectors[] = {{"", ""},
               {"f", "Zg=="},
               {"fo", "Zm8="},
               {"foo", "Zm9v"},
               {"foob", "Zm9vYg=="},
               {"fooba", "Zm9vYmE="},
               {"foobar", "Zm9vYmFy"}};

static void the_rfcs_vectors(void **state) {
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        struct buf b;
        buf_init(&b, 100);
        assert_int_equal(base64_encode(&b, vectors[i].bytes, strlen(vectors[i].bytes)), 0);
        assert_string_equal(buf_z(&b), vectors[i].text);
        buf_reset(&b);
        assert_int_equal(base64_decode(&b, vectors[i].text, strlen(vectors[i].text)), 0);
        assert_string_equal(buf_z(&b), vectors[i].bytes);
        buf_release(&b);
    }
}

static void every_byte_comes_back(void **state) {
    unsigned char all[256];
    struct buf text, back;
    for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
    for (size_t len = 253; len <= 256; len++) {
        buf_init(&text, 1000), buf_init(&back, 1000);
        assert_int_equal(base64_encode(&text, all, len), 0);
        assert_int_equal(base64_decode(&back, text.data, text.len), 0);
        assert_int_equal(back.len, len);
        assert_memory_equal(back.data, all, len);
        buf_release(&text), buf_release(&back);
    }
}

static void anything_else_is_refused(void **state) {
    static const char *const wrong[] = {"Z",
                                        "Zg",
                                        "Zg=",
                                        "Zg==Zg==",
                                        "Zm9v\n",
                                        "Zm 9",
                                        "====",
                                        "A===",
                                        "=AAA",
                                        "Zh==",
                                        "Zm9=",
                                        "Zm-v",
                                        "Z\xff"
                                        "9v",
                                        "Zm9vYg=a",
                                        "AA=A"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct buf b;
        buf_init(&b, 100);
        if (base64_decode(&b, wrong[i], strlen(wrong[i])) != E_FORMAT) fail_msg("'%s'", wrong[i]);
        buf_release(&b);
    }
    struct buf small;
    buf_init(&small, 2);
    assert_int_equal(base64_decode(&small, "Zm9v", 4), E_LIMIT);
    buf_release(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_rfcs_vectors),
                                       cmocka_unit_test(every_byte_comes_back),
                                       cmocka_unit_test(anything_else_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
