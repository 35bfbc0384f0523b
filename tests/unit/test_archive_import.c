// Importing exported sessions: the same bytes come out again, beside a server and without one; and
// hostile files.
#include "base/json.h"
#include "sessions/archive/archive.h"
#include "sessions/store/lock.h"
#include "sessions/store/write.h"
#include "tests/unit/sessions_fixture.h"
#include <fcntl.h>
#include <time.h>

#define NOW_MS 1800000000000

static char other[300]; // the database into which sessions are imported

static void setup(void) {
    fx_setup_file();
    snprintf(other, sizeof other, "%s.other", fx.path);
}

static void remove_other(void) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    char path[320];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s%s", other, suffixes[i]);
        unlink(path);
    }
}

static void teardown(void) {
    remove_other();
    fx_teardown();
}

static void sql(const char *path, const char *text) {
    sqlite3 *db;
    char *message = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK) fail_msg("%s", message);
    sqlite3_close(db);
}

static int64_t count(const char *path, const char *what) {
    char text[128];
    sqlite3 *db;
    sqlite3_stmt *s;
    snprintf(text, sizeof text, "SELECT count(*) FROM %s", what);
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        sqlite3_close(db);
        return 0;
    }
    int64_t n = 0;
    if (sqlite3_prepare_v2(db, text, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW)
        n = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return n;
}

static struct buf exported(const char *path, const char *id) {
    struct archive *a;
    struct stored_session *s;
    struct err err = {0};
    struct buf out;
    if (archive_open(&a, path, &err) < 0) fail_msg("%s", err.text);
    if (archive_load(a, NULL, id, &s, &err) < 0) fail_msg("%s", err.text);
    buf_init(&out, 1 << 26);
    assert_int_equal(archive_export(s, &out), 0);
    stored_session_free(s);
    archive_close(a);
    return out;
}

static int import_text(const char *path, const char *json, size_t len,
                       const struct archive_import *o, char id[80], struct err *err) {
    static const struct archive_import plain;
    struct stored_session *s;
    *err = (struct err){0};
    int rc = archive_read(&s, json, len, NOW_MS, err);
    if (rc < 0) return rc;
    rc = archive_import(path, s, o ? o : &plain, err);
    if (id) snprintf(id, 80, "%s", s->rec.id);
    stored_session_free(s);
    return rc;
}

// A bit of everything: raw and chat turns, a queue, a cancelled and a failed turn, alternatives, a
// client's own spelling, an eviction, a new title, an end.
static void make_rich(const char *id) {
    static const int32_t ids[] = {11, 12, 999};
    struct request r = fx_request(1, "open");
    struct ask_open o = {.id = id,
                         .sink_len = -1,
                         .system = "Be \"kind\" </b>\n\xe2\x80\xa8.",
                         .sampling = "{\"temperature\":0.1,\"stop\":[\"\\u00e9\"]}"};
    ask_open(fx.ss, &r, &o);
    fx_settle();
    fx_start_with(1, id, "first \xf0\x9f\x98\x80",
                  "{ \"seed\": \"18446744073709551615\",\n \"top_logprobs\":3, \"x\":\"\\u00e9\"}",
                  false, "q1");
    fx_run();
    fx_start_ids(1, id, ids, 3);
    fx_run();
    fx_start_text(1, id, "raw");
    fx_start_with(1, id, "queued", NULL, true, "q2");
    fx_start_with(1, id, "cancelled", NULL, true, "q3");
    fx_settle();
    fx_cancel(1, id, 4);
    fx_run();
    fake.fail_after = 3;
    fx_turn(1, id, "fails");
    fake.fail_after = 0;
    fx_advance(70000000); // evicted
    fx_update(1, id, "A title", "{\"top_k\":7}");
    fx_turn(1, id, "after it");
}

