// Configuration: a small table of its own through every door: defaults, file, environment,
// arguments,
// --help, the written file, JSON.
#include "base/config.h"
#include "base/json.h"
#include "base/log.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct settings {
    char *host, *token;
    int64_t port, cache;
    double temperature;
    bool deterministic;
    int dtype;
    int64_t any;
    char *marked;
};

static const struct config_key keys[] = {
    {"server", "host", CONFIG_STRING, offsetof(struct settings, host), 0, 0, "ADDRESS", "127.0.0.1",
     "Address to listen on. Any but a loopback address needs a token, for anyone who reaches the "
     "port may talk to the model.",
     0},
    {"server", "port", CONFIG_INT, offsetof(struct settings, port), 1, 65535, NULL, "8080",
     "Port to listen on.", 0},
    {"server", "access_token", CONFIG_STRING, offsetof(struct settings, token), 0, 0, NULL, "",
     "What a client must know.", 1},
    {"engine", "dtype", CONFIG_CHOICE, offsetof(struct settings, dtype), 0, 0, "auto|f32|bf16",
     "auto", "Format of the weights.", 0},
    {"engine", "kv_cache_bytes", CONFIG_BYTES, offsetof(struct settings, cache), 1 << 20, INFINITY,
     NULL, "64MiB", "Memory for keys and values.", 0},
    {"engine", "temperature", CONFIG_FLOAT, offsetof(struct settings, temperature), 0, 2, NULL,
     "0.7", "Zero is greedy.", 0},
    {"engine", "deterministic", CONFIG_BOOL, offsetof(struct settings, deterministic), 0, 0, NULL,
     "off", "The same bits whatever else is in the batch.", 0},
    {"server", "any_number", CONFIG_INT, offsetof(struct settings, any), 0, 0, NULL, "-1",
     "Without a range.", 0},
    {"server", "marked", CONFIG_SWITCH, offsetof(struct settings, marked), 0, 0, NULL, "",
     "Not given differs from off.", 0},
};
static const struct config_table table = {keys, sizeof keys / sizeof *keys};

static struct settings s;
static struct err err;
static char path[64];

static int setup(void **state) {
    strcpy(path, "/tmp/test_config.XXXXXX");
    close(mkstemp(path));
    memset(&s, 0xa5, sizeof s); // config_init must not trust what was there
    memset(&err, 0, sizeof err);
    log_set_level(LOG_OFF);
    return config_init(&table, &s, &err);
}

static int teardown(void **state) {
    config_release(&table, &s);
    unlink(path);
    return 0;
}

static void assert_defaults(void) {
    assert_string_equal(s.host, "127.0.0.1");
    assert_string_equal(s.token, "");
    assert_true(s.port == 8080 && s.cache == 64 << 20 && s.temperature == 0.7 && !s.deterministic);
    assert_true(s.dtype == 0 && s.any == -1);
}

static void defaults(void **state) {
    assert_defaults();
}

static void a_default_out_of_range_is_an_error(void **state) {
    struct config_key bad[] = {keys[0], keys[1]};
    bad[1].fallback = "0";
    struct settings other;
    assert_int_equal(config_init(&(struct config_table){bad, 2}, &other, &err), E_INVAL);
    assert_string_equal(err.text, "port = 0: must be a whole number from 1 to 65535");
    assert_null(other.host); // freed again
}

static int set(const char *name, const char *value) {
    memset(&err, 0, sizeof err);
    return config_set(&table, &s, name, value, &err);
}

static void assert_set_fails(const char *name, const char *value, int code, const char *sentence) {
    assert_int_equal(set(name, value), code);
    assert_string_equal(err.text, sentence);
}

