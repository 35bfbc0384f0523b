// The tables of columns: each row is consistent, and a new column needs one row only: schema,
// migration, insert, update, select, copy, file and check follow from it.
#include "sessions/archive/export.c"
#include "sessions/archive/import.c"
#include "sessions/archive/rules.h"
#include "sessions/store/row.h"
#include "tests/cmocka.h"

// --- our tables --------------------------------------------------------------

static void every_row_holds_together(void **state) {
    for (int i = 0; i < N_TABLES; i++) {
        const struct record_table *t = &record_tables[i];
        for (size_t k = 0; k < t->n; k++) {
            const struct column *c = &t->columns[k];
            const char *name = column_name(c);
            assert_true(c->param[0] == ':' && c->since >= 1);
            for (size_t j = 0; j < k; j++) assert_string_not_equal(name, t->columns[j].param + 1);
            // A column of a later version needs a default for existing rows.
            bool must = c->decl && strstr(c->decl, "NOT NULL");
            if (c->since > 1 && must && !strstr(c->decl, "DEFAULT"))
                fail_msg("%s.%s has no default", t->name, name);
            bool pointer = c->type >= COLUMN_TEXT;
            if (c->decl && pointer && must == ((c->flags & COLUMN_NULL) != 0))
                fail_msg("%s.%s: null or not null", t->name, name);
            assert_true((c->type == COLUMN_NAME) == (c->name_of != NULL));
            if (c->type == COLUMN_SHORT || c->type == COLUMN_WORD) assert_true(c->len > 1);
            assert_true(c->min <= column_max(c));
        }
    }
}

// --- a table of this test's own ----------------------------------------------

static const char *colour_name(int i) {
    static const char *const names[] = {"red", "green", NULL};
    return names[i];
}

struct thing {
    int64_t key, size;
    int32_t count;
    bool open;
    uint64_t seed;
    int colour;
    char reason[8], word[8];
    char *title, *note, *request, *blob;
    size_t blob_len;
    int32_t *ids;
    size_t n_ids;
    char *added; // by version 2, with one field and one row
    int64_t weight;
};
#define AT(field) .at = offsetof(struct thing, field)
static const struct column columns[] = {
    {":key", "INTEGER PRIMARY KEY", COLUMN_INT, 1, AT(key), .flags = COLUMN_FIXED, .copy = ":key"},
    {":size", "INTEGER NOT NULL", COLUMN_INT, 1, AT(size), .min = -1, .max = 100, .fallback = -1},
    {":count", "INTEGER NOT NULL", COLUMN_INT32, 1, AT(count), .max = 9},
    {":open", "INTEGER NOT NULL", COLUMN_BOOL, 1, AT(open)},
    {":seed", "INTEGER NOT NULL", COLUMN_U64, 1, AT(seed)},
    {":colour", "TEXT NOT NULL", COLUMN_NAME, 1, AT(colour), .name_of = colour_name},
    {":reason", "TEXT", COLUMN_SHORT, 1, AT(reason), .len = 8},
    {":word", "TEXT NOT NULL", COLUMN_WORD, 1, AT(word), .len = 8},
    {":title", "TEXT NOT NULL", COLUMN_TEXT, 1, AT(title), .max = 10},
    {":note", "TEXT", COLUMN_TEXT, 1, AT(note), .flags = COLUMN_NULL | COLUMN_FIXED},
    {":request", "TEXT NOT NULL", COLUMN_OBJECT, 1, AT(request), .fallback_text = "{}"},
    {":blob", "BLOB", COLUMN_BYTES, 1, AT(blob), .len = offsetof(struct thing, blob_len),
     .flags = COLUMN_NULL},
    {":ids", "BLOB NOT NULL", COLUMN_ARRAY, 1, AT(ids), .len = offsetof(struct thing, n_ids)},
    {":added", "TEXT", COLUMN_TEXT, 3, AT(added), .flags = COLUMN_NULL, .max = 5},
    {":weight", "INTEGER NOT NULL DEFAULT 7", COLUMN_INT, 3, AT(weight), .fallback = 7},
};
static const struct record_table things = {
    "things", "", columns, sizeof columns / sizeof *columns, ") STRICT", NULL, 0};