static void the_same_bytes_come_back(void **state) {
    struct err err;
    setup();
    make_rich("rich");
    fx_open_session(1, "empty");
    make_rich("closed");
    fx_close(1, "closed", false);
    // Earlier versions recorded a client's request in its own spelling.
    sql(fx.path, "UPDATE turns SET request = '{\"sampling\":{ \"seed\": \"18446744073709551615\",' "
                 "|| char(10) "
                 "|| ' \"x\":\"\\u00e9\"},\"queue\":false}' WHERE turn = 0");
    // A model's text may contain anything, a NUL too. (Its text is at least that long.)
    sql(fx.path,
        "UPDATE tokens SET text = CAST(x'77003500' || substr(text, 5) AS BLOB) WHERE turn = 0");
    static const char *const ids[] = {"rich", "empty", "closed"};
    for (int i = 0; i < 3; i++) {
        struct buf before = exported(fx.path, ids[i]);
        if (import_text(other, before.data, before.len, NULL, NULL, &err) < 0)
            fail_msg("%s: %s", ids[i], err.text);
        struct buf after = exported(other, ids[i]);
        if (before.len != after.len || memcmp(before.data, after.data, before.len) != 0)
            fail_msg("%s\n%s", before.data, after.data);
        if (i == 0) {
            assert_non_null(strstr(before.data, "\"text_base64\":\"dwA1A"));
            assert_non_null(strstr(before.data, "\"resume_us\":40"));
            assert_non_null(strstr(before.data, "{ \"seed\": \"18446744073709551615\",\n"));
        }
        buf_release(&before), buf_release(&after);
    }
    assert_int_equal(count(other, "sessions"), 3);
    assert_int_equal(count(other, "search"), count(fx.path, "search"));
    teardown();
}

// An imported session continues with the tokens that the original would have had.
static void it_goes_on_where_it_was(void **state) {
    struct seen_turn home;
    struct err err;
    setup();
    make_rich("s");
    struct buf file = exported(fx.path, "s");
    fx_start_with(1, "s", "and now", "{\"seed\":5}", false, "q9");
    fx_run();
    home = fx_follower(1, "s")->turns[7];
    assert_true(home.done);
    assert_int_equal(import_text(other, file.data, file.len, NULL, NULL, &err), 0);
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    fx_remove_files();
    assert_int_equal(rename(other, fx.path), 0);
    fx_open();
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 1);
    fx_attach(2, "s", 0); // every event of its past, numbered without a gap
    assert_true(fx_follower(2, "s")->turns[6].done);
    fx_start_with(2, "s", "and now", "{\"seed\":5}", false, "q10");
    fx_run();
    struct seen_turn *here = &fx_follower(2, "s")->turns[7];
    assert_true(here->done);
    assert_string_equal(here->text, home.text);
    assert_int_equal(here->n_ids, home.n_ids);
    assert_memory_equal(here->ids, home.ids, home.n_ids * sizeof *home.ids);
    buf_release(&file);
    teardown();
}