static void numbers(void **state) {
    assert_int_equal(set("port", "65535"), 0);
    assert_int_equal(s.port, 65535);
    static const char *const bad[] = {
        "0", "65536", "", " 1", "1 ", "0x10", "1.5", "1e3", "abc", "99999999999999999999", "1-2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char sentence[100];
        snprintf(sentence, sizeof sentence, "port = %s: must be a whole number from 1 to 65535",
                 bad[i]);
        assert_set_fails("port", bad[i], E_INVAL, sentence);
    }
    assert_int_equal(s.port, 65535); // untouched
    assert_int_equal(set("any_number", "-9223372036854775808"), 0);
    assert_true(s.any == INT64_MIN);
    assert_set_fails("any_number", "x", E_INVAL, "any_number = x: must be a whole number");
    assert_int_equal(set("temperature", "1.5e-1"), 0);
    assert_true(s.temperature == 0.15);
    static const char *const bad_floats[] = {"nan", "inf",   "-0.1", "2.1", "0x1",
                                             "",    "1e999", " 1",   "1,5"};
    for (size_t i = 0; i < sizeof bad_floats / sizeof *bad_floats; i++)
        assert_int_equal(set("temperature", bad_floats[i]), E_INVAL);
    assert_set_fails("temperature", "hot", E_INVAL,
                     "temperature = hot: must be a number from 0 to 2");
}

static void sizes(void **state) {
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"1048576", 1 << 20}, {"1M", 1 << 20},   {"1MiB", 1 << 20},    {"2048k", 2 << 20},
                {"2 GiB", 2ll << 30}, {"3g", 3ll << 30}, {"1024KiB", 1 << 20}, {"1T", 1ll << 40}};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(set("kv_cache_bytes", good[i].text), 0);
        assert_true(s.cache == good[i].bytes);
    }
    static const char *const bad[] = {"1023K",
                                      "-1M",
                                      "",
                                      "M",
                                      "1MB",
                                      "1Mi",
                                      "1.5G",
                                      "1X",
                                      "1MiBs",
                                      "99999999999T",
                                      "99999999999999999999"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(set("kv_cache_bytes", bad[i]), E_INVAL);
    assert_set_fails(
        "kv_cache_bytes", "1MB", E_INVAL,
        "kv_cache_bytes = 1MB: must be a size such as 64MiB or 1048576, at least 1MiB");
}

static void switches_choices_and_strings(void **state) {
    static const char *const on[] = {"on", "true", "yes", "1", "ON"}, *const off[] = {"off",
                                                                                      "false", "no",
                                                                                      "0", "Off"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(set("deterministic", on[i]), 0);
        assert_true(s.deterministic);
        assert_int_equal(set("deterministic", off[i]), 0);
        assert_false(s.deterministic);
    }
    assert_set_fails("deterministic", "maybe", E_INVAL, "deterministic = maybe: must be on or off");
    assert_int_equal(set("dtype", "bf16"), 0);
    assert_int_equal(s.dtype, 2);
    assert_set_fails("dtype", "f3", E_INVAL, "dtype = f3: must be one of auto, f32 or bf16");
    assert_int_equal(set("dtype", "auto|f32"), E_INVAL);
    assert_int_equal(set("dtype", ""), E_INVAL);
    assert_int_equal(set("host", "a; b = \"c\""), 0);
    assert_string_equal(s.host, "a; b = \"c\"");
    assert_set_fails("access_token", "hush\n", E_INVAL,
                     "access_token: control characters are not allowed");
}

