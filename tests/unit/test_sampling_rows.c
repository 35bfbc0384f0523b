// A sampling parameter is one row: everything that names parameters has each of them, with the
// row's own words.
#include "base/json.h"
#include "engine/engine.h"
#include "tests/cmocka.h"
#include "ws/parley/protocol.h"
#include "ws/serve_config.h"
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct sampling_row *row(int i) {
    return &sampling_rows[i];
}

static bool is_list(const struct sampling_row *r) {
    return r->type == SAMPLING_BIASES || r->type == SAMPLING_WORDS;
}

static void rows_are_whole(void **state) {
    assert_in_range(n_sampling_rows, 1, 64);
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct sampling_row *r = row(i);
        assert_ptr_equal(sampling_row_find(r->name), r);
        assert_true(r->offset < sizeof(struct sampling_params));
        assert_true(isupper(r->label[0]) && strlen(r->help) > 10);
        assert_int_equal(r->help[strlen(r->help) - 1], '.');
        if (r->type == SAMPLING_FLOAT || r->type == SAMPLING_INT)
            assert_true(r->min <= r->fallback && r->fallback <= r->max);
        for (int k = 0; k < i; k++)
            assert_true(row(k)->offset != r->offset || r->type == SAMPLING_GRAMMAR);
    }
    assert_null(sampling_row_find("temprature"));
}

// Each refusal names its parameter; a value at the edge of the range is taken and comes back.
static void wire_has_each_row(void **state) {
    for (int i = 0; i < n_sampling_rows; i++) {
        struct turn_sampling s;
        struct err err = {0};
        char json[128];
        turn_sampling_init(&s);
        bool grammar = row(i)->type == SAMPLING_GRAMMAR;
        snprintf(json, sizeof json, "{\"%s\":%s}", row(i)->name, grammar ? "7" : "{\"x\":[]}");
        assert_int_equal(sampling_json_apply(&s, json, 100, &err), E_INVAL);
        if (!strstr(err.text, row(i)->name))
            fail_msg("'%s' does not name %s", err.text, row(i)->name);
        assert_int_equal(s.set, 0);
        char *all = sampling_json_text(&s, SAMPLING_EVERY_KEY, NULL);
        snprintf(json, sizeof json, "\"%s\":", row(i)->name);
        if (row(i)->type != SAMPLING_SEED && !grammar) assert_non_null(strstr(all, json));
        free(all);
        if (grammar || row(i)->type == SAMPLING_BOOL || is_list(row(i)) ||
            row(i)->type == SAMPLING_SEED)
            continue;
        snprintf(json, sizeof json, "{\"%s\":%.17g}", row(i)->name, row(i)->max);
        assert_int_equal(sampling_json_apply(&s, json, 100, NULL), 0);
        assert_int_equal(s.set, (uint64_t)1 << i);
        snprintf(json, sizeof json, "{\"%s\":%.17g}", row(i)->name, row(i)->max + 1);
        assert_int_equal(sampling_json_apply(&s, json, 100, NULL), E_INVAL);
    }
}

static void ini_file_has_each_row(void **state) {
    const struct config_table *table = serve_config_table();
    assert_ptr_equal(table, serve_config_table());
    for (int i = 0; i < n_sampling_rows; i++) {
        const struct config_key *key = config_find(table, row(i)->name);
        assert_int_equal(key != NULL, (row(i)->places & SAMPLING_SERVER) != 0);
        if (!key) continue;
        assert_string_equal(key->section, "sampling");
        assert_string_equal(key->help, row(i)->help);
    }
}

// A setting reaches the parameters, and only its own.
static void each_setting_arrives(void **state) {
    struct serve_config c;
    struct err err = {0};
    assert_int_equal(serve_config_init(&c, &err), 0);
    for (int i = 0; i < n_sampling_rows; i++) {
        if (!(row(i)->places & SAMPLING_SERVER)) continue;
        struct sampling_params before, after;
        struct turn_sampling expected;
        char text[32];
        sampling_params_init(&before);
        after = before;
        expected = (struct turn_sampling){.params = before};
        snprintf(text, sizeof text, "%g", row(i)->type == SAMPLING_INT ? 7 : 0.5);
        assert_int_equal(config_set(serve_config_table(), &c, row(i)->name, text, &err), 0);
        assert_int_equal(serve_config_sampling(&c, &after, &err), 0);
        assert_int_equal(sampling_text_apply(&expected, row(i), text, &err), 0);
        assert_memory_equal(&after, &expected.params, sizeof after);
        assert_memory_not_equal(&after, &before, sizeof after);
        assert_int_equal(config_set(serve_config_table(), &c, row(i)->name, "x", &err), 0);
        assert_int_equal(serve_config_sampling(&c, &after, &err), E_INVAL);
        assert_non_null(strstr(err.text, row(i)->name));
        assert_int_equal(config_set(serve_config_table(), &c, row(i)->name, "", &err), 0);
    }
    config_release(serve_config_table(), &c);
}