static void a_running_server_finds_it_when_asked(void **state) {
    struct err err;
    char fresh[80];
    struct archive_import o = {.new_id = true};
    setup();
    make_rich("s");
    struct buf file = exported(fx.path, "s");
    fx_get(1, "s");
    assert_int_equal(import_text(fx.path, file.data, file.len, NULL, NULL, &err), E_EXISTS);
    assert_string_equal(err.text, "the session 's' exists already");
    assert_int_equal(count(fx.path, "sessions"), 1);
    for (int i = 0; i < 3; i++) {
        if (import_text(fx.path, file.data, file.len, &o, fresh, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(strlen(fresh), 32);
        assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, (size_t)i * 2 + 2);
        assert_int_equal(fx_list("cancelled", 0, NULL)->n_sessions, (size_t)i + 2);
        fx_attach(2, fresh, 0);
        fx_turn(2, fresh, "go on");
        assert_true(fx_follower(2, fresh)->turns[7].done);
        char id[16]; // and the server's own sessions keep their numbers
        snprintf(id, sizeof id, "own-%d", i);
        fx_open_session(1, id);
        assert_int_equal(fx_get(1, id)->kind, ANSWER_STATE);
    }
    fx_restart();
    fx_open_session(1, "after");
    assert_int_equal(fx_get(1, "after")->kind, ANSWER_STATE);
    assert_int_equal(fx_get(1, fresh)->n_turns, 8);
    buf_release(&file);
    teardown();
}

// Watchers of the list get the added session, and nothing else.
static void its_watchers_are_told(void **state) {
    struct err err;
    char fresh[80];
    struct archive_import o = {.new_id = true};
    setup();
    make_rich("s");
    struct buf file = exported(fx.path, "s");
    for (int i = 0; i < 3; i++) {
        if (import_text(fx.path, file.data, file.len, &o, fresh, &err) < 0)
            fail_msg("%s", err.text);
        for (int ms = 0; strcmp(fx.last_changed, fresh) != 0; ms++) {
            if (ms == 60000) fail_msg("no watcher got %s", fresh);
            usleep(1000);
            sessions_poll(fx.ss);
        }
        int told = fx.n_changed;
        assert_int_equal(store_n_waiting(fx.ss->store), 0);
        if (i == 0) fx_await_look(); // no later look reports it again
        fx_settle();
        assert_int_equal(fx.n_changed, told);
    }
    // Neither sessions from the start nor this server's own changes are reported as imported.
    fx_restart();
    fx.last_changed[0] = '\0';
    fx_await_look();
    fx_turn(1, fresh, "go on");
    fx_await_look();
    fx_settle();
    assert_string_equal(fx.last_changed, fresh); // by its turn
    assert_int_equal(fx_list(NULL, 0, NULL)->n_sessions, 4);
    buf_release(&file);
    teardown();
}

static void the_owner_can_be_named(void **state) {
    struct err err;
    struct archive_import o = {.owner = "alice"};
    setup();
    fx_open_session(1, "s");
    struct buf file = exported(fx.path, "s");
    assert_int_equal(import_text(other, file.data, file.len, &o, NULL, &err), 0);
    assert_int_equal(count(other, "sessions WHERE owner = 'alice'"), 1);
    buf_release(&file);
    teardown();
}

// Exported while a turn ran and another waited: both end as after a crash.
static void turns_without_an_end_get_one(void **state) {
    struct err err;
    setup();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fake.default_tokens = 40;
    fx_start(1, "s", "two");
    fx_start_with(1, "s", "three", NULL, true, "q3");
    fx_settle();
    for (int i = 0; i < 12; i++) {
        fx_step();
        fx_advance(5000);
    }
    struct buf file = exported(fx.path, "s");
    assert_non_null(strstr(file.data, "\"finish_reason\":null"));
    if (import_text(other, file.data, file.len, NULL, NULL, &err) < 0) fail_msg("%s", err.text);
    fx_run();
    sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    fx_remove_files();
    assert_int_equal(rename(other, fx.path), 0);
    fx_open();
    fx_attach(2, "s", 0);
    struct follower *f = fx_follower(2, "s");
    assert_string_equal(f->turns[1].finish, "interrupted");
    assert_true(f->turns[1].n_ids > 0 && f->turns[1].n_ids < 40);
    assert_string_equal(f->turns[2].finish, "interrupted");
    assert_true(f->n_lost > 0); // numbers that a client of the other server may have seen
    fx_turn(2, "s", "four");
    assert_true(f->turns[3].done);
    buf_release(&file);
    teardown();
}

// --- files that want to do harm ----------------------------------------------

static struct buf with(const struct buf *file, const char *find, const char *put) {
    struct buf out;
    buf_init(&out, 1 << 26);
    const char *at = strstr(file->data, find);
    if (!at) fail_msg("no %s in %s", find, file->data);
    buf_add(&out, file->data, (size_t)(at - file->data));
    buf_addz(&out, put);
    buf_addz(&out, at + strlen(find));
    return out;
}

static const struct {
    const char *find, *put, *words;
} harm[] = {
    {"\"format\":\"parley.session\"", "\"format\":\"x\"", "Not a Parley session file"},
    {"\"version\":2", "\"version\":3", "newer Parley (version 3, this program knows 2)"},
    {"\"version\":2", "\"version\":\"1\"", "'version' must be a whole number"},
    {"\"version\":2,", "", "'version' is missing"},
    {"\"parent\":0", "\"parent\":1", "turns[1].parent is 1, no earlier turn"},
    {"\"parent\":0", "\"parent\":-1", "turns[1].log_first is"},
    {"\"parent\":0,", "", "'parent' is missing"},
    {"\"parent\":0,", "\"parent\":0,\"parent\":0,", "the key 'parent' appears twice"},
    {"\"head\":1", "\"head\":0", "session.n_tokens is"},
    {"\"head\":1", "\"head\":2", "session.head is 2, but there are 2 turns"},
    {"\"forked_from\":null", "\"forked_from\":\"a b\"",
     "session.forked_from is not 1 to 64 letters"},
    {"\"kind\":\"opened\",\"turn\":-1", "\"kind\":\"opened\",\"turn\":0", "events[0].turn is 0"},
    {"\"session\":{", "\"session\":7,\"s\":{", "'session' must be an object"},
    {"\"session\":{", "\"sess\\u0069on\":{", "'session' must be written without escapes"},
    {"\"id\":\"s\"", "\"id\":\"../s\"", "session.id is not"},
    {"\"id\":\"s\"", "\"id\":7", "session: 'id' must be a string"},
    {"\"owner\":\"local\"", "\"owner\":\"\"", "session.owner"},
    {"\"fingerprint\":\"f-1\"", "\"fingerprint\":null", "session: 'fingerprint' is missing"},
    {"\"memory_len\":256", "\"memory_len\":99999999999", "session: 'memory_len' must be"},
    {"\"memory_len\":256", "\"memory_len\":0", "session: 'memory_len' must be"},
    {"\"sink_len\":4", "\"sink_len\":256", "session.sink_len"},
    {"\"session_len\":4096", "\"session_len\":3", "session.session_len"},
    {"\"n_tokens\":", "\"n_tokens\":1", "session.n_tokens"},
    {"\"n_tokens\":", "\"n_tokens\":-1", "session: 'n_tokens' must be"},
    {"\"seq\":", "\"seq\":1", "session.seq"},
    {"\"sampling\":{}", "\"sampling\":{\"top_p\":7}", "session.sampling: 'top_p' must be"},
    {"\"sampling\":{}", "\"sampling\":[]", "session: 'sampling' must be an object"},
    {"\"sampling\":{}", "\"folder\":7,\"sampling\":{}", "session: 'folder' must be a string"},
    {"\"sampling\":{}", "\"folder\":\"a\\n\",\"sampling\":{}", "session.folder is not"},
    {"\"turns\":[{", "\"turns\":[7,{", "turns[0]: must be an object"},
    {"\"turns\":[", "\"turns\":{\"a\":[", "not valid JSON"},
    {"\"turn\":1,", "\"turn\":2,", "turns[1].turn is 2"},
    {"\"turn\":0,", "\"turn\":1,", "turns[0].turn is 1"},
    {"\"request_id\":\"\"", "\"request_id\":[]", "turns[0]: 'request_id' must be a string"},
    {"\"request\":{", "\"request\":null,\"x\":{", "turns[0]: 'request' is missing"},
    {"\"input_kind\":\"content\"", "\"input_kind\":\"soup\"", "'input_kind' must be content"},
    {"\"input_kind\":\"content\"", "\"input_kind\":\"ids\"", "turns[0].input_text does not fit"},
    {"\"input_text\":\"one\"", "\"input_text\":\"a\",\"input_text_base64\":\"YQ==\"", "exclude"},
    {"\"input_text\":\"one\"", "\"input_text_base64\":\"YQ=\"",
     "'input_text_base64' is not Base64"},
    {"\"input_ids\":[", "\"input_ids\":[-1,", "turns[0]: input_ids[0] is not a whole number"},
    {"\"input_ids\":[", "\"input_ids\":[2147483648,", "turns[0]: input_ids[0] is not"},
    {"\"input_ids\":[", "\"input_ids\":[1.5,", "turns[0]: input_ids[0] is not"},
    {"\"input_ids\":[", "\"input_ids\":[\"7\",", "turns[0]: input_ids[0] is not"},
    {"\"input_ids\":[", "\"input_ids\":[3,", "turns[0].n_input is"},
    {"\"log_first\":0", "\"log_first\":1", "turns[0].log_first is 1"},
    {"\"log_first\":0", "\"log_first\":-1", "turns[0].ids of a turn that never began"},
    {"\"log_first\":0", "\"log_first\":-2", "turns[0]: 'log_first' must be"},
    {"},\"seed\":\"", "},\"seed\":\"x", "turns[0]: 'seed' must be"},
    {"},\"seed\":\"", "},\"seed\":-7,\"y\":\"", "turns[0]: 'seed' must be"},
    {"\"logprobs\":false,\"n_", "\"logprobs\":1,\"n_",
     "turns[0]: 'logprobs' must be true or false"},
    {"\"n_alternatives\":0", "\"n_alternatives\":99", "turns[0]: 'n_alternatives' must be"},
    {"\"n_alternatives\":0", "\"n_alternatives\":2", "turns[0].alternatives are missing"},
    {"\"ids\":[", "\"alternatives\":[[]],\"ids\":[", "turns[0]: 'alternatives' has 1 values"},
    {"\"text\":\"", "\"text_base64\":\"AA=A\",\"x\":\"", "'text_base64' is not Base64"},
    {"\"text\":\"", "\"text\":null,\"x\":\"", "turns[0]: 'text' is missing"},
    {"\"text\":\"", "\"text\":\"\xff", "it is not UTF-8"},
    {"\"ids\":[", "\"ids\":[5,", "turns[0]: 'logprob_bits' has 6 values, not 7"},
    {"\"logprob_bits\":[", "\"logprob_bits\":[1,", "turns[0]: 'logprob_bits' has 7 values, not 6"},
    {"\"logprob_bits\":[", "\"logprob_bits\":[4294967296,", "'logprob_bits' has 7"},
    {"\"text_ends\":[", "\"text_ends\":[9,", "turns[0]: 'text_ends' has 7 values"},
    {"\"text_ends\":[", "\"text_ends\":[4", "turns[0].text_ends["},
    {"\"finish_reason\":\"eos\"", "\"finish_reason\":\"bored\"", "turns[0].finish_reason"},
    {"\"finish_reason\":\"eos\"", "\"finish_reason\":\"a word that is too long\"", "more than 15"},
    {"\"queue_us\":", "\"queue_us\":-", "turns[0]: 'queue_us' must be"},
    {"\"cache_source\":\"none\"", "\"cache_source\":\"moon\"", "turns[0]: 'cache_source'"},
    {"\"seq_last\":", "\"seq_last\":1", "turns[0].seq_last is not its last event's"},
    {"\"created_ms\":", "\"created_ms\":1e300,\"x\":", "session: 'created_ms' must be"},
    {"\"kind\":\"opened\"", "\"kind\":\"delta\"", "events do not begin with 'opened'"},
    {"\"kind\":\"started\"", "\"kind\":\"delta\"", "events[1].kind is 'delta'"},
    {"\"kind\":\"started\"", "\"kind\":\"nonsense\"", "events[1]: 'kind' must be opened, "},
    {"\"kind\":\"started\",\"turn\":0", "\"kind\":\"started\",\"turn\":9", "events[1].turn is 9"},
    {"\"kind\":\"started\",\"turn\":0", "\"kind\":\"started\",\"turn\":1",
     "events[2].kind: turn 0 cannot end there"},
    {"{\"seq\":1,\"n\":1,", "{\"seq\":1,\"n\":2,", "events[0].n is 2"},
    {"{\"seq\":1,\"n\":1,", "{\"seq\":2,\"n\":1,", "events[0].seq is 2 after 0"},
    {"{\"seq\":2,\"n\":1,", "{\"seq\":3,\"n\":1,", "events[1].seq is 3 after 1"},
    {"\"events\":[", "\"events\":[],\"x\":[", "events do not begin with 'opened'"},
    {"\"events\":[", "\"y\":[", "the file: 'events' is missing"},
    {"}]}", "}]", "not valid JSON"},
};

static void harm_is_named_and_changes_nothing(void **state) {
    struct err err;
    setup();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    fx_turn(1, "s", "two");
    struct buf file = exported(fx.path, "s");
    for (size_t i = 0; i < sizeof harm / sizeof *harm; i++) {
        struct buf bad = with(&file, harm[i].find, harm[i].put);
        int rc = import_text(other, bad.data, bad.len, NULL, NULL, &err);
        if (rc >= 0 || !strstr(err.text, harm[i].words))
            fail_msg("%s -> %s: %d '%s'", harm[i].find, harm[i].put, rc, err.text);
        assert_true(access(other, F_OK) < 0); // not even a database was made
        buf_release(&bad);
    }
    assert_int_equal(import_text(other, "", 0, NULL, NULL, &err), E_FORMAT);
    assert_int_equal(import_text(other, "[]", 2, NULL, NULL, &err), E_FORMAT);
    assert_int_equal(import_text(other, file.data, file.len / 2, NULL, NULL, &err), E_FORMAT);
    // Any single byte changed: an error or a session that fits together, never a crash.
    for (size_t i = 0; i < file.len; i += 7) {
        struct stored_session *s = NULL;
        char kept = file.data[i];
        file.data[i] = (char)(i % 3 == 0 ? '9' : i % 3 == 1 ? '"' : '-');
        if (archive_read(&s, file.data, file.len, NOW_MS, NULL) == 0) stored_session_free(s);
        file.data[i] = kept;
    }
    assert_int_equal(import_text(other, file.data, file.len, NULL, NULL, &err), 0);
    buf_release(&file);
    teardown();
}

// --- databases ---------------------------------------------------------------

static void a_database_that_cannot_take_it_is_named(void **state) {
    struct err err;
    setup();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    struct buf file = exported(fx.path, "s");
    sql(other, "CREATE TABLE recipes (name TEXT)");
    assert_int_equal(import_text(other, file.data, file.len, NULL, NULL, &err), E_FORMAT);
    assert_non_null(strstr(err.text, "belongs to another program"));
    remove_other();
    assert_int_equal(import_text(other, file.data, file.len, NULL, NULL, &err), 0);
    sql(other, "PRAGMA user_version = 99");
    assert_int_equal(import_text(other, file.data, file.len, NULL, NULL, &err), E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "newer Parley (schema 99"));
    // Beside a server, too.
    sql(fx.path, "PRAGMA user_version = 99");
    assert_int_equal(import_text(fx.path, file.data, file.len, NULL, NULL, &err), E_UNSUPPORTED);
    sql(fx.path, "PRAGMA user_version = 1");
    assert_int_equal(import_text("/nowhere/at/all", file.data, file.len, NULL, NULL, &err),
                     E_NOTFOUND);
    buf_release(&file);
    teardown();
}

