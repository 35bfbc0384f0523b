// Which request heads are parsed, to what, and which are refused.
#include "tests/cmocka.h"
#include "ws/net/http_head.h"
#include <stdlib.h>
#include <string.h>

#define HOST "Host: localhost\r\n"

static char kept[HTTP_HEAD_BYTES * 2];

static struct http_refusal parse(struct http_head *h, const char *text) {
    size_t len = strlen(text);
    assert_int_equal(http_head_find(text, len), len);
    memcpy(kept, text, len + 1);
    return http_head_parse(h, kept, len);
}

static int status_of(const char *text) {
    struct http_head h;
    return parse(&h, text).status;
}

static void a_head_is_parsed(void **state) {
    struct http_head h;
    assert_int_equal(parse(&h, "POST /v1/chat%2Fx?a=b HTTP/1.1\r\nhOsT:\t localhost:80 \r\n"
                               "Content-Length: 0012\r\nX-Other: \r\nexpect: 100-Continue\r\n\r\n")
                         .status,
                     0);
    assert_int_equal(h.method, HTTP_POST);
    assert_string_equal(h.path, "/v1/chat/x");
    assert_string_equal(h.header[HEADER_HOST], "localhost:80");
    assert_string_equal(h.header[HEADER_ORIGIN], "");
    assert_int_equal(h.framing, HTTP_LENGTH);
    assert_int_equal(h.content_length, 12);
    assert_true(h.keep_alive && h.expects_continue && !h.zipped);
    assert_int_equal(parse(&h, "GET / HTTP/1.0\r\nHost: a\r\n\r\n").status, 0);
    assert_true(h.http10 && !h.keep_alive);
    assert_int_equal(parse(&h, "GET / HTTP/1.1\r\n" HOST "Connection: x, CLOSE\r\n\r\n").status, 0);
    assert_false(h.keep_alive);
}

