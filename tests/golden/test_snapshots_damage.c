// Damaged snapshots and disks that fail: the snapshot is never used, the fault is always reported,
// and the turn continues.
#include "tests/golden/snapshots_world.h"

#include <signal.h>
#include <sys/resource.h>

// --- files that are not what they should be ------------------------------------------------------

static unsigned char *file_bytes(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    assert_non_null(f);
    assert_int_equal(stat(path, &st), 0);
    unsigned char *bytes = malloc((size_t)st.st_size + 1);
    *n = fread(bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    return bytes;
}

static void put_file(const char *path, const unsigned char *bytes, size_t n) {
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

// The turn that is run with each file, and its result without one.
static struct outcome want;
static void try_turn(struct engine *e, struct outcome *o) {
    int32_t log[300];
    seed = 1; // turn_of's log
    random_log(e, log, 300);
    struct engine_turn t = turn_for(e, 1, log, 90, 0, 4);
    t.n_input = 10;
    t.sampling.max_tokens = 4;
    t.lasting_id = "a";
    run_slowly(e, &t, o);
}

static void is_as_wanted(const struct outcome *o) {
    assert_int_equal(o->n, 4);
    assert_memory_equal(o->ids, want.ids, 4 * sizeof *o->ids);
    assert_memory_equal(o->logprobs, want.logprobs, 4 * sizeof *o->logprobs);
}

// With this file in the snapshot's place the turn is computed, has the right tokens, and the file
// is removed.
static void never_used(const char *dir, const char *what, const char *path,
                       const unsigned char *bytes, size_t n) {
    static struct outcome o;
    put_file(path, bytes, n);
    struct engine *e = open_one(dir, true);
    try_turn(e, &o);
    if (o.source != CACHE_RECOMPUTED || o.n_cached != 0) fail_msg("%s: it was used", what);
    is_as_wanted(&o);
    engine_close(e);
    if (access(path, F_OK) == 0) fail_msg("%s: it is still there", what);
}

static void with_file(void (*fn)(const char *dir, const char *path, const unsigned char *bytes,
                                 size_t n, int64_t block_bytes),
                      const char *dir) {
    char name[SNAPSHOT_NAME_BYTES], path[128];
    size_t n;
    static struct outcome o;
    struct engine *e = open_one(dir, false);
    try_turn(e, &want);
    engine_close(e);
    e = open_one(dir, true);
    turn_of(e, 1, "a", 80, &o);
    assert_true(leave(e, 1, "a"));
    int64_t block_bytes = e->info.block_bytes;
    engine_close(e);
    snapshot_file_name(snapshot_name("a"), name);
    snprintf(path, sizeof path, "%s/%s", folder.path, name);
    unsigned char *bytes = file_bytes(path, &n);
    log_set_level(LOG_OFF);
    fn(dir, path, bytes, n, block_bytes);
    log_set_level(LOG_ERROR);
    // And the undamaged file is good.
    put_file(path, bytes, n);
    e = open_one(dir, true);
    try_turn(e, &o);
    assert_int_equal(o.source, CACHE_SNAPSHOT);
    is_as_wanted(&o);
    engine_close(e);
    free(bytes);
    empty_folder();
}

static void damage(const char *dir, const char *path, const unsigned char *bytes, size_t n,
                   int64_t block_bytes) {
    unsigned char *copy = malloc(n + 100);
    char what[64];
    size_t front = KV_SNAPSHOT_HEAD_BYTES + 80 * 4 + 10 * 16;
    for (size_t at = 0; at < n;) {
        memcpy(copy, bytes, n);
        copy[at] ^= (unsigned char)(1 << at % 8);
        snprintf(what, sizeof what, "byte %zu flipped", at);
        never_used(dir, what, path, copy, n);
        // Many bytes of the front, some of each block; bytes of the gap between them mean nothing.
        at += at < front ? 37 : (size_t)block_bytes / 3 + 1;
        if (at >= front && at < 4096) at = 4096;
    }
    static const size_t lengths[] = {0, 1, 100, 1023, 1024, 1500, 4095, 4096, 4097};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        snprintf(what, sizeof what, "cut to %zu bytes", lengths[i]);
        never_used(dir, what, path, bytes, lengths[i]);
    }
    never_used(dir, "one byte less", path, bytes, n - 1);
    memcpy(copy, bytes, n);
    memset(copy + n, 0, 100);
    never_used(dir, "100 bytes more", path, copy, n + 100);
    memset(copy, 0, n);
    never_used(dir, "zeros", path, copy, n);
    free(copy);
}

static void test_damage(void **state) {
    with_file(damage, *state);
}

// Every checksum is right, and still it is not ours.
static void forged(const char *dir, const char *path, const unsigned char *bytes, size_t n,
                   int64_t block_bytes) {
    unsigned char *copy = malloc(n);
    for (int i = 0; i < 16; i++) {
        struct kv_snapshot_head h;
        char what[32];
        assert_int_equal(kv_snapshot_read_head(&h, bytes, n, NULL), 0);
        switch (i) {
        case 0:
            strcpy(h.maker.model, "0123");
            break;
        case 1:
            h.maker.tokenizer ^= 1;
            break;
        case 2:
            strcpy(h.maker.dtype, "bf16");
            break;
        case 3:
            strcpy(h.maker.backend, "cpu: AVX-4096");
            break;
        case 4:
            strcpy(h.maker.build, "1");
            break;
        case 5:
            h.maker.n_layers++;
            break;
        case 6:
            h.maker.n_kv_heads++;
            break;
        case 7:
            h.maker.head_dim++;
            break;
        case 8:
            h.maker.block_tokens = 16;
            break;
        case 9:
            h.memory_len--;
            break;
        case 10:
            h.sink_len++;
            break;
        case 11:
            strcpy(h.id, "b");
            break;
        case 12:
            h.n_tokens = KV_SNAPSHOT_MAX_TOKENS;
            break;
        case 13:
            h.n_blocks--;
            break;
        case 14:
            h.maker.block_bytes *= 2;
            break;
        case 15:
            h.table_sum++;
            break;
        }
        memcpy(copy, bytes, n);
        kv_snapshot_write_head(&h, copy);
        snprintf(what, sizeof what, "forged %d", i);
        never_used(dir, what, path, copy, n);
    }
    // Another log's tokens, and another order of blocks, each with its sums.
    struct kv_snapshot_head h;
    int32_t ids[80];
    struct kv_snapshot_block blocks[10];
    assert_int_equal(kv_snapshot_read_head(&h, bytes, n, NULL), 0);
    assert_int_equal(h.n_tokens, 80);
    assert_int_equal(h.n_blocks, 10);
    const unsigned char *table = bytes + KV_SNAPSHOT_HEAD_BYTES;
    assert_int_equal(kv_snapshot_read_table(&h, table, ids, blocks, NULL), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kv_snapshot_read_table(&h, table, ids, blocks, NULL), 0);
        if (i == 0) ids[0]++;
        if (i == 1) { // in each other's place
            uint64_t sum = blocks[3].sum;
            blocks[3].sum = blocks[4].sum, blocks[4].sum = sum;
            memcpy(copy, bytes, n);
            memcpy(copy + kv_snapshot_data_at(&h) + 3 * block_bytes,
                   bytes + kv_snapshot_data_at(&h) + 4 * block_bytes, (size_t)block_bytes);
            memcpy(copy + kv_snapshot_data_at(&h) + 4 * block_bytes,
                   bytes + kv_snapshot_data_at(&h) + 3 * block_bytes, (size_t)block_bytes);
        } else {
            memcpy(copy, bytes, n);
        }
        if (i == 2) blocks[5].number = 4;
        kv_snapshot_write_table(&h, ids, blocks, copy + KV_SNAPSHOT_HEAD_BYTES);
        kv_snapshot_write_head(&h, copy);
        never_used(dir, "forged table", path, copy, n);
        h.table_sum = 0;
        assert_int_equal(kv_snapshot_read_head(&h, bytes, n, NULL), 0);
    }
    free(copy);
}