// Half of it cannot be written, so none of it is.
static void all_or_nothing(void **state) {
    struct err err;
    setup();
    fx_open_session(1, "s");
    fx_turn(1, "s", "one");
    struct buf file = exported(fx.path, "s");
    fx_open_session(1, "t");
    sql(fx.path, "CREATE TRIGGER stop BEFORE INSERT ON events WHEN new.kind = 'done'"
                 " BEGIN SELECT raise(ABORT, 'no more'); END");
    struct archive_import o = {.new_id = true};
    int64_t n = count(fx.path, "search");
    assert_int_equal(import_text(fx.path, file.data, file.len, &o, NULL, &err), E_INTERNAL);
    assert_non_null(strstr(err.text, "no more")); // and not "exists already"
    assert_int_equal(count(fx.path, "sessions"), 2);
    assert_int_equal(count(fx.path, "search"), n);
    buf_release(&file);
    teardown();
}

// The store waits for another process's lock by trying again after each millisecond of nanosleep (sessions/store/lock.c).
// The nanosleep below takes the place of libc's in this program. While pauses_are_short is set it returns at once;
// otherwise it sleeps as libc's does.
static bool pauses_are_short;
static int64_t n_pauses; // atomic: any thread may wait

int nanosleep(const struct timespec *pause, struct timespec *left) {
    if (!__atomic_load_n(&pauses_are_short, __ATOMIC_RELAXED))
        return clock_nanosleep(CLOCK_REALTIME, 0, pause, left) == 0 ? 0 : -1;
    __atomic_add_fetch(&n_pauses, 1, __ATOMIC_RELAXED);
    return 0;
}