static void unknown_names_are_told_the_nearest(void **state) {
    assert_set_fails("prot", "1", E_NOTFOUND, "unknown setting 'prot'; did you mean 'port'?");
    assert_set_fails("kv-cache-byte", "1", E_NOTFOUND,
                     "unknown setting 'kv-cache-byte'; did you mean 'kv_cache_bytes'?");
    assert_set_fails("temprature", "1", E_NOTFOUND,
                     "unknown setting 'temprature'; did you mean 'temperature'?");
    assert_set_fails("xyz", "1", E_NOTFOUND, "unknown setting 'xyz'");
    char endless[300];
    memset(endless, 'p', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_int_equal(set(endless, "1"), E_NOTFOUND);
    assert_int_equal(set("kv-cache-bytes", "1M"), 0);
    assert_ptr_equal(config_find(&table, "kv-cache_bytes"), &keys[4]);
    assert_null(config_find(&table, "kv_cache"));
}

// --- the file ---

static int load(const char *text, size_t len) {
    FILE *f = fopen(path, "w");
    fwrite(text, 1, len, f);
    fclose(f);
    memset(&err, 0, sizeof err);
    return config_load(&table, &s, path, &err);
}

#define LOAD(text) load(text, sizeof(text) - 1)

static void assert_load_fails(const char *text, size_t len, int code, const char *after_path) {
    assert_int_equal(load(text, len), code);
    assert_memory_equal(err.text, path, strlen(path));
    assert_string_equal(err.text + strlen(path), after_path);
}

#define LOAD_FAILS(text, code, after_path)                                                         \
    assert_load_fails(text, sizeof(text) - 1, code, after_path)

static void a_file_sets_its_keys(void **state) {
    assert_int_equal(
        LOAD("\xef\xbb\xbf; comment\n# comment\n\n[server]\nport = 81 ; inline\n  "
             "host=h;x\r\n[engine]\n"
             "kv-cache-bytes: 2M\n\t deterministic = on\n[server]\naccess_token =\nany_number = 5"),
        0);
    assert_int_equal(s.port, 81);
    assert_string_equal(s.host, "h;x"); // no blank before it, no comment
    assert_true(s.cache == 2 << 20 && s.deterministic && s.any == 5);
    assert_string_equal(s.token, "");
    assert_int_equal(LOAD(""), 0);
}

static void faults_are_named_by_line(void **state) {
    LOAD_FAILS("[server]\nport = 81\n\nprot = 82\n", E_NOTFOUND,
               ":4: unknown setting 'prot'; did you mean 'port'?");
    LOAD_FAILS("[server]\nport = 0\n", E_INVAL,
               ":2: port = 0: must be a whole number from 1 to 65535");
    LOAD_FAILS("[server]\nport = 81\nport = 82\n", E_FORMAT, ":3: 'port' is set twice");
    LOAD_FAILS("[engine]\nkv_cache_bytes=1M\n[server]\n[engine]\nkv-cache-bytes=1M\n", E_FORMAT,
               ":5: 'kv_cache_bytes' is set twice");
    LOAD_FAILS("[server]\ndtype = f32\n", E_FORMAT,
               ":2: 'dtype' belongs in section [engine], not [server]");
    LOAD_FAILS("[sever]\nport = 81\n", E_FORMAT,
               ":2: unknown section [sever]; the sections are [server] [engine]");
    LOAD_FAILS("port = 81\n", E_FORMAT,
               ":1: key before the first section; the sections are [server] [engine]");
    LOAD_FAILS("[server]\nport\n", E_FORMAT, ":2: expected '[section]' or 'key = value'");
    LOAD_FAILS("[server\nport = 81\n", E_FORMAT, ":1: expected '[section]' or 'key = value'");
    LOAD_FAILS("[server]\nhost = \"h\"\n", E_FORMAT, ":2: write values without quotes");
    LOAD_FAILS("[server]\nport = 81\0\n", E_FORMAT, ": not a text file: it contains a NUL byte");
    LOAD_FAILS("[server]\nport = 80\n  and more\n", E_FORMAT,
               ":3: expected '[section]' or 'key = value'"); // no folding
}

static void nothing_after_the_first_fault_is_read(void **state) {
    LOAD_FAILS("[server]\nport = 0\nany_number = 9\n[engine]\ntemperature = 9\n", E_INVAL,
               ":2: port = 0: must be a whole number from 1 to 65535");
    assert_int_equal(s.any, -1);
}

static void long_lines_are_whole_or_refused(void **state) {
    static char text[6000];
    for (int n = 150; n < 5000; n += 475) {
        int len = snprintf(text, sizeof text, "[server]\nhost = %0*d\nport = 81\n", n, 7);
        int rc = load(text, (size_t)len);
        if (n < 4000) {
            assert_int_equal(rc, 0);
            assert_int_equal(strlen(s.host), n);
        } else {
            assert_int_equal(rc, E_LIMIT);
            assert_string_equal(err.text + strlen(path), ":2: line too long");
        }
    }
}

static void a_missing_file_says_so(void **state) {
    assert_int_equal(config_load(&table, &s, "/no/such.ini", &err), E_NOTFOUND);
    assert_string_equal(err.text, "/no/such.ini: No such file or directory");
    assert_int_equal(config_load(&table, &s, "/no/such.ini", NULL), E_NOTFOUND);
    load("[server]\nport = 0\n", 18);
    assert_int_equal(config_load(&table, &s, path, NULL), E_INVAL);
}

// --- environment and arguments ---

// Counts the options taken; what was left over is in n_left.
static int n_left;

static int arguments(int argc, char **argv, int *n_consumed) {
    memset(&err, 0, sizeof err);
    *n_consumed = n_left = 0;
    for (int i = 0; i < argc; i++) {
        int rc = config_arg(&table, &s, argc, argv, &i, &err);
        if (rc < 0) return rc;
        *n_consumed += rc;
        n_left += rc == 0;
    }
    return 0;
}

#define ARGS(...)                                                                                  \
    arguments(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *), (char *[]){__VA_ARGS__}, &n)

