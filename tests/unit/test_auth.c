// Tokens, sub-protocols, Host and Origin.
#include "ws/net/auth.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

static const char *owner(const struct auth *a, const char *token) {
    return auth_owner(a, token, strlen(token));
}

static void without_a_file_everybody_is_local(void **state) {
    struct auth *a;
    assert_int_equal(auth_open(&a, "", NULL), 0);
    assert_false(auth_needs_token(a));
    assert_string_equal(owner(a, "anything"), AUTH_LOCAL);
    auth_close(a);
}

static void bearer_headers(void **state) {
    size_t n;
    assert_memory_equal(auth_bearer("Bearer abc", &n), "abc", 3);
    assert_int_equal(n, 3);
    assert_memory_equal(auth_bearer("bEaReR   abc  ", &n), "abc", 3);
    assert_int_equal(n, 3);
    assert_null(auth_bearer("Bearer ", &n));
    assert_null(auth_bearer("Basic abc", &n));
    assert_null(auth_bearer("", &n));
}

static void subprotocols(void **state) {
    char token[AUTH_TOKEN_MAX + 1];
    int rc;
    assert_true(auth_subprotocols("parley.v1", "parley.v1", token, &rc));
    assert_string_equal(token, "");
    assert_true(auth_subprotocols("x,bearer.aGVsbG8, parley.v1", "parley.v1", token, &rc));
    assert_int_equal(rc, 0);
    assert_string_equal(token, "hello");
    assert_false(auth_subprotocols("parley.v11, parley, bearer.aGVsbG8", "parley.v1", token, &rc));
    assert_false(auth_subprotocols("", "parley.v1", token, &rc));
    // Padding, another alphabet, bits left over, NUL, a single letter.
    const char *bad[] = {"aGVsbG8=", "aGVs+G8", "aGVsbG9", "AA", "a"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        char header[64];
        snprintf(header, sizeof(header), "parley.v1, bearer.%s", bad[i]);
        assert_true(auth_subprotocols(header, "parley.v1", token, &rc));
        assert_int_equal(rc, E_FORMAT);
    }
    char long_header[2048] = "bearer.";
    memset(long_header + 7, 'Y', 1600);
    auth_subprotocols(long_header, "parley.v1", token, &rc);
    assert_int_equal(rc, E_FORMAT);
}

static void hosts(void **state) {
    const char *list = "chat.example, other.example:81";
    const char *good[] = {"127.0.0.1",         "127.0.0.1:8080",  "[::1]:8080",   "[::1]",
                          "10.1.2.3:1",        "localhost",       "LOCALHOST:99", "chat.example",
                          "Chat.Example:8080", "other.example:81"};
    const char *bad[] = {"",
                         "evil.example",
                         "localhost.evil",
                         "127.0.0.1.evil",
                         "other.example:82",
                         "other.example",
                         "localhost:",
                         "localhost:x",
                         "localhost:1:2",
                         "localhost:123456",
                         "[::1",
                         "[::1]x",
                         "::1",
                         "127.0.0.1,localhost",
                         "chat.example.",
                         "[127.0.0.1]",
                         "127.1"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        if (!auth_host_allowed(good[i], list)) fail_msg("%s is refused", good[i]);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (auth_host_allowed(bad[i], list)) fail_msg("%s is allowed", bad[i]);
}

static void origins(void **state) {
    const char *list = "https://chat.example,http://b:1";
    assert_true(auth_origin_allowed("http://127.0.0.1:8080", "127.0.0.1:8080", false, ""));
    assert_true(auth_origin_allowed("HTTP://LocalHost:8080", "localhost:8080", false, ""));
    assert_true(auth_origin_allowed("https://h", "h", true, ""));
    assert_true(auth_origin_allowed("https://chat.example", "h", false, list));
    assert_true(auth_origin_allowed("http://b:1", "h", false, list));
    const char *bad[] = {"null",
                         "http://127.0.0.1:8081",
                         "https://127.0.0.1:8080",
                         "http://127.0.0.1:8080.evil",
                         "http://127.0.0.1:8080/",
                         "http://",
                         "127.0.0.1:8080",
                         "https://chat.example:443",
                         "http://b",
                         ","};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (auth_origin_allowed(bad[i], "127.0.0.1:8080", false, list))
            fail_msg("%s is allowed", bad[i]);
    assert_false(auth_origin_allowed("http://", "", false, ""));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_file_everybody_is_local),
        cmocka_unit_test(bearer_headers),
        cmocka_unit_test(subprotocols),
        cmocka_unit_test(hosts),
        cmocka_unit_test(origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