static sqlite3 *db;

static void run(const char *sql) {
    char *message = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &message) != SQLITE_OK) fail_msg("%s: %s", sql, message);
}

static void migrate(int version) {
    struct buf sql;
    buf_init(&sql, 65536);
    assert_int_equal((version == 1 ? columns_create : columns_migrate)(&things, 1, version, &sql),
                     0);
    run(buf_z(&sql));
    buf_release(&sql);
}

static sqlite3_stmt *prepare(const char *sql) {
    struct buf text;
    sqlite3_stmt *s;
    buf_init(&text, 65536);
    assert_int_equal(columns_expand(&things, 1, sql, &text), 0);
    if (sqlite3_prepare_v2(db, buf_z(&text), -1, &s, NULL) != SQLITE_OK)
        fail_msg("%s: %s", buf_z(&text), sqlite3_errmsg(db));
    buf_release(&text);
    return s;
}

static void put(const char *sql, const struct thing *t) {
    sqlite3_stmt *s = prepare(sql);
    row_bind(s, &things, t);
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    sqlite3_finalize(s);
}

static struct thing get(int64_t key) {
    struct thing t = {0};
    sqlite3_stmt *s = prepare("SELECT {things:reads} FROM things WHERE key = :key");
    row_bind_int(s, ":key", key);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(row_read(s, &things, &t, false), 0);
    sqlite3_finalize(s);
    return t;
}

static struct buf file_of(const struct thing *t) {
    struct buf out;
    struct json_writer w;
    buf_init(&out, 65536);
    json_writer_init(&w, &out);
    write_record(&w, NULL, &things, t, NULL);
    assert_int_equal(out.error, 0);
    return out;
}

static int read_file_of(struct thing *t, const char *json, struct err *err) {
    cJSON *tree = json_parse(json, strlen(json), &json_limits_file, err);
    assert_non_null(tree);
    struct reader r = {.at = tree, .raw = json, .where = "thing", .err = err};
    int rc = read_record(&r, &things, t, NULL);
    cJSON_Delete(tree);
    return rc;
}

static void same(const struct thing *a, const struct thing *b) {
    struct buf x = file_of(a), y = file_of(b);
    assert_string_equal(buf_z(&x), buf_z(&y));
    buf_release(&x), buf_release(&y);
}

static int32_t ids[] = {3, 1, 2};
static const struct thing full = {
    .key = 5,
    .size = -1,
    .count = 9,
    .open = true,
    .seed = UINT64_MAX,
    .colour = 1,
    .reason = "eos",
    .word = "w",
    .title = (char *)"t",
    .request = (char *)"{ \"a\": 1}",
    .blob = (char *)"\0x",
    .blob_len = 2,
    .ids = ids,
    .n_ids = 3,
    .added = (char *)"new",
    .weight = 8,
};

static int open_db(void **state) {
    return sqlite3_open(":memory:", &db);
}
static int close_db(void **state) {
    return sqlite3_close(db);
}

static void a_row_is_all_that_a_column_takes(void **state) {
    struct err err = {0};
    migrate(1);
    run("INSERT INTO things VALUES (1, 0, 0, 0, 0, 'red', NULL, '', 'old', NULL, '{}', NULL, x'')");
    migrate(2);
    migrate(3);
    struct thing old = get(1);
    assert_null(old.added);
    assert_int_equal(old.weight, 7);
    put("INSERT INTO things ({things:names}) VALUES ({things:values})", &full);
    struct thing t = get(5);
    same(&t, &full);
    assert_string_equal(t.added, "new");
    // A copy in the database, and one in memory.
    sqlite3_stmt *s = prepare("INSERT INTO things ({things:names}) SELECT {things:copies} FROM "
                              "things WHERE key = 5");
    row_bind_int(s, ":key", 6);
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    sqlite3_finalize(s);
    struct thing copy = get(6), own = t;
    assert_int_equal(columns_own(&things, &own), 0);
    copy.key = 5;
    same(&copy, &full);
    same(&own, &full);
    assert_ptr_not_equal(own.added, t.added);
    // An update writes it, and leaves what is fixed.
    t.weight = 9;
    free(t.note);
    t.note = strdup("never written");
    put("UPDATE things SET {things:sets} WHERE key = :key", &t);
    struct thing updated = get(5);
    assert_int_equal(updated.weight, 9);
    assert_null(updated.note);
    // A new file has the column, an older one does not.
    struct buf file = file_of(&full);
    assert_non_null(strstr(buf_z(&file), "\"added\":\"new\",\"weight\":8}"));
    struct thing read = {0};
    assert_int_equal(read_file_of(&read, buf_z(&file), &err), 0);
    same(&read, &full);
    char *at = strstr(file.data, ",\"added\"");
    strcpy(at, "}");
    struct thing before = {0};
    assert_int_equal(read_file_of(&before, buf_z(&file), &err), 0);
    assert_null(before.added);
    assert_int_equal(before.weight, 7);
    buf_release(&file);
    struct thing *all[] = {&old, &t, &copy, &own, &updated, &read, &before};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) columns_release(&things, all[i]);
    assert_null(own.added);
}