static void arguments_in_every_form(void **state) {
    int n;
    assert_int_equal(ARGS("--port", "81", "--host=h=x", "--kv-cache-bytes", "2M",
                          "--kv_cache_bytes=3M", "--deterministic", "--any-number", "-5"),
                     0);
    assert_int_equal(n, 6);
    assert_int_equal(n_left, 0);
    assert_true(s.port == 81 && s.cache == 3 << 20 && s.deterministic && s.any == -5);
    assert_string_equal(s.host, "h=x");
    assert_int_equal(ARGS("--no-deterministic"), 0);
    assert_false(s.deterministic);
    assert_int_equal(ARGS("--deterministic=yes", "--host="), 0);
    assert_true(s.deterministic);
    assert_string_equal(s.host, "");
    assert_int_equal(ARGS("--deterministic", "off"), 0); // a switch takes no separate value
    assert_int_equal(n, 1);
    assert_int_equal(n_left, 1);
    assert_true(s.deterministic);
}

// Three states: on, off and not given.
static void a_switch_may_be_unset(void **state) {
    int n;
    assert_string_equal(s.marked, "");
    assert_int_equal(ARGS("--marked"), 0);
    assert_string_equal(s.marked, "on");
    assert_int_equal(ARGS("--no-marked"), 0);
    assert_string_equal(s.marked, "off");
    assert_int_equal(ARGS("--marked=yes"), 0);
    assert_string_equal(s.marked, "on");
    assert_int_equal(set("marked", ""), 0);
    assert_string_equal(s.marked, "");
    assert_int_equal(set("marked", "perhaps"), E_INVAL);
    assert_string_equal(err.text, "marked = perhaps: must be on or off");
}

static void other_arguments_are_left_alone(void **state) {
    int n;
    assert_int_equal(ARGS("port", "-port", "--", "-", "", "--verbose", "--no-port", "--=3", "--no-",
                          "--no-no-deterministic"),
                     0);
    assert_int_equal(n, 0);
    assert_defaults();
}

static void wrong_arguments_say_why(void **state) {
    int n;
    assert_int_equal(ARGS("--port"), E_INVAL);
    assert_string_equal(err.text, "--port needs a value");
    assert_int_equal(ARGS("--port", "--host"), E_INVAL);
    assert_string_equal(err.text, "port = --host: must be a whole number from 1 to 65535");
    assert_int_equal(ARGS("--no-deterministic=on"), E_INVAL);
    assert_string_equal(err.text, "--no-deterministic takes no value");
    assert_int_equal(ARGS("--deterministic="), E_INVAL);
}

static void arguments_beat_environment_beats_file_beats_default(void **state) {
    int n;
    setenv("PARLEY_PORT", "82", 1);
    setenv("PARLEY_KV_CACHE_BYTES", "5M", 1);
    assert_int_equal(LOAD("[server]\nport = 81\nany_number = 6\n[engine]\nkv_cache_bytes = 4M\n"),
                     0);
    assert_int_equal(config_load_env(&table, &s, &err), 0);
    assert_int_equal(ARGS("--port", "83"), 0);
    assert_true(s.port == 83 && s.cache == 5 << 20 && s.any == 6 && s.temperature == 0.7);
    unsetenv("PARLEY_PORT");
    unsetenv("PARLEY_KV_CACHE_BYTES");
}

