// Deltas that were sent are found again, however the process ended: the tail, its records, and how
// the next start recovers them.
#include "base/json.h"
#include "sessions/archive/archive.h"
#include "sessions/saving/save.h"
#include "sessions/saving/tail_writer.h"
#include "sessions/store/tail.c"
#include "tests/unit/sessions_fixture.h"

#define SAMPLING "{\"top_logprobs\":2,\"logprobs\":true,\"seed\":\"9\"}"

static void setup(enum sessions_durable durable, int64_t commit_interval_us) {
    char path[200];
    snprintf(path, sizeof path, "%s/parley-test-%ld.db",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (long)getpid());
    fx_settings(path);
    fx_remove_files();
    fx.o.durable = durable;
    fx.o.commit_interval_us = commit_interval_us;
    fx_open();
}

static char *with_suffix(const char *suffix) {
    static char path[2][300];
    static int which;
    which ^= 1;
    snprintf(path[which], sizeof path[which], "%s%s", fx.path, suffix);
    return path[which];
}

static void teardown(void) {
    unlink(with_suffix(".tail"));
    fx_teardown();
    unlink(with_suffix(".tail"));
}

static struct buf bytes_of(const char *suffix) {
    struct buf b;
    if (buf_read_file(&b, with_suffix(suffix), 1 << 28, NULL) < 0) buf_reset(&b);
    return b;
}
static void put_bytes(const char *suffix, const struct buf *b, size_t len) {
    FILE *f = fopen(with_suffix(suffix), "wb");
    assert_non_null(f);
    if (len) assert_int_equal(fwrite(b->data, 1, len, f), len);
    fclose(f);
}

// The files as kill -9 leaves them. (The shared-memory file is rebuilt.)
static struct image { struct buf db, wal, tail; } taken;
static void take_image(void) {
    taken.db = bytes_of(""), taken.wal = bytes_of("-wal"), taken.tail = bytes_of(".tail");
}
static void release_image(void) {
    buf_release(&taken.db), buf_release(&taken.wal), buf_release(&taken.tail);
}
static void start_from_image(size_t tail_len) {
    if (fx.ss) sessions_close(fx.ss);
    fx.ss = NULL;
    fx_forget_clients();
    fx_remove_files();
    put_bytes("", &taken.db, taken.db.len);
    put_bytes("-wal", &taken.wal, taken.wal.len);
    put_bytes(".tail", &taken.tail, tail_len);
    fake_reset();
    fx_open();
}

// A turn of 40 tokens, cut off after 12 steps, of which nothing but the start is committed.
static struct seen_turn cut_off_turn(void) {
    fx_open_session(1, "s");
    fx_turn(1, "s", "before");
    fake.default_tokens = 40;
    fx_start_with(1, "s", "long", SAMPLING, false, "q1");
    fx_settle();
    for (int i = 0; i < 12; i++) {
        clock_fake_advance(&fx.clock, 1000);
        fx_step();
    }
    struct seen_turn seen = fx_follower(1, "s")->turns[1];
    assert_true(seen.n_ids >= 10); // told at once
    take_image();
    return seen;
}

static void expect_beginning(const struct seen_turn *seen, const struct seen_turn *kept, size_t n) {
    assert_true(kept->n_ids >= n);
    size_t both = seen->n_ids < kept->n_ids ? seen->n_ids : kept->n_ids;
    assert_memory_equal(kept->ids, seen->ids, both * sizeof *seen->ids);
    assert_memory_equal(kept->logprobs, seen->logprobs, both * sizeof *seen->logprobs);
    size_t text = seen->text_len < kept->text_len ? seen->text_len : kept->text_len;
    assert_memory_equal(kept->text, seen->text, text);
}

static void what_was_told_is_there_after_kill_9(void **state) {
    setup(DURABLE_DELTA, 10000000);
    struct seen_turn seen = cut_off_turn();
    start_from_image(taken.tail.len);
    fx_attach(2, "s", 0);
    struct follower *f = fx_follower(2, "s");
    struct seen_turn *kept = &f->turns[1];
    assert_string_equal(kept->finish, "interrupted");
    expect_beginning(&seen, kept, seen.n_ids);
    assert_int_equal(kept->text_len >= seen.text_len, true);
    assert_int_equal(kept->numbers.output_tokens, kept->n_ids);
    fx_turn(2, "s", "it goes on");
    assert_true(f->turns[2].done);
    struct archive *a; // alternatives were recovered too, and the record as a whole is consistent
    struct stored_session *s;
    assert_int_equal(archive_open(&a, fx.path, NULL), 0);
    assert_int_equal(archive_load(a, NULL, "s", &s, NULL), 0);
    assert_non_null(s->turns[1].tokens.alternatives);
    stored_session_free(s);
    archive_close(a);
    fx_restart();
    assert_int_equal(fx_get(1, "s")->n_turns, 3);
    release_image();
    teardown();
}