static void heads_that_readers_disagree_on(void **state) {
    static const struct {
        const char *text;
        int status;
    } rows[] = {
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding : chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length : 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length:\r\nContent-Length: 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5\r\nTransfer-Encoding:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Content-Length:\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "Authorization:\r\nAuthorization: Bearer a\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 5, 5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: +5\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Content-Length: 1234567890123456789\r\n\r\n", 400},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: xchunked\r\n\r\n", 501},
        {"POST / HTTP/1.1\r\n" HOST
         "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
         400},
        {"POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "X: a\r\n folded\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n folded: x\r\n" HOST "\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "X: a\001b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "X: a\rContent-Length: 5\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST ": empty\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n" HOST "no colon\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"GET / HTTP/1.1\r\n\r\n", 400},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (status_of(rows[i].text) != rows[i].status)
            fail_msg("%d, not %d: %s", status_of(rows[i].text), rows[i].status, rows[i].text);
}

static void request_lines(void **state) {
    assert_int_equal(status_of("GET  / HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("GET / HTTP/1.1 x\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("GET /\r\n\r\n"), 400);
    assert_int_equal(status_of("GET http://localhost/ HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("GET /% HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("GET /%4 HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("GET /a%00b HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("PRI * HTTP/2.0\r\n\r\n"), 505);
    assert_int_equal(status_of("TRACE / HTTP/1.1\r\n" HOST "\r\n"), 405);
    assert_int_equal(status_of("G\xc3\xa9T / HTTP/1.1\r\n" HOST "\r\n"), 400);
    assert_int_equal(status_of("GET / HTTP/1.1\r\n" HOST "Expect: more\r\n\r\n"), 417);
    assert_int_equal(status_of("GET / HTTP/1.1\r\n" HOST "Content-Encoding: br\r\n\r\n"), 415);
}

static void sizes(void **state) {
    char text[HTTP_HEAD_BYTES * 2] = "GET /";
    memset(text + 5, 'a', 300);
    strcpy(text + 305, " HTTP/1.1\r\n" HOST "\r\n");
    assert_int_equal(status_of(text), 414);
    strcpy(text, "GET / HTTP/1.1\r\n" HOST);
    for (int i = 0; i < HTTP_HEAD_LINES; i++) strcat(text, "X: y\r\n");
    strcat(text, "\r\n");
    assert_int_equal(status_of(text), 431);
    strcpy(text, "GET / HTTP/1.1\r\nHost: ");
    memset(text + strlen(text), 'a', 256);
    strcpy(text + 22 + 256, "\r\n\r\n");
    assert_int_equal(status_of(text), 431);
}

static void the_end_of_a_head_is_found(void **state) {
    static const char text[] = "GET / HTTP/1.1\r\nA: b\r\n\r\nmore";
    for (size_t n = 0; n < 24; n++) assert_int_equal(http_head_find(text, n), 0);
    assert_int_equal(http_head_find(text, sizeof(text) - 1), 24);
    assert_int_equal(http_head_find("a\n\nb", 4), 3);
    assert_int_equal(http_head_find("a\r\n\nb", 5), 4);
}

// No byte string makes the parser read outside of it (for the sanitizers), and none that is refused
// is refused without a sentence.
static void any_bytes(void **state) {
    static const char *const parts[] = {"GET ",
                                        "POST ",
                                        "/",
                                        "%",
                                        "%41",
                                        " HTTP/1.1",
                                        "\r\n",
                                        "\n",
                                        ":",
                                        "Host: a",
                                        "\r",
                                        " ",
                                        "\r\n",
                                        "x",
                                        "\xff",
                                        "Expect: ",
                                        "chunked",
                                        "\r\n",
                                        "Transfer-Encoding: ",
                                        "Content-Length: 5",
                                        ",",
                                        "close"};
    unsigned seed = 1;
    for (int round = 0; round < 20000; round++) {
        char text[512] = "";
        for (int i = 0; i < 20; i++) {
            seed = seed * 1103515245 + 12345;
            strcat(text, parts[(seed >> 16) % (sizeof(parts) / sizeof(parts[0]))]);
        }
        strcat(text, "\r\n\r\n");
        size_t len = http_head_find(text, strlen(text));
        char *exact = malloc(len);
        struct http_head h;
        memcpy(exact, text, len);
        struct http_refusal r = http_head_parse(&h, exact, len);
        if (r.status) assert_true(r.code && r.message && r.status >= 400);
        free(exact);
    }
}

static void the_query_is_read(void **state) {
    static const struct {
        const char *query, *value;
    } cases[] = {
        {"a=1", "1"},           {"b=2&a=1", "1"}, {"ba=2&a=1&a=3", "1"}, {"a=", ""},
        {"a=%41+b#a=2", "A b"}, {"", NULL},       {"a", NULL},           {"aa=1", NULL},
        {"b=a=1", NULL},        {"a=%4", NULL},   {"a=%00", NULL},       {"a=123456789", NULL},
        {"#a=1", NULL},
    };
    char out[9];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool found = http_query_get(cases[i].query, "a", out, sizeof out);
        assert_int_equal(found, cases[i].value != NULL);
        if (found) assert_string_equal(out, cases[i].value);
    }
    char text[] = "GET /v1/responses/x?stream=true HTTP/1.1\r\nHost: a\r\n\r\n",
         none[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    struct http_head h = {0};
    assert_int_equal(http_head_parse(&h, text, strlen(text)).status, 0);
    assert_string_equal(h.path, "/v1/responses/x");
    assert_true(http_query_get(h.query, "stream", out, sizeof out));
    assert_string_equal(out, "true");
    http_head_parse(&h, none, strlen(none));
    assert_false(http_query_get(h.query, "stream", out, sizeof out));
}

static void a_body_without_a_length_is_none(void **state) {
    static const struct {
        const char *text;
        bool lacks;
    } rows[] = {{"POST / HTTP/1.1\r\n" HOST "\r\n", true},
                {"PATCH / HTTP/1.1\r\n" HOST "\r\n", true},
                {"POST / HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", false},
                {"POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", false},
                {"DELETE / HTTP/1.1\r\n" HOST "\r\n", false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct http_head h;
        char text[128];
        strcpy(text, rows[i].text);
        assert_int_equal(http_head_parse(&h, text, strlen(text)).status, 0);
        assert_int_equal(h.lacks_length, rows[i].lacks);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_is_parsed),
        cmocka_unit_test(heads_that_readers_disagree_on),
        cmocka_unit_test(request_lines),
        cmocka_unit_test(sizes),
        cmocka_unit_test(the_end_of_a_head_is_found),
        cmocka_unit_test(any_bytes),
        cmocka_unit_test(the_query_is_read),
        cmocka_unit_test(a_body_without_a_length_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