static void wrong_variables_say_why(void **state) {
    setenv("PARLEY_PORT", "x", 1);
    assert_int_equal(config_load_env(&table, &s, &err), E_INVAL);
    assert_string_equal(
        err.text,
        "environment variable PARLEY_PORT: port = x: must be a whole number from 1 to 65535");
    unsetenv("PARLEY_PORT");
    setenv("PARLEY_PROT", "81", 1); // no error: it may be another program's
    assert_int_equal(config_load_env(&table, &s, &err), 0);
    unsetenv("PARLEY_PROT");
    assert_int_equal(s.port, 8080);
}

static char sentences[512];
static void add_sentence(const char *sentence, bool is_near) {
    snprintf(sentences + strlen(sentences), sizeof sentences - strlen(sentences), "%s%s\n",
             sentence, is_near ? "" : " (far)");
}

static void unknown_variables_have_the_nearest_name(void **state) {
    setenv("PARLEY_PROT", "secret", 1);
    setenv("PARLEY_TEMPERATURES", "1", 1);
    setenv("PARLEY_WHEREABOUTS", "x", 1);
    setenv("PARLEY_PORT", "82", 1);
    setenv("PARLEY_CONFIG", "a.ini", 1);
    setenv("PARLEYPROT", "81", 1);
    config_unknown_env(&table, add_sentence);
    unsetenv("PARLEY_PROT");
    unsetenv("PARLEY_TEMPERATURES");
    unsetenv("PARLEY_WHEREABOUTS");
    unsetenv("PARLEY_PORT");
    unsetenv("PARLEY_CONFIG");
    unsetenv("PARLEYPROT");
    assert_non_null(
        strstr(sentences, "unknown environment variable PARLEY_PROT; did you mean PARLEY_PORT?\n"));
    assert_non_null(strstr(sentences, "PARLEY_TEMPERATURES; did you mean PARLEY_TEMPERATURE?\n"));
    assert_non_null(strstr(sentences, "PARLEY_WHEREABOUTS (far)\n"));
    for (const char *other = "secret\0PARLEY_PORT\n\0CONFIG\0PARLEYPROT\0"; *other;
         other += strlen(other) + 1)
        assert_null(strstr(sentences, other));
}

// --- what people see ---

