// The table of settings: the defaults are valid, and settings that contradict each other are
// refused.
#include "engine/engine.h"
#include "tests/cmocka.h"
#include "ws/serve_config.h"
#include <string.h>

static struct serve_config c;
static struct err err;

static int set_up(void **state) {
    assert_int_equal(serve_config_init(&c, &err), 0);
    assert_int_equal(config_set(serve_config_table(), &c, "model", "m", &err), 0);
    return 0;
}
static int tear_down(void **state) {
    config_release(serve_config_table(), &c);
    return 0;
}
static void set(const char *key, const char *value) {
    if (config_set(serve_config_table(), &c, key, value, &err) < 0) fail_msg("%s", err.text);
}
static void refused(int code, const char *named) {
    assert_int_equal(serve_config_check(&c, &err), code);
    if (!strstr(err.text, named)) fail_msg("'%s' does not say %s", err.text, named);
}

static void the_defaults_are_good(void **state) {
    assert_int_equal(serve_config_check(&c, &err), 0);
    assert_string_equal(c.host, "127.0.0.1");
    assert_int_equal(c.port, 8080);
    assert_int_equal(c.max_message_bytes, 1 << 20);
    assert_int_equal(c.max_sequence_idle_microseconds, 60000000);
    for (int i = 0; i < serve_config_table()->n_keys; i++)
        assert_true(strlen(serve_config_table()->keys[i].help) > 10);
}

static void what_is_missing(void **state) {
    set("model", "");
    refused(E_INVAL, "--model");
    set("model", "m");
    set("db", "");
    refused(E_INVAL, "--db");
}

static void other_addresses_need_tokens(void **state) {
    const char *inside[] = {"127.0.0.1", "127.9.9.9", "::1", "localhost"};
    const char *outside[] = {"0.0.0.0",     "::",        "192.168.1.2",
                             "example.org", "128.0.0.1", "::ffff:127.0.0.1"};
    for (size_t i = 0; i < 4; i++) {
        set("host", inside[i]);
        assert_int_equal(serve_config_check(&c, &err), 0);
    }
    for (size_t i = 0; i < 6; i++) {
        set("host", outside[i]);
        refused(E_DENIED, "token-file");
    }
    set("token_file", "tokens");
    assert_int_equal(serve_config_check(&c, &err), 0);
}

static void what_goes_together(void **state) {
    set("tls_cert", "c");
    refused(E_INVAL, "tls_key");
    set("tls_key", "k");
    assert_int_equal(serve_config_check(&c, &err), 0);
    set("block_tokens", "48");
    refused(E_INVAL, "power of two");
    set("block_tokens", "64");
    set("memory_len", "4");
    refused(E_INVAL, "sink_len");
    set("memory_len", "5");
    set("message_burst", "5");
    refused(E_INVAL, "message_burst");
    set("message_burst", "0");
    set("port", "8001");
    set("grpc_port", "8001");
    refused(E_INVAL, "port and grpc_port are both 8001");
    set("port", "0");
    set("grpc_port", "0"); // each picks a free one
    assert_int_equal(serve_config_check(&c, &err), 0);
}

// A browser sends an origin in one form, and an entry in another form lets no page in.
static void origins_and_hosts_that_match_nothing(void **state) {
    static const char *const good[] = {
        "https://chat.example",
        "HTTP://LOCALHOST:5173",
        "null",
        "http://[::1]:5173, tauri://localhost, https://a.b",
        "chrome-extension://abcdef",
        "https://chat.example:80",
    };
    static const char *const bad[] = {
        "*",
        "https://*.example",
        "http://localhost:5173/",
        "localhost:5173",
        "chat.example",
        "https://chat.example/app",
        "https://chat.example?x",
        "https://chat.example#x",
        "https://user@chat.example",
        "https://chat.example:443",
        "http://chat.example:80",
        "https://",
        "://chat.example",
        "https:chat.example",
        "https://chat.example:",
        "https://chat.example:0",
        "https://chat.example:08080",
        "https://chat.example:70000",
        "https://chat.example:x",
        "https://[::1",
        "https://b\u00fccher.example",
        "https://ok.example, chat.example",
    };
    static const char *const bad_hosts[] = {"*", "https://chat.example", "chat.example/", "a:b",
                                            "*.example"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        set("allowed_origins", good[i]);
        if (serve_config_check(&c, &err) < 0) fail_msg("%s", err.text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set("allowed_origins", bad[i]);
        refused(E_INVAL, "allowed_origins has '");
    }
    set("allowed_origins", "");
    set("allowed_hosts", "chat.example, chat.example:8080,[fe80::1], 10.0.0.1");
    assert_int_equal(serve_config_check(&c, &err), 0);
    for (size_t i = 0; i < sizeof bad_hosts / sizeof *bad_hosts; i++) {
        set("allowed_hosts", bad_hosts[i]);
        refused(E_INVAL, "allowed_hosts has '");
    }
}

static void the_burst_follows_the_rate(void **state) {
    if (config_load(serve_config_table(), &c, "configs/demo.ini", &err) < 0)
        fail_msg("%s", err.text);
    set("messages_per_second", "300");
    assert_int_equal(serve_config_check(&c, &err), 0);
    assert_int_equal(serve_config_burst(&c), 600);
    set("message_burst", "450");
    assert_int_equal(serve_config_burst(&c), 450);
}

static void sampling_lies_over_the_model(void **state) {
    struct sampling_params p;
    sampling_params_init(&p);
    p.temperature = 0.5f;
    p.top_k = 40;
    set("top_k", "7");
    set("max_tokens", "0");
    assert_int_equal(serve_config_sampling(&c, &p, &err), 0);
    assert_int_equal(p.top_k, 7);
    assert_true(p.temperature == 0.5f);
    const char *bad[] = {"x", "1.5", "nan", "1e99", "-1", ""};
    for (size_t i = 0; i < 5; i++) {
        set("top_k", bad[i]);
        refused(E_INVAL, "top_k");
    }
    set("top_k", "");
    set("temperature", "nan");
    refused(E_INVAL, "temperature");
    set("temperature", "-0.1");
    refused(E_INVAL, "temperature");
}

// An unknown name is refused with a list of the known ones.
static void number_formats_of_the_cache(void **state) {
    static const char *const known[] = {"auto", "f32", "f16", "bf16", "fp8", "int8"};
    for (int i = 0; i < 6; i++) {
        set("kv_dtype", known[i]);
        assert_int_equal(c.model.kv_dtype, i);
        assert_int_equal(serve_config_check(&c, &err), 0);
        struct engine_options o;
        engine_options_init(&o);
        engine_options_kv_dtype(&o, i);
        assert_int_equal(o.kv_dtype_auto, i == 0);
        if (i > 0) assert_string_equal(engine_kv_dtype_name(o.kv_dtype), known[i]);
    }
    assert_true(config_set(serve_config_table(), &c, "kv_dtype", "int4", &err) < 0);
    assert_non_null(strstr(err.text, "int4"));
    assert_non_null(strstr(err.text, "kv_dtype"));
    assert_non_null(strstr(err.text, "int8"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_defaults_are_good, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_missing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_addresses_need_tokens, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_goes_together, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_burst_follows_the_rate, set_up, tear_down),
        cmocka_unit_test_setup_teardown(origins_and_hosts_that_match_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sampling_lies_over_the_model, set_up, tear_down),
        cmocka_unit_test_setup_teardown(number_formats_of_the_cache, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
