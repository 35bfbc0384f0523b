// What a session's link shows: in pieces, until it is taken back; and links through full disks and restarts.
#include "base/json.h"
#include "sessions/archive/archive.h"
#include "sessions/state/share.h"
#include "sessions/store/db.h"
#include "tests/unit/sessions_fixture.h"

#define PIECE_MAX ((size_t)1 << 20) // sessions/requests/transfer.c

static void sql(const char *text) {
    sqlite3 *db;
    assert_int_equal(sqlite3_open(fx.path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) fail_msg("%s", sqlite3_errmsg(db));
    sqlite3_close(db);
}

// Three turns, the second one far longer than a piece: 400,000 times ä" in its message. The head is the last.
#define LONG "replace(hex(zeroblob(400000)), '00', 'ä\"')"
#define DIGEST "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
static void make_long(void) {
    fx_setup_file();
    fx_open_session(1, "s");
    for (int i = 0; i < 3; i++) {
        fx_start(1, "s", i == 0 ? "first" : i == 1 ? "second" : "third");
        fx_run();
    }
    sessions_close(fx.ss);
    sql("UPDATE turns SET input_text = CAST(" LONG " AS BLOB) WHERE turn = 1;"
        "UPDATE sessions SET share = '" DIGEST "'");
}

// The part of what the link shows that begins with a turn of the path; n_pieces: of its text.
static cJSON *read_part(struct store_db *db, size_t first, int *n_pieces) {
    struct buf piece, all;
    struct err err = {0};
    int rc;
    struct store_cursor *c = archive_shared_begin(DIGEST, first);
    buf_init(&all, (size_t)1 << 24);
    *n_pieces = 0;
    do {
        buf_init(&piece, PIECE_MAX);
        rc = c->read(c, db, &piece, &err);
        if (rc < 0) fail_msg("%s", err.text);
        buf_add(&all, piece.data, piece.len);
        buf_release(&piece);
        ++*n_pieces;
    } while (rc > 0);
    cJSON *o = json_parse(all.data, all.len, &json_limits_file, &err);
    if (!o) fail_msg("%s", err.text);
    buf_release(&all);
    c->free(c);
    return o;
}

static void a_long_turn_comes_in_pieces_and_ends_its_part(void **state) {
    struct store_db db;
    struct err err = {0};
    int n;
    make_long();
    assert_int_equal(store_db_open_reader(&db, fx.path, &err), 0);
    cJSON *o = read_part(&db, 0, &n);
    assert_true(n > 4);
    assert_int_equal(cJSON_GetArraySize(o), 3); // title, turns, next
    assert_int_equal(cJSON_GetObjectItem(o, "next")->valueint, 2);
    const cJSON *turns = cJSON_GetObjectItem(o, "turns");
    assert_int_equal(cJSON_GetArraySize(turns), 2);
    assert_string_equal(cJSON_GetObjectItem(turns->child, "input")->valuestring, "first");
    const char *input = cJSON_GetObjectItem(turns->child->next, "input")->valuestring;
    assert_int_equal(strlen(input), 3 * 400000);
    for (size_t i = 0; i < 400000; i++) assert_memory_equal(input + 3 * i, "ä\"", 3);
    for (const cJSON *t = turns->child; t; t = t->next)
        assert_true(strlen(cJSON_GetObjectItem(t, "answer")->valuestring) > 0);
    cJSON_Delete(o);
    o = read_part(&db, 2, &n);
    assert_int_equal(cJSON_GetArraySize(o), 2); // title, turns
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(o, "turns")), 1);
    cJSON_Delete(o);
    o = read_part(&db, 4000000000, &n); // behind the end
    assert_int_equal(cJSON_GetArraySize(o), 2);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(o, "turns")), 0);
    cJSON_Delete(o);
    store_db_close(&db, false);
    fx_open();
    fx_teardown();
}

static void a_link_that_is_taken_back_ends_a_reply_under_way(void **state) {
    struct store_db db;
    struct buf piece;
    struct err err = {0};
    make_long();
    assert_int_equal(store_db_open_reader(&db, fx.path, &err), 0);
    struct store_cursor *c = archive_shared_begin(DIGEST, 0);
    buf_init(&piece, PIECE_MAX);
    assert_int_equal(c->read(c, &db, &piece, &err), 1);
    sql("UPDATE sessions SET share = NULL");
    buf_reset(&piece);
    assert_int_equal(c->read(c, &db, &piece, &err), E_NOTFOUND);
    buf_release(&piece);
    c->free(c);
    store_db_close(&db, false);
    fx_open();
    fx_teardown();
}

static const struct seen_answer *ask_share(enum record_flag share) {
    struct request r = fx_request(1, "share");
    r.kind = REQUEST_UPDATE;
    r.session = "s";
    r.cancel_after_ms = -1;
    r.share = share;
    sessions_submit(fx.ss, &r);
    fx_settle();
    return fx_last_answer();
}

static void a_refused_change_is_undone(void **state) {
    char before[SHARE_DIGEST_LEN + 1];
    fx_setup_file();
    fx_open_session(1, "s");
    fx_disk_full(true);
    ask_share(FLAG_ON);
    assert_string_equal(fx_answer_to("share")->code, "store_failed");
    assert_null(fx_session("s")->rec.share);
    fx_disk_full(false);
    fx_advance(6000000);
    assert_int_equal(ask_share(FLAG_ON)->kind, ANSWER_SHARED);
    strcpy(before, fx_session("s")->rec.share);
    assert_int_equal(strlen(before), SHARE_DIGEST_LEN);
    fx_disk_full(true);
    ask_share(FLAG_OFF);
    assert_string_equal(fx_session("s")->rec.share, before);
    ask_share(FLAG_ON);
    assert_string_equal(fx_session("s")->rec.share, before);
    fx_disk_full(false);
    fx_advance(6000000);
    fx_restart();
    fx_attach(1, "s", 0);
    assert_string_equal(fx_session("s")->rec.share, before);
    ask_share(FLAG_OFF);
    assert_null(fx_session("s")->rec.share);
    fx_restart();
    fx_attach(1, "s", 0);
    assert_null(fx_session("s")->rec.share);
    fx_teardown();
}

static void tokens_are_drawn_and_checked(void **state) {
    char one[SHARE_TOKEN_LEN + 1], other[SHARE_TOKEN_LEN + 1], digest[SHARE_DIGEST_LEN + 1];
    share_draw(one);
    share_draw(other);
    assert_int_equal(strlen(one), SHARE_TOKEN_LEN);
    assert_string_not_equal(one, other);
    assert_int_equal(share_digest(one, digest), 0);
    assert_string_not_equal(one, digest);
    // SHA-256 of 64 zeros, by sha256sum.
    memset(one, '0', SHARE_TOKEN_LEN);
    assert_int_equal(share_digest(one, digest), 0);
    assert_string_equal(digest, "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55");
    one[0] = 'G';
    assert_int_equal(share_digest(one, digest), E_INVAL);
    one[0] = '\0';
    assert_int_equal(share_digest(one, digest), E_INVAL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_turn_comes_in_pieces_and_ends_its_part),
        cmocka_unit_test(a_link_that_is_taken_back_ends_a_reply_under_way),
        cmocka_unit_test(a_refused_change_is_undone),
        cmocka_unit_test(tokens_are_drawn_and_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