static char *written_by(void (*write)(const struct config_table *, const void *, FILE *)) {
    static char text[20000];
    FILE *f = fopen(path, "w+");
    write(&table, &s, f);
    rewind(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static void help(const struct config_table *t, const void *settings, FILE *out) {
    config_help(t, out);
}

static void help_is_laid_out_for_80_columns(void **state) {
    assert_string_equal(
        written_by(help),
        "Server:\n"
        "  --host ADDRESS            Address to listen on. Any but a loopback address\n"
        "                            needs a token, for anyone who reaches the port may\n"
        "                            talk to the model. (default 127.0.0.1)\n"
        "  --port N                  Port to listen on. (from 1 to 65535; default 8080)\n"
        "  --access-token TEXT       What a client must know.\n"
        "  --any-number N            Without a range. (default -1)\n"
        "  --[no-]marked             Not given differs from off.\n"
        "\n"
        "Engine:\n"
        "  --dtype NAME              Format of the weights. (auto, f32 or bf16; default\n"
        "                            auto)\n"
        "  --kv-cache-bytes SIZE     Memory for keys and values. (at least 1MiB; default\n"
        "                            64MiB)\n"
        "  --temperature X           Zero is greedy. (from 0 to 2; default 0.7)\n"
        "  --[no-]deterministic      The same bits whatever else is in the batch.\n"
        "                            (default off)\n");
}

static void help_plain(const struct config_table *t, const void *settings, FILE *out) {
    static const struct config_key key = {"",   "json", CONFIG_BOOL,   0, 0, 0,
                                          NULL, "off",  "Print JSON.", 0};
    static const struct config_table plain = {&key, 1};
    config_help(&plain, out);
}

static void help_of_keys_without_a_section_has_a_heading(void **state) {
    assert_string_equal(written_by(help_plain),
                        "Options:\n"
                        "  --[no-]json               Print JSON. (default off)\n");
}

static void the_written_file_has_every_key_and_reads_back(void **state) {
    set("host", "h;x y");
    set("port", "81");
    set("dtype", "bf16");
    set("kv_cache_bytes", "1536K");
    set("temperature", "0.3");
    set("deterministic", "on");
    const char *text = written_by(config_write_ini);
    assert_non_null(strstr(text, "\n[server]\n\n; Address to listen on. Any"));
    assert_non_null(
        strstr(text, "\n; Port to listen on. (from 1 to 65535; default 8080)\nport = 81\n"));
    assert_non_null(strstr(text, "\n[engine]\n"));
    assert_non_null(strstr(text, "\nkv_cache_bytes = 1536KiB\n"));
    config_release(&table, &s);
    assert_int_equal(config_init(&table, &s, &err), 0);
    assert_int_equal(config_load(&table, &s, path, &err), 0);
    assert_string_equal(s.host, "h;x y");
    assert_true(s.port == 81 && s.dtype == 2 && s.cache == 1536 << 10 && s.temperature == 0.3 &&
                s.deterministic);
}

static void what_a_file_cannot_hold_is_not_written_wrongly(void **state) {
    static const char *const values[] = {"a ;b", ";a", " a", "a ", "\"a\""};
    for (int i = 0; i < 5; i++) {
        set("host", values[i]);
        const char *text = written_by(config_write_ini);
        assert_non_null(
            strstr(text, "; (an ini file cannot represent the value: use --host)\n;host =\n"));
        set("host", "kept");
        assert_int_equal(config_load(&table, &s, path, &err), 0);
        assert_string_equal(s.host, "kept");
    }
}

static void write_json(struct json_writer *w) {
    json_open(w, NULL, '{');
    config_put_sections(&table, &s, w);
    json_close(w, '}');
}

static void secrets_stay_secret(void **state) {
    struct buf json;
    struct json_writer w;
    set("access_token", "hush");
    const char *text = written_by(config_write_ini);
    assert_null(strstr(text, "hush"));
    assert_non_null(strstr(text, ";access_token =\n"));
    buf_init(&json, 10000);
    for (int i = 0; i < 2; i++) {
        buf_reset(&json);
        json_writer_init(&w, &json);
        set("access_token", i ? "" : "hush");
        write_json(&w);
        assert_null(strstr(buf_z(&json), "hush"));
        assert_non_null(strstr(buf_z(&json), i ? "\"access_token\":{\"set\":false}"
                                               : "\"access_token\":{\"set\":true}"));
    }
    buf_release(&json);
}

static void json_has_every_key(void **state) {
    struct buf json;
    struct json_writer w;
    buf_init(&json, 10000);
    json_writer_init(&w, &json);
    write_json(&w);
    assert_string_equal(buf_z(&json), "{\"server\":{\"host\":\"127.0.0.1\",\"port\":8080,\"access_"
                                      "token\":{\"set\":false},\"any_number\":-1,\"marked\":\"\"},"
                                      "\"engine\":{\"dtype\":\"auto\",\"kv_cache_bytes\":67108864,"
                                      "\"temperature\":0.7,\"deterministic\":false}}");
    buf_release(&json);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(a_default_out_of_range_is_an_error),
        TEST(numbers),
        TEST(sizes),
        TEST(switches_choices_and_strings),
        TEST(unknown_names_are_told_the_nearest),
        TEST(a_file_sets_its_keys),
        TEST(faults_are_named_by_line),
        TEST(nothing_after_the_first_fault_is_read),
        TEST(long_lines_are_whole_or_refused),
        TEST(a_missing_file_says_so),
        TEST(arguments_in_every_form),
        TEST(a_switch_may_be_unset),
        TEST(other_arguments_are_left_alone),
        TEST(wrong_arguments_say_why),
        TEST(arguments_beat_environment_beats_file_beats_default),
        TEST(wrong_variables_say_why),
        TEST(unknown_variables_have_the_nearest_name),
        TEST(help_is_laid_out_for_80_columns),
        TEST(help_of_keys_without_a_section_has_a_heading),
        TEST(the_written_file_has_every_key_and_reads_back),
        TEST(what_a_file_cannot_hold_is_not_written_wrongly),
        TEST(secrets_stay_secret),
        TEST(json_has_every_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