// With the tail cut anywhere or any byte changed, exactly the records before the damage count.
static void a_torn_or_damaged_tail_gives_what_is_whole(void **state) {
    setup(DURABLE_DELTA, 10000000);
    struct seen_turn seen = cut_off_turn();
    size_t len = taken.tail.len, last = 0;
    for (size_t cut = 0; cut <= len; cut += len - cut > 37 || cut == len ? 37 : len - cut) {
        start_from_image(cut);
        fx_attach(2, "s", 0);
        size_t n = fx_follower(2, "s")->turns[1].n_ids;
        assert_true(n >= last);
        expect_beginning(&seen, &fx_follower(2, "s")->turns[1], 0);
        last = n;
    }
    assert_true(last >= seen.n_ids);
    for (size_t at = 0; at < len; at += 41) {
        taken.tail.data[at] ^= 0x10;
        start_from_image(len);
        fx_attach(2, "s", 0);
        expect_beginning(&seen, &fx_follower(2, "s")->turns[1], 0);
        taken.tail.data[at] ^= 0x10;
    }
    release_image();
    teardown();
}

// Power loss may bring back an old tail: one of another turn of the same number, or one with a gap.
static void records_of_something_else_are_left_alone(void **state) {
    struct head h;
    setup(DURABLE_DELTA, 10000000);
    cut_off_turn();
    static const size_t fields[] = {offsetof(struct head, key), offsetof(struct head, turn),
                                    offsetof(struct head, created_ms), offsetof(struct head, seed),
                                    offsetof(struct head, first)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        struct buf tail;
        buf_init(&tail, 1 << 20);
        buf_add(&tail, taken.tail.data, taken.tail.len);
        for (size_t at = 0; at < tail.len; at += h.bytes) {
            memcpy(&h, tail.data + at, sizeof h);
            tail.data[at + fields[i]]++;
            size_t skip = offsetof(struct head, key);
            h.crc = (uint32_t)crc32(0, (unsigned char *)tail.data + at + skip, h.bytes - skip);
            memcpy(tail.data + at + offsetof(struct head, crc), &h.crc, sizeof h.crc);
        }
        struct buf kept = taken.tail;
        taken.tail = tail;
        start_from_image(tail.len);
        taken.tail = kept;
        fx_attach(2, "s", 0);
        assert_int_equal(fx_follower(2, "s")->turns[1].n_ids, 0);
        assert_string_equal(fx_follower(2, "s")->turns[1].finish, "interrupted");
        buf_release(&tail);
    }
    release_image();
    teardown();
}

// The last tokens may be told while the end waits for its commit: they are safe, too.
static void tokens_that_come_with_the_end_are_kept(void **state) {
    setup(DURABLE_DELTA, 10000000);
    fx_open_session(1, "s");
    fake.default_tokens = 3;
    fx_start(1, "s", "short");
    fx_settle();
    for (int i = 0; i < 8; i++) fake_step(); // all of it waits as events
    sessions_poll(fx.ss);                    // told up to the end, which is not saved yet
    take_image();
    struct seen_turn seen = fx_follower(1, "s")->turns[0];
    assert_int_equal(seen.n_ids, 3);
    fx_settle();
    start_from_image(taken.tail.len);
    fx_attach(2, "s", 0);
    expect_beginning(&seen, &fx_follower(2, "s")->turns[0], 3);
    release_image();
    teardown();
}

// Three sessions with a long turn each, whose clients are 1 to 3.
static const char *const three[] = {"s0", "s1", "s2"};

static void start_three(void) {
    for (uint64_t i = 0; i < 3; i++) {
        fx_open_session(i + 1, three[i]);
        fake.default_tokens = 1500;
        fx_start(i + 1, three[i], "long");
    }
    fx_settle();
}

static void see_three(struct seen_turn *seen) {
    for (uint64_t i = 0; i < 3; i++) seen[i] = fx_follower(i + 1, three[i])->turns[0];
}