static void shorten_pauses(bool on) {
    __atomic_store_n(&pauses_are_short, on, __ATOMIC_RELAXED);
    __atomic_store_n(&n_pauses, 0, __ATOMIC_RELAXED);
}

// While one writes (a guest, or the server's store), the other waits and finally fails with an error.
static void one_writes_at_a_time(void **state) {
    struct err err;
    struct archive_import o = {.new_id = true};
    setup();
    fx_open_session(1, "s");
    struct buf file = exported(fx.path, "s");
    int fd = fx_hold_write_lock();
    shorten_pauses(true);
    assert_int_equal(import_text(fx.path, file.data, file.len, &o, NULL, &err), E_BUSY);
    assert_non_null(strstr(err.text, "locked by another process"));
    assert_true(__atomic_load_n(&n_pauses, __ATOMIC_RELAXED) >= STORE_BUSY_MS); // it had waited
    fx_open_session(1, "t");
    fx_expect_error("store_failed");
    assert_non_null(strstr(fx_last_answer()->message, "locked by another process"));
    shorten_pauses(false);
    close(fd);
    fx_advance(3000000); // the store is asked again, and works
    fx_open_session(1, "u");
    assert_int_equal(fx_get(1, "u")->kind, ANSWER_STATE);
    assert_int_equal(import_text(fx.path, file.data, file.len, &o, NULL, &err), 0);
    buf_release(&file);
    teardown();
}