static void what_breaks_a_rule_is_named_and_repaired(void **state) {
    static const struct {
        const char *find, *put, *words;
    } harm[] = {{"\"size\":-1", "\"size\":-2", "thing: 'size' must be"},
                {"\"count\":9", "\"count\":10", "thing: 'count' must be"},
                {"\"colour\":\"green\"", "\"colour\":\"blue\"", "'colour' must be red, green"},
                {"\"reason\":\"eos\"", "\"reason\":\"eight___\"", "'reason' has more than 7"},
                {"\"title\":\"t\",", "", "'title' is missing"},
                {"\"weight\":8", "\"weight\":-8", "'weight' must be"}};
    struct buf file = file_of(&full);
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++) {
        struct err err = {0};
        struct thing t = {0};
        struct buf bad;
        const char *at = strstr(buf_z(&file), harm[i].find);
        assert_non_null(at);
        buf_init(&bad, 65536);
        buf_add(&bad, file.data, (size_t)(at - file.data));
        buf_addz(&bad, harm[i].put);
        buf_addz(&bad, at + strlen(harm[i].find));
        assert_int_equal(read_file_of(&t, buf_z(&bad), &err), E_FORMAT);
        if (!strstr(err.text, harm[i].words)) fail_msg("%s", err.text);
        buf_release(&bad);
        columns_release(&things, &t);
    }
    buf_release(&file);
    struct err err = {0};
    bool failed = false;
    struct thing t = full;
    assert_int_equal(columns_own(&things, &t), 0);
    assert_int_equal(rules_check("x.", &things, &t, &err), 0);
    t.weight = -3;
    assert_int_equal(rules_check("x.", &things, &t, &err), E_CORRUPT);
    assert_non_null(strstr(err.text, "x.weight is -3"));
    free(t.added);
    t.added = strdup("longer than five");
    t.size = 101;
    rules_repair(&things, &t, &failed);
    assert_false(failed);
    assert_int_equal(rules_check("x.", &things, &t, &err), 0);
    assert_null(t.added);
    assert_int_equal(t.weight, 7);
    assert_int_equal(t.size, -1);
    columns_release(&things, &t);
}

// A value that no record can hold.
static void damage_is_found_or_left_out(void **state) {
    migrate(1);
    migrate(3);
    run("INSERT INTO things VALUES (1, 0, 99, 0, 0, 'blue', NULL, '', 'old', NULL, '{}', NULL, "
        "x'0102030405', NULL, 1)");
    sqlite3_stmt *s = prepare("SELECT {things:reads} FROM things");
    struct thing t = {0};
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    assert_int_equal(row_read(s, &things, &t, false), E_CORRUPT);
    columns_release(&things, &t);
    assert_int_equal(row_read(s, &things, &t, true), 0);
    assert_int_equal(t.count, 0);
    assert_int_equal(t.n_ids, 1);
    columns_release(&things, &t);
    sqlite3_finalize(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_holds_together),
        cmocka_unit_test_setup_teardown(a_row_is_all_that_a_column_takes, open_db, close_db),
        cmocka_unit_test(what_breaks_a_rule_is_named_and_repaired),
        cmocka_unit_test_setup_teardown(damage_is_found_or_left_out, open_db, close_db),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