static void expect_three_after_a_restart(const struct seen_turn *seen) {
    start_from_image(taken.tail.len);
    for (uint64_t i = 0; i < 3; i++) {
        fx_attach(i + 4, three[i], 0);
        expect_beginning(&seen[i], &fx_follower(i + 4, three[i])->turns[0], seen[i].n_ids);
    }
}

static void many_sessions_and_a_tail_that_is_rewritten(void **state) {
    struct seen_turn seen[3];
    setup(DURABLE_DELTA, 10000000);
    start_three();
    int64_t largest = 0;
    for (int i = 0; i < 1200; i++) {
        fx_step();
        if (i % 100 == 99) { // a commit of all
            for (int k = 0; k < 3; k++) save_now(fx_session(three[k]));
            fx_settle();
        }
        if (i == 600) tail_writer_trim(fx.ss, true);
        if (tail_bytes(fx.ss->tail) > largest) largest = tail_bytes(fx.ss->tail);
    }
    see_three(seen);
    take_image();
    fx_run();
    assert_int_equal(tail_bytes(fx.ss->tail), 0); // all of it is committed
    expect_three_after_a_restart(seen);
    release_image();
    teardown();
}

// While turns run, uncommitted records are rewritten alternately in two places of the file. After
// `rounds` rewrites the process dies: when the last one is complete, or in its middle (torn), when
// only its first bytes are in the file.
static void cross(int rounds, bool torn) {
    struct seen_turn seen[3];
    setup(DURABLE_DELTA, 10000000);
    start_three();
    int fd = fx.ss->tail->fd;
    struct buf before = {0};
    for (int round = 0; round < rounds; round++) {
        // Fewer in each round, so that old records remain after the new ones
        for (int i = 0; i < 40 - round; i++) fx_step();
        save_now(fx_session(three[round % 3])); // of one of them all is committed
        fx_settle();
        int64_t bytes = tail_bytes(fx.ss->tail), base = fx.ss->tail->base;
        buf_release(&before);
        before = bytes_of(".tail");
        tail_writer_trim(fx.ss, false);
        assert_int_equal(fx.ss->tail->base, base ? 0 : HALF_BYTES);
        assert_int_equal(fx.ss->tail->fd, fd); // no new file
        assert_in_range(tail_bytes(fx.ss->tail), 1, bytes - 1);
    }
    for (int i = 0; !torn && i < 3; i++) fx_step();
    see_three(seen);
    take_image();
    if (torn) {
        size_t at = (size_t)fx.ss->tail->base;
        while (before.len < at + 100) buf_addc(&before, '\0');
        memcpy(before.data + at, taken.tail.data + at, 100);
        buf_release(&taken.tail);
        taken.tail = before;
        before = (struct buf){0};
    }
    buf_release(&before);
    expect_three_after_a_restart(seen);
    release_image();
    teardown();
}

static void going_over_to_the_other_half(void **state) {
    for (int rounds = 1; rounds < 6; rounds++) {
        cross(rounds, false);
        cross(rounds, true);
    }
}

// No room for the tail: deltas wait for their commit, and are sent then.
static void without_a_tail_deltas_wait_for_their_commit(void **state) {
    setup(DURABLE_DELTA, 1000000);
    fx_open_session(1, "s");
    fake.default_tokens = 40;
    const char *reason;
    int full = open("/dev/full", O_WRONLY), there = dup(fx.ss->tail->fd);
    assert_true(full >= 0 && there >= 0);
    assert_true(sessions_tail_ok(fx.ss, &reason));
    assert_true(dup2(full, fx.ss->tail->fd) >= 0);
    close(full);
    fx_start(1, "s", "long");
    fx_settle();
    for (int i = 0; i < 12; i++) fx_step();
    assert_int_equal(fx_follower(1, "s")->turns[0].n_ids, 0);
    fx_advance(1000002);
    assert_true(fx_follower(1, "s")->turns[0].n_ids >= 10);
    assert_false(sessions_tail_ok(fx.ss, &reason));
    assert_null(strstr(reason, fx.path));
    assert_non_null(strstr(reason, "No space left"));
    assert_true(sessions_store_ok(fx.ss, NULL));
    take_image();
    struct seen_turn seen = fx_follower(1, "s")->turns[0];
    fx_run();
    assert_true(fx_follower(1, "s")->turns[0].done);
    assert_false(sessions_tail_ok(fx.ss, NULL)); // emptying it says nothing about the disk
    fx_advance(10000000);
    assert_false(sessions_tail_ok(fx.ss, NULL));
    assert_true(dup2(there, fx.ss->tail->fd) >= 0);
    close(there);
    fx_advance(2000001); // noticed without a request
    assert_true(sessions_tail_ok(fx.ss, NULL));
    assert_int_equal(tail_bytes(fx.ss->tail), 0);
    fx_turn(1, "s", "with room again");
    assert_true(sessions_tail_ok(fx.ss, NULL));
    start_from_image(0);
    fx_attach(2, "s", 0);
    expect_beginning(&seen, &fx_follower(2, "s")->turns[0], seen.n_ids);
    release_image();
    teardown();
}