// A taken number is not reported as a taken id.
static void only_a_taken_id_is_said_to_exist(void **state) {
    struct store_db db;
    struct err err = {0};
    struct session_record r = {.key = 1,
                               .id = (char *)"new",
                               .owner = (char *)"local",
                               .model = (char *)"m",
                               .fingerprint = (char *)"f",
                               .title = (char *)"",
                               .sampling = (char *)"{}"};
    struct session_save save = {.insert = true, .rec = r};
    setup();
    fx_open_session(1, "s");
    sessions_close(fx.ss);
    assert_int_equal(store_db_open(&db, fx.path, &err), 0);
    assert_int_equal(store_write_save(&db, &save, &err), E_INTERNAL);
    assert_non_null(strstr(err.text, "UNIQUE constraint failed: sessions.key"));
    save.rec.key = 2;
    save.rec.id = (char *)"s";
    assert_int_equal(store_write_save(&db, &save, &err), E_EXISTS);
    save.rec.id = (char *)"new";
    assert_int_equal(store_write_save(&db, &save, &err), 0);
    store_db_close(&db, true);
    fx_open();
    teardown();
}

static void a_damaged_session_can_be_removed(void **state) {
    static const char *const damage[] = {"UPDATE turns SET cache_source = 'moon'",
                                         "UPDATE tokens SET logprobs = x'00'", "DELETE FROM tokens",
                                         "DELETE FROM events"};
    for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
        struct err err = {0};
        setup();
        fx_open_session(1, "s");
        fx_turn(1, "s", "one");
        sessions_close(fx.ss);
        sql(fx.path, damage[i]);
        assert_int_equal(archive_remove(fx.path, NULL, "s", &err), 0);
        assert_int_equal(count(fx.path, "sessions"), 0);
        assert_int_equal(count(fx.path, "search"), 0);
        fx_open();
        teardown();
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_bytes_come_back),
        cmocka_unit_test(it_goes_on_where_it_was),
        cmocka_unit_test(a_running_server_finds_it_when_asked),
        cmocka_unit_test(its_watchers_are_told),
        cmocka_unit_test(the_owner_can_be_named),
        cmocka_unit_test(turns_without_an_end_get_one),
        cmocka_unit_test(harm_is_named_and_changes_nothing),
        cmocka_unit_test(a_database_that_cannot_take_it_is_named),
        cmocka_unit_test(all_or_nothing),
        cmocka_unit_test(one_writes_at_a_time),
        cmocka_unit_test(only_a_taken_id_is_said_to_exist),
        cmocka_unit_test(a_damaged_session_can_be_removed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
