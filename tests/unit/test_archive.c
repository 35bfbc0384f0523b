// A database file beside a server and without one: list, load, export, remove.
#include "base/json.h"
#include "sessions/archive/archive.h"
#include "tests/unit/sessions_fixture.h"

static int count(void *ctx, const struct session_record *row) {
    char *ids = ctx;
    strcat(strcat(ids, row->id), " ");
    return 0;
}

static void make_sessions(void) {
    fx_setup_file();
    fx_open_session(1, "one");
    fx_start_with(1, "one", "a zebra runs",
                  "{\"seed\":\"18446744073709551615\",\"top_logprobs\":2}", false, "q1");
    fx_run();
    fx_advance(1000000);
    fx_open_session(1, "two");
    fx_start(1, "two", "b");
    fx_run();
}

static void list_all(const char *query, int64_t limit, char *out) {
    struct archive *a;
    struct err err = {0};
    out[0] = '\0';
    if (archive_open(&a, fx.path, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(archive_list(a, NULL, query, NULL, limit, count, out, &err), 0);
    archive_close(a);
}

static void lists_newest_first_while_a_server_runs(void **state) {
    char ids[256];
    make_sessions();
    list_all(NULL, 0, ids);
    assert_string_equal(ids, "two one ");
    list_all(NULL, 1, ids);
    assert_string_equal(ids, "two ");
    list_all("zeb", 0, ids);
    assert_string_equal(ids, "one ");
    fx_teardown();
}

static void lists_after_the_server_has_gone(void **state) {
    char ids[256], wal[300];
    struct stat st;
    make_sessions();
    sessions_close(fx.ss);
    snprintf(wal, sizeof wal, "%s-wal", fx.path);
    assert_true(stat(wal, &st) < 0 || st.st_size == 0); // the database has the log
    list_all(NULL, 0, ids);
    assert_string_equal(ids, "two one ");
    fx_open();
    fx_teardown();
}

static void exports_everything_a_replay_needs(void **state) {
    struct archive *a;
    struct stored_session *s;
    struct buf out;
    make_sessions();
    struct seen_turn *seen = &fx_follower(1, "one")->turns[0];
    assert_int_equal(archive_open(&a, fx.path, NULL), 0);
    assert_int_equal(archive_load(a, NULL, "one", &s, NULL), 0);
    buf_init(&out, 1 << 20);
    assert_int_equal(archive_export(s, &out), 0);
    struct err err = {0};
    cJSON *o = json_parse(out.data, out.len, &json_limits_file, &err);
    if (!o) fail_msg("%s", err.text);
    const cJSON *turn = cJSON_GetArrayItem(cJSON_GetObjectItem(o, "turns"), 0);
    assert_string_equal(cJSON_GetObjectItem(turn, "seed")->valuestring, "18446744073709551615");
    assert_string_equal(cJSON_GetObjectItem(turn, "input_text")->valuestring, "a zebra runs");
    assert_string_equal(cJSON_GetObjectItem(turn, "text")->valuestring, seen->text);
    assert_string_equal(cJSON_GetObjectItem(turn, "finish_reason")->valuestring, "eos");
    assert_string_equal(cJSON_GetObjectItem(turn, "build")->valuestring, "unknown");
    const cJSON *asked = cJSON_GetObjectItem(cJSON_GetObjectItem(turn, "request"), "sampling");
    assert_int_equal(cJSON_GetObjectItem(asked, "top_logprobs")->valueint, 2);
    for (int i = 0; i < (int)seen->n_ids; i++) {
        assert_int_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(turn, "ids"), i)->valueint,
                         seen->ids[i]);
        uint32_t bits =
            (uint32_t)cJSON_GetArrayItem(cJSON_GetObjectItem(turn, "logprob_bits"), i)->valuedouble;
        float logprob;
        memcpy(&logprob, &bits, 4);
        assert_true(logprob == -(float)seen->ids[i] / 256);
        assert_int_equal(
            cJSON_GetArraySize(cJSON_GetArrayItem(cJSON_GetObjectItem(turn, "alternatives"), i)),
            4);
    }
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(o, "events")), 3);
    cJSON_Delete(o);
    buf_release(&out);
    stored_session_free(s);
    assert_int_equal(archive_load(a, NULL, "none", &s, &err), E_NOTFOUND);
    archive_close(a);
    fx_teardown();
}

static bool file_has(const char *suffix, const char *word) {
    char path[300];
    struct buf b;
    snprintf(path, sizeof path, "%s%s", fx.path, suffix);
    bool has = buf_read_file(&b, path, 1 << 28, NULL) == 0 && b.len &&
               memmem(b.data, b.len, word, strlen(word));
    buf_release(&b);
    return has;
}

static void removing_needs_the_lock_and_leaves_no_bytes(void **state) {
    struct err err = {0};
    char ids[256];
    make_sessions();
    assert_int_equal(archive_remove(fx.path, NULL, "one", &err), E_BUSY);
    assert_non_null(strstr(err.text, "in use by another Parley"));
    sessions_close(fx.ss);
    assert_true(file_has("", "zebra"));
    assert_int_equal(archive_remove(fx.path, NULL, "carol", &err), E_NOTFOUND);
    assert_int_equal(archive_remove(fx.path, NULL, "one", &err), 0);
    list_all(NULL, 0, ids);
    assert_string_equal(ids, "two ");
    list_all("zebra", 0, ids);
    assert_string_equal(ids, "");
    assert_false(file_has("", "zebra"));
    assert_false(file_has("-wal", "zebra"));
    assert_int_equal(archive_remove("/nowhere/at/all.db", NULL, "one", &err), E_NOTFOUND);
    fx_open();
    fx_teardown();
}

static void names_what_is_wrong_with_the_file(void **state) {
    struct archive *a;
    struct err err = {0};
    fx_settings("/tmp");
    assert_int_equal(archive_open(&a, "/nowhere/at/all.db", &err), E_NOTFOUND);
    assert_true(archive_open(&a, "/tmp", &err) < 0);
    assert_int_equal(archive_open(&a, "Makefile", &err), E_FORMAT);
    assert_non_null(strstr(err.text, "not an SQLite database"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_newest_first_while_a_server_runs),
        cmocka_unit_test(lists_after_the_server_has_gone),
        cmocka_unit_test(exports_everything_a_replay_needs),
        cmocka_unit_test(removing_needs_the_lock_and_leaves_no_bytes),
        cmocka_unit_test(names_what_is_wrong_with_the_file)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