static void with_power_nothing_is_told_before_its_commit(void **state) {
    setup(DURABLE_POWER, 10000000);
    fx_open_session(1, "s");
    fake.default_tokens = 40;
    fx_start(1, "s", "long");
    fx_settle();
    for (int i = 0; i < 12; i++) {
        fake_step();
        sessions_poll(fx.ss);
        struct session *s = fx_session("s");
        assert_true(fx_follower(1, "s")->last <= s->saved_seq);
        fx_settle();
        assert_true(fx_follower(1, "s")->last == s->saved_seq); // and soon after
    }
    struct seen_turn seen = fx_follower(1, "s")->turns[0];
    assert_true(seen.n_ids >= 10);
    take_image();
    assert_int_equal(taken.tail.len, 0);
    fx_run();
    start_from_image(0);
    fx_attach(2, "s", 0);
    expect_beginning(&seen, &fx_follower(2, "s")->turns[0], seen.n_ids);
    release_image();
    teardown();
}

static bool tail_has(const char *word) {
    struct buf b = bytes_of(".tail");
    bool has = b.len && memmem(b.data, b.len, word, strlen(word));
    buf_release(&b);
    return has;
}

static void words_of_a_deleted_session_leave_it(void **state) {
    struct err err = {0};
    setup(DURABLE_DELTA, 10000000);
    fx_open_session(2, "other");
    struct seen_turn seen = cut_off_turn();
    char word[16];
    snprintf(word, sizeof word, "w%d ", seen.ids[3] % 7 ? seen.ids[3] : seen.ids[4]);
    bool had = tail_has(word);
    fake.default_tokens = 1000;
    // With a random seed, one run in a hundred drew the word here too.
    fx_start_with(2, "other", "runs on, so that the tail is not emptied for that",
                  "{\"seed\":\"1\"}", false, NULL);
    fx_settle();
    for (int i = 0; i < 5; i++) fx_step();
    fx_close(1, "s", true);
    for (int i = 0; i < 5; i++) fx_step();
    assert_true(had);
    const struct seen_turn *other = &fx_follower(2, "other")->turns[0];
    for (size_t i = 0; i < other->n_ids; i++) assert_int_not_equal(other->ids[i], atoi(word + 1));
    assert_false(tail_has(word));
    assert_true(tail_bytes(fx.ss->tail) > 0);
    // A tool that removes one after a crash empties it first.
    start_from_image(taken.tail.len);
    sessions_close(fx.ss);
    fx.ss = NULL;
    put_bytes("", &taken.db, taken.db.len);
    put_bytes("-wal", &taken.wal, taken.wal.len);
    put_bytes(".tail", &taken.tail, taken.tail.len);
    unlink(with_suffix("-shm"));
    assert_true(tail_has(word));
    assert_int_equal(archive_remove(fx.path, NULL, "s", &err), 0);
    assert_false(tail_has(word));
    fx_open();
    release_image();
    teardown();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_told_is_there_after_kill_9),
        cmocka_unit_test(a_torn_or_damaged_tail_gives_what_is_whole),
        cmocka_unit_test(records_of_something_else_are_left_alone),
        cmocka_unit_test(tokens_that_come_with_the_end_are_kept),
        cmocka_unit_test(many_sessions_and_a_tail_that_is_rewritten),
        cmocka_unit_test(going_over_to_the_other_half),
        cmocka_unit_test(without_a_tail_deltas_wait_for_their_commit),
        cmocka_unit_test(with_power_nothing_is_told_before_its_commit),
        cmocka_unit_test(words_of_a_deleted_session_leave_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
