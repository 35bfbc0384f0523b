// The page's table, negotiated.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/page.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static unsigned char packed[256];
const struct page_asset page_assets[] = {
    {"/index.html", "text/html", "0123456789abcdef", packed, 0, 0, false},
    {"/app.js", "text/javascript", "fedcba", packed, 0, 0, false},
};
const size_t page_n_assets = 2;

static void addresses(void **state) {
    assert_ptr_equal(page_find("/"), &page_assets[0]);
    assert_ptr_equal(page_find("/app.js"), &page_assets[1]);
    const char *nothing[] = {"", "app.js", "/app.js/", "/APP.JS", "//app.js", "/../app.js", "/app"};
    for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++)
        assert_null(page_find(nothing[i]));
}

static void tags(void **state) {
    char a[72], b[72];
    page_etag(&page_assets[0], true, a);
    page_etag(&page_assets[0], false, b);
    assert_string_equal(a, "\"0123456789abcdef\"");
    assert_string_equal(b, "\"0123456789abcdef-i\"");
    assert_true(page_etag_matches(a, a));
    assert_true(page_etag_matches("\"x\", W/\"0123456789abcdef\"", a));
    assert_true(page_etag_matches("*", a));
    assert_false(page_etag_matches(b, a));
    assert_false(page_etag_matches("", a));
    assert_false(page_etag_matches("0123456789abcdef", a));
}

static void encodings(void **state) {
    const char *yes[] = {"gzip",
                         "br, gzip",
                         "GZIP",
                         "x-gzip",
                         "*",
                         "gzip;q=0.5",
                         "br;q=1.0, gzip;q=0.001",
                         "deflate,gzip;q=1"};
    const char *no[] = {"",        "br",    "identity",   "gzip;q=0", "gzip;q=0.000, br",
                        "gzipped", "*;q=0", "gzip;q=0, *"};
    for (size_t i = 0; i < sizeof(yes) / sizeof(yes[0]); i++)
        if (!page_accepts_gzip(yes[i])) fail_msg("'%s' is not taken for gzip", yes[i]);
    for (size_t i = 0; i < sizeof(no) / sizeof(no[0]); i++)
        if (page_accepts_gzip(no[i])) fail_msg("'%s' is taken for gzip", no[i]);
}

static void inflating(void **state) {
    static const char text[] = "the page, the page, the page";
    z_stream z = {.next_in = (unsigned char *)(size_t)text,
                  .avail_in = sizeof(text) - 1,
                  .next_out = packed,
                  .avail_out = sizeof(packed)};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    struct page_asset a = {"/x", "", "", packed, z.total_out, sizeof(text) - 1, false};
    deflateEnd(&z);
    unsigned char *plain;
    assert_int_equal(page_inflate(&a, &plain), 0);
    assert_memory_equal(plain, text, sizeof(text) - 1);
    free(plain);
    a.raw_len++;
    assert_int_equal(page_inflate(&a, &plain), E_CORRUPT);
    a.raw_len -= 2;
    assert_int_equal(page_inflate(&a, &plain), E_CORRUPT);
    a.raw_len++;
    a.gz_len--;
    assert_int_equal(page_inflate(&a, &plain), E_CORRUPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses),
        cmocka_unit_test(tags),
        cmocka_unit_test(encodings),
        cmocka_unit_test(inflating),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