static const cJSON *find(const cJSON *list, const char *name) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (!strcmp(cJSON_GetObjectItem(item, "name")->valuestring, name)) return item;
    }
    return NULL;
}

static const char *text_of(const cJSON *item, const char *key) {
    const cJSON *value = cJSON_GetObjectItem(item, key);
    return value ? value->valuestring : NULL;
}

static void hello_has_each_row(void **state) {
    struct engine_info info = {.model_name = "m", .family = "llama", .backend = "cpu"};
    struct served_model served = {.name = "m", .info = &info};
    struct protocol_hello hello = {.models = &served, .server_name = ""};
    struct buf out;
    sampling_params_init(&served.sampling);
    served.sampling.temperature = 0.7f;
    buf_init(&out, 1 << 20);
    protocol_write_hello(&out, &hello, "");
    cJSON *frame = json_parse(out.data, out.len, &json_limits_message, NULL);
    assert_non_null(frame);
    const cJSON *rows = cJSON_GetObjectItem(frame, "sampling_parameters");
    const cJSON *model = cJSON_GetArrayItem(cJSON_GetObjectItem(frame, "models"), 0);
    const cJSON *defaults = cJSON_GetObjectItem(model, "sampling");
    assert_int_equal(cJSON_GetArraySize(rows), n_sampling_rows);
    assert_true(cJSON_GetObjectItem(defaults, "temperature")->valuedouble == 0.7);
    for (int i = 0; i < n_sampling_rows; i++) {
        const cJSON *r = find(rows, row(i)->name);
        assert_non_null(r);
        assert_string_equal(text_of(r, "label"), row(i)->label);
        assert_string_equal(text_of(r, "help"), row(i)->help);
        assert_int_equal(cJSON_IsTrue(cJSON_GetObjectItem(r, "form")),
                         (row(i)->places & SAMPLING_FORM) != 0);
        assert_int_equal(cJSON_HasObjectItem(defaults, row(i)->name),
                         (row(i)->places & SAMPLING_SERVER) != 0);
    }
    cJSON_Delete(frame);
    buf_release(&out);
}

// --- text ---

static int apply(const char *name, const char *text, struct turn_sampling *s) {
    turn_sampling_init(s);
    return sampling_text_apply(s, sampling_row_find(name), text, NULL);
}

static void text_of_each_type(void **state) {
    struct turn_sampling s;
    assert_int_equal(apply("temperature", "0.7", &s), 0);
    assert_true(s.params.temperature == 0.7f);
    assert_int_equal(apply("seed", "0xffffffffffffffff", &s), 0);
    assert_true(s.params.has_seed && s.params.seed == UINT64_MAX);
    assert_int_equal(apply("seed", "18446744073709551615", &s), 0);
    assert_true(s.params.seed == UINT64_MAX);
    assert_int_equal(apply("ignore_eos", "on", &s), 0);
    assert_true(s.params.ignore_eos);
    assert_int_equal(apply("stop", "5", &s), 0);
    assert_string_equal(s.params.stop.texts, "5");
    assert_int_equal(apply("stop", "[x", &s), 0);
    assert_string_equal(s.params.stop.texts, "[x");
    assert_int_equal(apply("stop", "[\"a\",[7]]", &s), 0);
    assert_string_equal(s.params.stop.texts, "a");
    assert_int_equal(s.params.stop.ids[0], 7);
    assert_int_equal(apply("logit_bias", "{\"3\":-1}", &s), 0);
    assert_int_equal(s.params.bias[0].id, 3);
    assert_int_equal(apply("bad_words", "[[1,2]]", &s), 0);
    assert_int_equal(s.params.bad_words.ids[1], 2);
    assert_int_equal(apply("deadline_ms", "250", &s), 0);
    assert_int_equal(s.params.deadline_us, 250000);
}

static void text_that_is_refused(void **state) {
    static const char *const bad[][2] = {
        {"temperature", "x"},
        {"temperature", "nan"},
        {"temperature", ""},
        {"temperature", "0x1"},
        {"temperature", "1 "},
        {"temperature", "1e99"},
        {"top_k", "1.5"},
        {"top_k", "-1"},
        {"seed", "x"},
        {"seed", "-1"},
        {"seed", "99999999999999999999"},
        {"seed", " 1"},
        {"ignore_eos", "si"},
        {"logit_bias", "3"},
        {"bad_words", "[[-1]]"},
        {"deadline_ms", "1s"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct turn_sampling s;
        if (apply(bad[i][0], bad[i][1], &s) != E_INVAL)
            fail_msg("%s took '%s'", bad[i][0], bad[i][1]);
        assert_int_equal(s.set, 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_whole),        cmocka_unit_test(wire_has_each_row),
        cmocka_unit_test(ini_file_has_each_row), cmocka_unit_test(each_setting_arrives),
        cmocka_unit_test(hello_has_each_row),    cmocka_unit_test(text_of_each_type),
        cmocka_unit_test(text_that_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
