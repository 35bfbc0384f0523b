// UTF-8: validity by definition, the Unicode standard's own examples of replacement, streaming.
#include "base/buf.h"
#include "base/err.h"
#include "base/philox.h"
#include "base/utf8.h"
#include "tests/cmocka.h"
#include <string.h>

// RFC 3629 by definition: decode, then refuse what should have been shorter, surrogates and beyond.
static bool valid_reference(const unsigned char *s, size_t len) {
    for (size_t i = 0; i < len;) {
        size_t n = s[i] < 0x80   ? 1
                   : s[i] < 0xc0 ? 0
                   : s[i] < 0xe0 ? 2
                   : s[i] < 0xf0 ? 3
                   : s[i] < 0xf8 ? 4
                                 : 0;
        if (n == 0 || i + n > len) return false;
        uint32_t c = n == 1 ? s[i] : s[i] & (0x7f >> n);
        for (size_t k = 1; k < n; k++) {
            if ((s[i + k] & 0xc0) != 0x80) return false;
            c = c << 6 | (s[i + k] & 0x3f);
        }
        static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
        if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return false;
        i += n;
    }
    return true;
}

static void all_sequences_of_three_bytes(void **state) {
    for (uint32_t v = 0; v < 1 << 24; v++) {
        // ASCII in the second place says nothing new; leaving most of it out keeps this short.
        if ((v >> 8 & 0xff) < 0x7e) v |= 0x7e00;
        unsigned char s[3] = {(unsigned char)(v >> 16), (unsigned char)(v >> 8), (unsigned char)v};
        if (utf8_valid((char *)s, 3) != valid_reference(s, 3)) fail_msg("%06x", v);
    }
}

static void all_lead_and_second_bytes_of_four(void **state) {
    static const unsigned char tails[][2] = {
        {0x80, 0x80}, {0xbf, 0xbf}, {0x7f, 0x80}, {0x80, 0xc0}};
    for (int v = 0; v < 65536; v++) {
        for (int t = 0; t < 4; t++) {
            unsigned char s[4] = {(unsigned char)(v >> 8), (unsigned char)v, tails[t][0],
                                  tails[t][1]};
            if (utf8_valid((char *)s, 4) != valid_reference(s, 4)) fail_msg("%04x %d", v, t);
        }
    }
}

static void one_bad_byte_anywhere_is_found(void **state) {
    char text[40];
    for (size_t len = 0; len <= sizeof text; len++) {
        memset(text, 'a', sizeof text);
        assert_true(utf8_valid(text, len));
        for (size_t i = 0; i < len; i++) {
            text[i] = '\xff';
            assert_false(utf8_valid(text, len));
            text[i] = 'a';
        }
    }
}

static void assert_sanitized(const char *in, size_t len, const char *want) {
    struct buf out;
    buf_init(&out, 1000);
    assert_int_equal(buf_add_utf8(&out, in, len), 0);
    assert_string_equal(buf_z(&out), want);
    buf_release(&out);
}

#define R "\xef\xbf\xbd"
#define SANITIZED(in, want) assert_sanitized(in, sizeof(in) - 1, want)

static void unicode_examples_of_replacement(void **state) {
    SANITIZED("", "");
    SANITIZED("plain \u00e4\u20ac\U0001f600", "plain \u00e4\u20ac\U0001f600");
    // 3-8
    SANITIZED("\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "a" R R R "b" R "c" R R "d");
    SANITIZED("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", R R R R R R R R "A");
    SANITIZED("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", R R R R R R R R "A");
    SANITIZED("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", R R R R R "A" R R "B");
    SANITIZED("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", R R R R "A");
    SANITIZED("end\xf0\x9f\x98", "end" R);
}

static void replacement_respects_the_cap(void **state) {
    struct buf out;
    buf_init(&out, 4);
    assert_int_equal(buf_add_utf8(&out, "\xff\xff", 2), E_LIMIT);
    buf_release(&out);
}

static void unfinished_ends_wait(void **state) {
    static const struct {
        const char *s;
        size_t want;
    } rows[] = {
        {"", 0},
        {"abc", 3},
        {"ab\xc3", 2},
        {"ab\xc3\xa4", 4},
        {"\xe2", 0},
        {"\xe2\x82", 0},
        {"\xe2\x82\xac", 3},
        {"x\xf0\x9f\x98", 1},
        {"x\xf0", 1},
        {"x\xf0\x9f", 1},
        {"\xf0\x9f\x98\x80", 4},
        // Finished, though wrong: nothing that follows can mend them.
        {"a\xff", 2},
        {"a\x80", 2},
        {"a\xc0", 2},
        {"a\xe0\x80", 3},
        {"a\xed\xa0", 3},
        {"a\xf4\x90", 3},
        {"a\x80\x80\x80\x80", 5},
        {"a\xf5\x80", 3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(utf8_complete_len(rows[i].s, strlen(rows[i].s)), rows[i].want);
}

// Showing complete characters, piece by piece, gives the same text as sanitising all of it,
// whatever the bytes.
static void streaming_equals_the_whole(void **state) {
    static const char alphabet[] = "a\x7f\x80\xbf\xc0\xc3\xe0\xe2\xed\xf0\xf4\xff\x90\xa0\x9f\x82";
    for (uint64_t round = 0; round < 20000; round++) {
        uint32_t random[4];
        char text[16];
        philox4x32(round, (uint32_t[4]){0}, random);
        size_t len = random[0] % 16;
        for (size_t i = 0; i < len; i++) text[i] = alphabet[random[1 + i / 8] >> 4 * (i % 8) & 15];
        struct buf whole, pieces, held;
        buf_init(&whole, 100);
        buf_init(&pieces, 100);
        buf_init(&held, 100);
        buf_add_utf8(&whole, text, len);
        for (size_t i = 0; i < len; i++) {
            buf_addc(&held, text[i]);
            if (random[3] >> i & 1) continue; // pieces of several bytes, too
            size_t n = utf8_complete_len(buf_z(&held), held.len);
            assert_true(held.len - n <= 3);
            buf_add_utf8(&pieces, buf_z(&held), n);
            buf_remove_front(&held, n);
        }
        buf_add_utf8(&pieces, buf_z(&held), held.len);
        assert_string_equal(buf_z(&pieces), buf_z(&whole));
        assert_true(utf8_valid(buf_z(&whole), whole.len));
        buf_release(&whole);
        buf_release(&pieces);
        buf_release(&held);
    }
}

static void next_steps_over_a_whole_text(void **state) {
    const char *text = "a\u20ac\xe2\x82z";
    static const size_t lengths[] = {1, 3, 2, 1};
    static const bool valid[] = {true, true, false, true};
    size_t i = 0, len = strlen(text);
    for (int k = 0; k < 4; k++) {
        bool ok;
        size_t n = utf8_next(text + i, len - i, &ok);
        assert_int_equal(n, lengths[k]);
        assert_int_equal(ok, valid[k]);
        i += n;
    }
    assert_int_equal(i, len);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sequences_of_three_bytes),
        cmocka_unit_test(all_lead_and_second_bytes_of_four),
        cmocka_unit_test(one_bad_byte_anywhere_is_found),
        cmocka_unit_test(unicode_examples_of_replacement),
        cmocka_unit_test(replacement_respects_the_cap),
        cmocka_unit_test(unfinished_ends_wait),
        cmocka_unit_test(streaming_equals_the_whole),
        cmocka_unit_test(next_steps_over_a_whole_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
