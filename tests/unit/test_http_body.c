// Bodies by length, by chunks and packed, in pieces of every size, and what is malformed.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/net/http_body.h"
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static const struct http_head chunked = {.framing = HTTP_CHUNKED};

// Feeds text in pieces of `piece` bytes. The result of the last feed; *used: bytes taken.
static int feed(struct http_body *b, const char *text, size_t piece, size_t *used) {
    size_t len = strlen(text), n = 0;
    int rc = 0;
    for (*used = 0; *used < len && rc == 0; *used += n) {
        size_t left = len - *used;
        rc = http_body_feed(b, text + *used, left < piece ? left : piece, &n);
    }
    return rc;
}

static int feed_chunks(const char *text, size_t max) {
    struct http_body b;
    size_t used;
    assert_int_equal(http_body_begin(&b, &chunked, max), 0);
    int rc = feed(&b, text, 1000, &used);
    http_body_release(&b);
    return rc;
}

static void a_length(void **state) {
    struct http_body b;
    size_t used;
    const struct http_head h = {.framing = HTTP_LENGTH, .content_length = 5};
    for (size_t piece = 1; piece < 8; piece++) {
        assert_int_equal(http_body_begin(&b, &h, 5), 0);
        assert_int_equal(feed(&b, "helloGET /", piece, &used), 1);
        assert_int_equal(used, 5);
        assert_string_equal(buf_z(&b.data), "hello");
        http_body_release(&b);
    }
    assert_int_equal(http_body_begin(&b, &h, 4), E_LIMIT);
    const struct http_head none = {.framing = HTTP_LENGTH};
    assert_int_equal(http_body_begin(&b, &none, 0), 0);
    assert_int_equal(http_body_feed(&b, "", 0, &used), 1);
}

static void chunks(void **state) {
    static const char text[] =
        "5;ext=\"a b\"\r\nhello\r\n00A\r\n, world...\r\n0\r\nTrailer: x\r\n\r\n";
    for (size_t piece = 1; piece < 60; piece++) {
        struct http_body b;
        size_t used;
        char all[100];
        strcpy(all, text);
        strcat(all, "GET /");
        assert_int_equal(http_body_begin(&b, &chunked, 15), 0);
        assert_int_equal(feed(&b, all, piece, &used), 1);
        assert_int_equal(used, sizeof(text) - 1);
        assert_string_equal(buf_z(&b.data), "hello, world...");
        http_body_release(&b);
    }
}

static void malformed_chunks(void **state) {
    static const char *const bad[] = {"x\r\n",          "\r\n",         "-1\r\n",
                                      "+1\r\na\r\n",    "0x1\r\na\r\n", " 1\r\na\r\n",
                                      "1\na\r\n",       "1\r\nab\r\n",  "1\r\na\n0",
                                      "1\r\r\na",       "1_\r\n",       "10000000000000000\r\n",
                                      "1\r\na\r\nx\r\n"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (feed_chunks(bad[i], 1000) != E_FORMAT) fail_msg("row %zu is taken", i);
    assert_int_equal(feed_chunks("5\r\nhello\r\n1\r\n", 5), E_LIMIT);
    assert_int_equal(feed_chunks("fffffffffffffff\r\n", 1 << 20), E_LIMIT);
    char *trailers = calloc(1, 20000);
    strcpy(trailers, "0\r\n");
    for (int i = 0; i < 1000; i++) strcat(trailers, "trailer: x\r\n");
    assert_int_equal(feed_chunks(trailers, 10), E_FORMAT);
    free(trailers);
    char line[400] = "1;";
    memset(line + 2, 'x', 300);
    assert_int_equal(feed_chunks(line, 10), E_FORMAT);
}

static size_t zip(const char *text, size_t len, int bits, unsigned char *out, size_t cap) {
    z_stream z = {.next_in = (unsigned char *)(size_t)text,
                  .avail_in = (unsigned)len,
                  .next_out = out,
                  .avail_out = (unsigned)cap};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t n = z.total_out;
    deflateEnd(&z);
    return n;
}

static int unzip(const unsigned char *data, size_t len, size_t max, size_t *out_len) {
    struct buf out;
    buf_init(&out, max);
    int rc = http_body_unzip((const char *)data, len, &out);
    *out_len = out.len;
    buf_release(&out);
    return rc;
}

static void packed(void **state) {
    size_t n, size = 1 << 20;
    char *zeros = calloc(1, size);
    unsigned char data[8192];
    for (int bits = 15; bits <= 31; bits += 16) { // zlib, gzip
        size_t len = zip(zeros, size, bits, data, sizeof(data) - 1);
        assert_int_equal(unzip(data, len, size, &n), 0);
        assert_int_equal(n, size);
        assert_int_equal(unzip(data, len, size - 1, &n), E_LIMIT);
        assert_true(n <= size - 1);
        for (size_t cut = 0; cut < len; cut += 97)
            assert_int_equal(unzip(data, cut, size, &n), E_FORMAT);
        data[len] = 'x';
        assert_int_equal(unzip(data, len + 1, size, &n), E_FORMAT);
    }
    assert_int_equal(unzip((const unsigned char *)"hello", 5, 100, &n), E_FORMAT);
    free(zeros);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_length),
        cmocka_unit_test(chunks),
        cmocka_unit_test(malformed_chunks),
        cmocka_unit_test(packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
