// The index of words by owner: a search finds its owner's words alone, and reads no more of the file
// for a word that others use than for one that is not there.
#include "sessions/store/read.h"
#include "sessions/store/search.h"
#include "sessions/store/tidy.h"
#include "sessions/store/words.h"
#include "sessions/store/write.h"
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

static void place(const char *query, char *out, size_t size, bool *old) {
    struct err err = {0};
    struct stored_place p = {0};
    *out = '\0';
    assert_int_equal(store_words_have_old(&db, old, &err), 0);
    if (store_search_place(&db, query, "a", -1, &p, &err) < 0) fail_msg("%s", err.text);
    snprintf(out, size, "%s", p.text ? p.text : "");
    for (char *c = out; *c; c++) // the marks
        *c = *c == 1 ? '<' : *c == 2 ? '>' : *c;
    free(p.text);
}

// A run of a script without spaces is found by any part of it, and marked there.
static const struct unspaced_case {
    const char *title, *query;
    const char *marked; // NULL: not found; else as found, marks as < and >
    bool begins;        // what older rows find, too: what a space or a mark of Thai precedes
} unspaced_cases[] = {
    {"我在北京大学学习物理", "北京大学", "我在<北京大学>学习物理", false},
    {"我在北京大学学习物理", "物理", "我在北京大学学习<物理>", false},
    {"我在北京大学学习物理", "我在", "<我在>北京大学学习物理", true},
    {"我在北京大学学习物理", "理", "我在北京大学学习物<理>", false},
    {"我在北京大学学习物理", "京", "我在北<京>大学学习物理", false},
    {"我在北京大学学习物理", "大北", NULL, false},
    {"我在北京大学学习物理", "北学", NULL, false},
    {"我在北京大学学习物理", "学 京 tea", NULL, false},
    {"我在北京大学学习物理", "物理\u3000北京", "我在<北京>大学学习<物理>", false},
    {"東京タワーへ行きました。", "タワー", "東京<タワー>へ行きました。", false},
    {"東京タワーへ行きました。", "ました", "東京タワーへ行き<ました>。", false},
    {"วันนี้อากาศดีมาก", "อากาศ", "วันนี้<อากาศ>ดีมาก", true},
    {"วันนี้อากาศดีมาก", "อากาส", NULL, false},
    {"用Python写Web服务", "python写", "用<Python写>Web服务", false},
    {"用Python写Web服务", "web", "用Python写<Web>服务", false},
    {"用Python写Web服务", "服 用", "<用>Python写Web<服>务", false},
    {"第3章𠮷野家", "𠮷野", "第3章<𠮷野>家", false},
    {"第3章𠮷野家", "3章", "第<3章>𠮷野家", false},
    {"Crème brûlée 東", "brulee", "Crème <brûlée> 東", true},
    {"Crème brûlée 東", "rul", NULL, false},
    {"안녕하세요 여러분", "여러", "안녕하세요 <여러분>", true},
};

static void expect_case(const struct unspaced_case *c, bool old_rows) {
    char text[300];
    bool old;
    const char *marked = old_rows && !c->begins ? NULL : c->marked;
    size_t n = found("a", c->query);
    if (n != (marked != NULL)) fail_msg("'%s' in '%s': %zu", c->query, c->title, n);
    place(c->query, text, sizeof text, &old);
    assert_int_equal(old, old_rows);
    // In older rows the mark is as long as their term.
    if (marked && !old_rows) assert_string_equal(text, marked);
    if (marked && old_rows) assert_non_null(strchr(text, '<'));
}

static void any_part_of_a_run_is_found(void **state) {
    for (size_t i = 0; i < sizeof unspaced_cases / sizeof *unspaced_cases; i++) {
        tear_down(NULL), set_up(NULL);
        add("a", unspaced_cases[i].title);
        add("b", unspaced_cases[i].title);
        expect_case(&unspaced_cases[i], false);
    }
}

static void run(const char *sql) {
    struct err err = {0};
    if (store_db_exec(&db, sql, &err) < 0) fail_msg("%s: %s", sql, err.text);
}

static void reopen(void) {
    struct err err = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/words.db", folder.path);
    store_db_close(&db, true);
    if (store_db_open(&db, path, &err) < 0) fail_msg("%s", err.text);
    assert_int_equal(store_tidy_init(&db, &err), 0);
}

// What a schema 10 has: each row cut as it was then.
static void make_old(void) {
    run("UPDATE search SET words = (SELECT plain_tag(owner) FROM sessions WHERE key = "
        "-search.rowid) "
        "|| substr(words, 17)");
    run("DROP INDEX sessions_share; ALTER TABLE sessions DROP COLUMN share;"
        "ALTER TABLE sessions DROP COLUMN folder;"
        "ALTER TABLE sessions DROP COLUMN pinned; ALTER TABLE sessions DROP COLUMN archived;"
        "PRAGMA user_version = 10");
    reopen();
}

// As before at once, and any part of a run once the store has been idle; what is written or deleted
// meanwhile too, and a restart in the middle goes on.
static void rows_of_older_schemas_are_brought_up_to_date(void **state) {
    struct err err = {0};
    int steps = 0;
    for (size_t i = 0; i < sizeof unspaced_cases / sizeof *unspaced_cases; i++) {
        tear_down(NULL), set_up(NULL);
        add("a", unspaced_cases[i].title);
        make_old();
        expect_case(&unspaced_cases[i], true);
        while (db.unmerged) assert_int_equal(store_tidy_step(&db, &err), 0);
        expect_case(&unspaced_cases[i], false);
        run("INSERT INTO search (search) VALUES ('integrity-check')");
    }
    tear_down(NULL), set_up(NULL);
    for (int i = 0; i < 300; i++) add("a", i % 2 ? "我在北京大学" : "zebra");
    make_old();
    assert_true(db.unmerged);
    add("a", "去北京");
    assert_int_equal(found("a", "北京"), 1);
    assert_int_equal(found("a", "我在"), 150);
    assert_int_equal(found("a", "zebra"), 150);
    assert_int_equal(store_tidy_step(&db, &err), 0);
    assert_in_range(found("a", "北京"), 2, 100); // some
    for (int64_t key = 1; key <= 300; key += 29)
        assert_int_equal(store_write_delete(&db, key, &err), 0);
    reopen();
    for (; db.unmerged; steps++) {
        assert_true(steps < 1000);
        assert_int_equal(store_tidy_step(&db, &err), 0);
    }
    assert_int_equal(found("a", "北京"), 1 + 150 - 5);
    assert_int_equal(found("a", "zebra"), 150 - 6);
    run("INSERT INTO search (search) VALUES ('integrity-check')");
    reopen();
    assert_false(db.unmerged);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_search_in_slices_finds_the_same, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_search_costs_what_its_owner_has, set_up, tear_down),
        cmocka_unit_test_setup_teardown(owners_have_words_of_their_own, set_up, tear_down),
        cmocka_unit_test_setup_teardown(any_part_of_a_run_is_found, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_of_older_schemas_are_brought_up_to_date, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(words_longer_than_a_term_do_no_harm, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
