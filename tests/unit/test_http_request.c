// Which request heads are served. Their reading from libwebsockets is tested over sockets
// (tests/e2e/wire_http.test.mjs).
#include "ws/net/http_request.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <string.h>

static struct http_request get(const char *host) {
    struct http_request r = {.method = HTTP_GET, .path = "/ws"};
    strcpy(r.host, host);
    return r;
}

static void framing_comes_first(void **state) {
    struct http_request r = get("evil.example");
    assert_int_equal(http_request_check(&r, "").status, 403);
    r.chunked = true;
    assert_int_equal(http_request_check(&r, "").status, 501);
    r = get("localhost");
    assert_int_equal(http_request_check(&r, "").status, 0);
    r.bad_header = true;
    assert_int_equal(http_request_check(&r, "").status, 431);
    r = get("");
    assert_int_equal(http_request_check(&r, "").status, 400);
}

static void lengths(void **state) {
    const struct {
        const char *length;
        int status;
    } rows[] = {{"0", 0},
                {"00", 0},
                {"5", 413},
                {"-1", 400},
                {"+1", 400},
                {"abc", 400},
                {"5,6", 400},
                {"", 400},
                {" 5", 400},
                {"0x1", 400},
                {"18446744073709551621", 400}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct http_request r = get("localhost");
        r.has_length = true;
        strcpy(r.content_length, rows[i].length);
        struct http_verdict v = http_request_check(&r, "");
        if (v.status != rows[i].status)
            fail_msg("'%s': %d, not %d", rows[i].length, v.status, rows[i].status);
        // What follows cannot be told from a body.
        assert_true(!v.status || (v.close && v.linger));
    }
}

static void methods(void **state) {
    for (enum http_method k = HTTP_GET; k <= HTTP_OTHER; k++) {
        struct http_request r = get("localhost");
        r.method = k;
        int status = http_request_check(&r, "").status;
        if (k == HTTP_GET || k == HTTP_HEAD)
            assert_int_equal(status, 0);
        else if (k == HTTP_POST || k == HTTP_PUT || k == HTTP_PATCH)
            assert_int_equal(status, 411);
        else
            assert_int_equal(status, 405);
    }
}

static void upgrades(void **state) {
    struct http_request r = get("localhost");
    assert_int_equal(
        http_request_check_upgrade(&r, "parley.v1", "13", "keep-alive, Upgrade", 24).status, 0);
    assert_int_equal(http_request_check_upgrade(&r, "parley.v2", "13", "Upgrade", 24).status, 400);
    assert_int_equal(http_request_check_upgrade(&r, "", "13", "Upgrade", 24).status, 400);
    assert_int_equal(http_request_check_upgrade(&r, "parley.v1", "12", "Upgrade", 24).status, 426);
    assert_int_equal(http_request_check_upgrade(&r, "parley.v1", "13", "Upgraded", 24).status, 400);
    assert_int_equal(http_request_check_upgrade(&r, "parley.v1", "13", "Upgrade", 0).status, 400);
    assert_int_equal(
        http_request_check_upgrade(&r, "parley.v1, bearer.*", "13", "Upgrade", 24).status, 401);
    strcpy(r.path, "/");
    assert_int_equal(http_request_check_upgrade(&r, "parley.v1", "13", "Upgrade", 24).status, 404);
    r = get("localhost");
    r.method = HTTP_HEAD;
    assert_int_equal(http_request_check_upgrade(&r, "parley.v1", "13", "Upgrade", 24).status, 405);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(framing_comes_first),
        cmocka_unit_test(lengths),
        cmocka_unit_test(methods),
        cmocka_unit_test(upgrades),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
