// The levels of the index of words: however often deleted words are merged away, SQLite still reads the index.
#include "sessions/store/levels.h"
#include "sessions/store/read.h"
#include "sessions/store/tidy.h"
#include "sessions/store/words.h"
#include "sessions/store/write.h"
#include "tests/cmocka.h"
#include "tests/unit/new_session.h"
#include "tests/unit/tmp_dir.h"

#define UNREADABLE 2001

static struct tmp_dir folder;
static struct store_db db;
static int64_t next_key, oldest;

static void ok(int rc, const struct err *err) {
    if (rc < 0) fail_msg("%s", err->text);
}

static void open_db(void) {
    struct err err = {0};
    ok(store_db_open(&db, tmp_path(&folder, "levels.db"), &err), &err);
}

// Pages of the index are small here, so that a merge takes many steps.
static int set_up(void **state) {
    struct err err = {0};
    tmp_dir_open(&folder);
    next_key = oldest = 0;
    open_db();
    ok(store_db_exec(&db,
                     "PRAGMA synchronous = OFF;"
                     "INSERT INTO search (search, rank) VALUES ('pgsz', 64)",
                     &err),
       &err);
    return 0;
}

static int tear_down(void **state) {
    store_db_close(&db, true);
    tmp_dir_close(&folder);
    return 0;
}

static int add(struct store_db *to, void *ctx, struct err *err) {
    for (int i = 0; i < *(int *)ctx; i++) {
        char id[32], title[64];
        snprintf(title, sizeof title, "zebra%" PRId64 " common word%" PRId64, next_key + 1,
                 next_key % 7);
        struct session_save save = new_session(id, ++next_key, "a", title);
        TRY(store_write_save(to, &save, err));
    }
    return 0;
}

static int remove_oldest(struct store_db *from, void *ctx, struct err *err) {
    return store_write_delete_rows(from, ++oldest, err);
}

static int remove_oldest_at_once(struct store_db *from, void *ctx, struct err *err) {
    return store_write_delete(from, ++oldest, err);
}

static void transaction(int (*act)(struct store_db *, void *, struct err *), int n) {
    struct err err = {0};
    ok(store_db_transaction(&db, act, &n, &err), &err);
}

// Its first number behind the cookie; numbers have 7 bits a byte.
static int levels(void) {
    struct err err = {0};
    char hex[13] = "";
    ok(store_db_text(&db, "SELECT hex(substr(block, 1, 6)) FROM search_data WHERE id = 10", hex,
                     sizeof hex, &err),
       &err);
    int first = 0, second = 0;
    sscanf(hex + 8, "%2x%2x", &first, &second);
    return first < 0x80 ? first : (first & 0x7f) << 7 | second;
}

static size_t found(const char *query) {
    struct err err = {0};
    struct store_list l = {.owner = (char *)"a", .query = (char *)query, .limit = 200};
    ok(store_read_list(&db, &l, &err), &err);
    size_t n = l.n_rows;
    store_list_release(&l);
    return n;
}

static void assert_index_holds_all(void) {
    char word[32];
    struct err err = {0};
    ok(store_db_exec(&db, "INSERT INTO search (search) VALUES ('integrity-check')", &err), &err);
    for (int64_t key = oldest - 2; key <= next_key; key++) {
        snprintf(word, sizeof word, "zebra%" PRId64 " w", key);
        assert_int_equal(found(word), key > oldest);
    }
}

// Words are written and deleted while the index is being merged, step by step.
static void merges_leave_few_levels(void **state) {
    struct err err = {0};
    int most = 0, n_merges = 0;
    transaction(add, 200);
    for (int i = 0; i < 2000; i++) {
        transaction(add, 1);
        transaction(remove_oldest, 0);
        n_merges += !db.merging;
        ok(store_tidy_step(&db, &err), &err);
        most = levels() > most ? levels() : most;
    }
    assert_true(n_merges > 100);
    if (most > STORE_LEVELS_MOST + 4) fail_msg("%d levels after %d merges", most, n_merges);
    assert_index_holds_all();
}

static void deletions_of_a_tool_leave_few_levels(void **state) {
    transaction(add, 300);
    for (int i = 0; i < 200; i++) {
        transaction(add, 1);
        transaction(remove_oldest_at_once, 0);
        assert_true(levels() <= STORE_LEVELS_MOST + 4);
    }
    assert_index_holds_all();
}

// As earlier versions left it: empty levels below those that have segments.
static void make_unreadable(void) {
    struct err err = {0};
    char sql[256];
    snprintf(
        sql, sizeof sql,
        "UPDATE search_data SET block = CAST(substr(block, 1, 4) || x'%02X%02X' || substr(block, "
        "6, %d) || zeroblob(%d) || substr(block, %d) AS BLOB) WHERE id = 10",
        0x80 | UNREADABLE >> 7, UNREADABLE & 0x7f, 3, 2 * (UNREADABLE - levels()), 9);
    ok(store_db_exec(&db, sql, &err), &err);
    assert_int_equal(levels(), UNREADABLE);
}

static void an_index_that_sqlite_refuses_is_mended_at_the_start(void **state) {
    struct err err = {0};
    transaction(add, 3);
    store_db_close(&db, true);
    open_db();
    make_unreadable();
    store_db_close(&db, true);
    struct store_db reader;
    ok(store_db_open_reader(&reader, tmp_path(&folder, "levels.db"), &err), &err);
    assert_true(store_db_exec(&reader, "SELECT count(*) FROM search", &err) < 0);
    assert_non_null(strstr(err.text, "damaged"));
    store_db_close(&reader, false);
    open_db();
    assert_true(levels() < 10);
    transaction(add, 3);
    transaction(remove_oldest, 0);
    assert_index_holds_all();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(merges_leave_few_levels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(deletions_of_a_tool_leave_few_levels, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_index_that_sqlite_refuses_is_mended_at_the_start, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