static void test_forged(void **state) {
    with_file(forged, *state);
}

static void swapped(const char *dir, const char *path, const unsigned char *bytes, size_t n,
                    int64_t block_bytes) {
    char name[SNAPSHOT_NAME_BYTES], other[128];
    static struct outcome o;
    snapshot_file_name(snapshot_name("b"), name);
    snprintf(other, sizeof other, "%s/%s", folder.path, name);
    unlink(path);
    put_file(other, bytes, n);
    struct engine *e = open_one(dir, true);
    assert_false(engine_has_snapshot(e, "a") || engine_has_snapshot(e, "b"));
    turn_of(e, 1, "b", 90, &o); // the very log
    assert_int_equal(o.source, CACHE_RECOMPUTED);
    engine_close(e);
    assert_int_not_equal(access(other, F_OK), 0);
    // The file is replaced while the server runs.
    put_file(path, bytes, n);
    e = open_one(dir, true);
    assert_int_equal(rename(path, other), 0);
    turn_of(e, 1, "a", 90, &o);
    assert_int_equal(o.source, CACHE_RECOMPUTED);
    assert_true(leave(e, 1, "a"));
    engine_close(e);
    // Files of other programs are left alone; half-written ones are removed.
    put_file(tmp_path(&folder, "notes.txt"), bytes, 10);
    put_file(tmp_path(&folder, "0123456789abcdef0123456789abcdef.kv.tmp"), bytes, 10);
    e = open_one(dir, true);
    engine_close(e);
    assert_int_equal(access(tmp_path(&folder, "notes.txt"), F_OK), 0);
    assert_int_not_equal(access(tmp_path(&folder, "0123456789abcdef0123456789abcdef.kv.tmp"), F_OK),
                         0);
}

static void test_swapped(void **state) {
    with_file(swapped, *state);
}

// --- disks that do not take it -------------------------------------------------------------------

static void test_disks_that_fail(void **state) {
    static struct outcome o;
    struct rlimit was, little = {.rlim_cur = 5000};
    struct engine *e = open_one(*state, true);
    turn_of(e, 1, "a", 80, &o);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little.rlim_max = was.rlim_max;
    signal(SIGXFSZ, SIG_IGN); // for what this program itself says to a file
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    bool written = leave(e, 1, "a");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_false(written);
    turn_of(e, 1, "a", 90, &o);
    assert_int_equal(o.source, CACHE_RECOMPUTED);
    assert_true(leave(e, 1, "a")); // the disk has room again
    turn_of(e, 1, "a", 100, &o);
    assert_int_equal(o.source, CACHE_SNAPSHOT);
    // The folder is gone.
    empty_folder();
    (void)leave(e, 1, "a"); // there was one before
    turn_of(e, 1, "a", 110, &o);
    assert_int_equal(o.source, CACHE_RECOMPUTED);
    assert_false(engine_has_snapshot(e, "a"));
    log_set_level(LOG_ERROR);
    engine_close(e);
}

int main(void) {
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        OF("qwen3", test_damage),
        OF("qwen3", test_forged),
        OF("qwen3", test_swapped),
        OF("qwen3", test_disks_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
