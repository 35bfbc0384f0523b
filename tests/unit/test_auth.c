// Tokens, sub-protocols, Host and Origin.
#include "tests/cmocka.h"
#include "ws/net/auth.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct owners owners;
static const struct owner_limits defaults = {.requests_per_minute = 60, .connections = 7};
static char file[] = "/tmp/parley-tokens-XXXXXX";

static int setup(void **state) {
    close(mkstemp(file));
    owners_init(&owners, NULL);
    return 0;
}
static int teardown(void **state) {
    owners_release(&owners);
    unlink(file);
    memcpy(file + sizeof file - 7, "XXXXXX", 6);
    return 0;
}

static void put(const char *text) {
    FILE *f = fopen(file, "w");
    fputs(text, f);
    fclose(f);
}

static const struct auth_token *find(const struct auth *a, const char *token) {
    return auth_find(a, token, strlen(token));
}

static void without_a_file_everybody_is_local(void **state) {
    struct auth *a;
    assert_int_equal(auth_open(&a, "", &owners, &defaults, NULL), 0);
    assert_false(auth_needs_token(a));
    const struct auth_token *t = find(a, "anything");
    assert_string_equal(t->owner->name, AUTH_LOCAL);
    assert_true(t->admin);
    assert_int_equal(t->owner->limits.connections, 0); // the one owner has no limits
    assert_ptr_equal(auth_again(a, t), t);
    assert_true(auth_has_tokens(a, t->owner));
    auth_close(a);
}

#define ALICE "alice-token-0123456789"
#define SECOND "alice:second=token-0123456789"
#define BOB "bob/token+with=signs:9"

static void lines_name_owners_and_their_limits(void **state) {
    struct auth *a;
    put("# who\n\n \talice:" ALICE " requests_per_minute=600\tstored_bytes=2GiB \r\n" SECOND
        " admin connections=3 cache_share=0.25\nbob:" BOB "\nbare-token-without-a-name sessions=0");
    assert_int_equal(auth_open(&a, file, &owners, &defaults, NULL), 0);
    const struct auth_token *alice = find(a, ALICE), *second = find(a, strchr(SECOND, ':') + 1);
    assert_ptr_equal(alice->owner, second->owner); // two lines with one name are one owner
    assert_false(alice->admin);
    assert_true(second->admin); // but that is the token's
    assert_int_equal(alice->owner->limits.requests_per_minute, 600);
    assert_int_equal(alice->owner->limits.stored_bytes, INT64_C(2) << 30);
    assert_int_equal(alice->owner->limits.connections, 3);
    assert_true(alice->owner->limits.cache_share == 0.25);
    const struct owner *bob = find(a, BOB)->owner;
    assert_string_equal(bob->name, "bob");
    assert_int_equal(bob->limits.requests_per_minute, 60); // the defaults
    assert_int_equal(bob->limits.connections, 7);
    assert_memory_equal(find(a, "bare-token-without-a-name")->owner->name, "token-", 6);
    assert_null(find(a, "alice:" ALICE));
    assert_null(find(a, ALICE "x"));
    assert_null(find(a, ""));
    auth_close(a);
}

static void a_reload_changes_limits_and_removes_tokens(void **state) {
    struct auth *a;
    struct err err = {0};
    put("alice:" ALICE " running_turns=2\nbob:" BOB "\n");
    assert_int_equal(auth_open(&a, file, &owners, &defaults, NULL), 0);
    struct auth_token alice = *find(a, ALICE), bob = *find(a, BOB);
    put("alice:" ALICE " running_turns=5 admin\n");
    assert_int_equal(auth_reload(a, &err), 0);
    assert_int_equal(alice.owner->limits.running_turns, 5);
    assert_ptr_equal(auth_again(a, &alice)->owner, alice.owner);
    assert_true(auth_again(a, &alice)->admin);
    assert_null(auth_again(a, &bob));
    assert_null(find(a, BOB));
    assert_true(auth_has_tokens(a, alice.owner));
    assert_false(auth_has_tokens(a, bob.owner));
    put("alice:" ALICE " running_turns=9\nshort\n"); // as a whole, or not at all
    assert_int_equal(auth_reload(a, &err), E_FORMAT);
    assert_int_equal(alice.owner->limits.running_turns, 5);
    assert_non_null(find(a, ALICE));
    auth_close(a);
}

static void a_bad_line_is_named_and_its_token_is_not(void **state) {
    static const struct {
        const char *text;
        int line;
        const char *sentence;
    } bad[] = {
        {"short\n", 1, "a token is 16 to 512"},
        {"na me:0123456789abcdef\n", 1, "a token is"},
        {"n\xc3\xa4me:0123456789abcdef\n", 1, "a name is"},
        {"a:secret-0123456789\n\nb:secret-0123456789\n", 3, "earlier line"},
        {"a:secret-0123456789 requests_per_minute=-1\n", 1, "must be a whole number from 0"},
        {"a:secret-0123456789 requests_per_minute=secret-0123456789\n", 1,
         "requests_per_minute: must be"},
        {"a:secret-0123456789 cache_share=1.5\n", 1, "cache_share: must be a number"},
        {"a:secret-0123456789 stored_bytes=much\n", 1, "must be a size such as"},
        {"a:secret-0123456789 sessions=\n", 1, "sessions"},
        {"a:secret-0123456789 sessions\n", 1, "behind the token stand"},
        {"a:secret-0123456789 secret-0123456789\n", 1, "behind the token stand"},
        {"a:secret-0123456789 secret-0123456789=1\n", 1, "behind the token stand"},
        {"a:secret-0123456789 owner_sessions=1\n", 1, "behind the token stand"},
        {"a:secret-0123456789 sessions=1 sessions=1\n", 1, "sessions stands there twice"},
        {"a:secret-0123456789 sessions=1\na:secret-987654321x sessions=2\n", 2,
         "sessions of a is another one in line 1"},
        {"# none\n", 0, "holds no token"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct auth *a;
        struct err err = {0};
        char place[64];
        put(bad[i].text);
        assert_true(auth_open(&a, file, &owners, &defaults, &err) < 0);
        snprintf(place, sizeof place, bad[i].line ? "%s:%d: " : "%s: ", file, bad[i].line);
        if (strncmp(err.text, place, strlen(place)) != 0) fail_msg("%zu: %s", i, err.text);
        if (!strstr(err.text, bad[i].sentence)) fail_msg("%zu: %s", i, err.text);
        if (strstr(err.text, "secret-")) fail_msg("%zu tells the token: %s", i, err.text);
    }
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
        cmocka_unit_test_setup_teardown(without_a_file_everybody_is_local, setup, teardown),
        cmocka_unit_test_setup_teardown(lines_name_owners_and_their_limits, setup, teardown),
        cmocka_unit_test_setup_teardown(a_reload_changes_limits_and_removes_tokens, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_bad_line_is_named_and_its_token_is_not, setup, teardown),
        cmocka_unit_test(bearer_headers),
        cmocka_unit_test(subprotocols),
        cmocka_unit_test(hosts),
        cmocka_unit_test(origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
