// The index of words by owner: a search finds its owner's words alone, and reads no more of the file
// for a word that others use than for one that is not there.
#include "sessions/store/db.h"
#include "tests/cmocka.h"
#include "tests/unit/new_session.h"
#include "tests/unit/tmp_dir.h"

#define MANY 3000

static struct tmp_dir folder;
static struct store_db db;
static int64_t next_key;

static void add(const char *owner, const char *title) {
    char id[32];
    struct err err = {0};
    struct session_save save = new_session(id, ++next_key, owner, title);
    if (store_write_save(&db, &save, &err) < 0) fail_msg("%s", err.text);
}

static int set_up(void **state) {
    char path[300];
    struct err err = {0};
    tmp_dir_open(&folder);
    snprintf(path, sizeof path, "%s/words.db", folder.path);
    next_key = 0;
    if (store_db_open(&db, path, &err) < 0) fail_msg("%s", err.text);
    return 0;
}

static int tear_down(void **state) {
    store_db_close(&db, true);
    tmp_dir_close(&folder);
    return 0;
}

static size_t found(const char *owner, const char *query) {
    struct err err = {0};
    struct store_list l = {.owner = (char *)owner, .query = (char *)query, .limit = 200};
    if (store_read_list(&db, &l, &err) < 0) fail_msg("%s", err.text);
    size_t n = l.n_rows;
    store_list_release(&l);
    return n;
}

// The rows' keys and the cursor of a search that is read in slices, or at once; returns how many
// slices there were.
static int search(const char *query, bool sliced, struct store_list *out) {
    struct err err = {0};
    int n = 1, rc;
    *out = (struct store_list){
        .owner = (char *)"a", .query = (char *)query, .limit = 200, .sliced = sliced};
    while ((rc = store_read_list(&db, out, &err)) == 1) n++;
    if (rc < 0) fail_msg("%s", err.text);
    assert_null(out->search);
    return n;
}

static void a_search_in_slices_finds_the_same(void **state) {
    static const struct {
        const char *query;
        int slices;
    } cases[] = {{"zebra", 1},
                 {"zebra common", 3},
                 {"common zebra wor", 4},
                 {"zebra odd common", 4},
                 {"quagga zebra w", 1},
                 {"even odd zebra", 2},
                 {"", 1},
                 {"...", 1}};
    store_db_exec(&db, "BEGIN", NULL);
    for (int i = 0; i < 10000; i++) add("a", i % 2 ? "zebra common words odd" : "zebra words even");
    for (int i = 0; i < 100; i++) add("b", "zebra common words odd");
    assert_int_equal(store_db_exec(&db, "COMMIT", NULL), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct store_list whole, parts;
        search(cases[i].query, false, &whole);
        assert_int_equal(search(cases[i].query, true, &parts), cases[i].slices);
        assert_int_equal(parts.n_rows, whole.n_rows);
        assert_string_equal(parts.next, whole.next);
        for (size_t k = 0; k < whole.n_rows; k++) {
            assert_int_equal(parts.keys[k], whole.keys[k]);
            assert_string_equal(parts.rows[k].owner, "a");
        }
        store_list_release(&whole), store_list_release(&parts);
    }
}

// Pages that SQLite looked at, whether they were in memory or not.
static int pages_for(const char *owner, const char *query) {
    int hits = 0, misses = 0, high;
    found(owner, query); // once: the schema is read
    sqlite3_db_status(db.sql, SQLITE_DBSTATUS_CACHE_HIT, &hits, &high, 1);
    sqlite3_db_status(db.sql, SQLITE_DBSTATUS_CACHE_MISS, &misses, &high, 1);
    found(owner, query);
    sqlite3_db_status(db.sql, SQLITE_DBSTATUS_CACHE_HIT, &hits, &high, 1);
    sqlite3_db_status(db.sql, SQLITE_DBSTATUS_CACHE_MISS, &misses, &high, 1);
    return hits + misses;
}

static void a_search_costs_what_its_owner_has(void **state) {
    static const char *const used[] = {"zebra", "zeb", "z", "zebra common words",
                                       "\"zebra-common\""};
    store_db_exec(&db, "BEGIN", NULL);
    for (int i = 0; i < 5; i++) add("b", "mine alone");
    for (int i = 0; i < MANY; i++) add("a", "zebra common words");
    for (int i = 0; i < 5; i++) add("b", "mine alone");
    assert_int_equal(store_db_exec(&db, "COMMIT", NULL), 0);
    assert_int_equal(found("a", "zebra"), 200);
    assert_int_equal(found("b", "mine"), 10);
    int absent = pages_for("b", "quagga"), own = pages_for("a", "zebra");
    for (size_t i = 0; i < sizeof used / sizeof *used; i++) {
        int cost = pages_for("b", used[i]);
        assert_int_equal(found("b", used[i]), 0);
        if (cost > 2 * absent || 10 * cost > own)
            fail_msg("'%s' reads %d pages, an absent word %d, its owner's search %d", used[i], cost,
                     absent, own);
    }
}

// Names that begin alike, that need quotes, that are long: each has its own words.
static void owners_have_words_of_their_own(void **state) {
    char long_name[1000];
    memset(long_name, 'n', sizeof long_name - 1), long_name[sizeof long_name - 1] = '\0';
    const char *const owners[] = {"a", "ab", "\"a\" OR 'b'", "ä", "a*", "", long_name};
    size_t n = sizeof owners / sizeof *owners;
    for (size_t i = 0; i < n; i++) {
        char title[100];
        snprintf(title, sizeof title, "Crème brûlée number%zu foo-bar", i);
        add(owners[i], title);
    }
    for (size_t i = 0; i < n; i++) {
        char own[32], other[32];
        snprintf(own, sizeof own, "number%zu", i);
        snprintf(other, sizeof other, "number%zu", (i + 1) % n);
        assert_int_equal(found(owners[i], own), 1);
        assert_int_equal(found(owners[i], other), 0);
        assert_int_equal(found(owners[i], "number"), 1);
        assert_int_equal(found(owners[i], "number creme"), 0); // the last word alone is a prefix
        assert_int_equal(found(owners[i], "creme foo-bar brul"), 1);
        assert_int_equal(found(owners[i], "bar-foo"), 0);
        assert_int_equal(found(owners[i], "\"* OR ^:"), 0); // words, no operators
    }
    assert_int_equal(found(NULL, "number"), n); // tools look in all parts
    assert_int_equal(found(NULL, "number3"), 1);
}

static void words_longer_than_a_term_do_no_harm(void **state) {
    char *words = malloc(100001);
    memset(words, 'x', 100000), words[100000] = '\0';
    add("a", words);
    assert_int_equal(found("a", "xxx"), 1);
    words[60000] = '\0';
    assert_int_equal(found("a", words), 1); // as far as terms are compared
    assert_int_equal(found("b", "xxx"), 0);
    free(words);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_search_in_slices_finds_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_search_costs_what_its_owner_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owners_have_words_of_their_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(words_longer_than_a_term_do_no_harm, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
