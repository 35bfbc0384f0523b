// A file of many large blocks, as of a real model: written, and read back by several threads at
// once. Damage is found in its block, before that block or a later one is reported as read.
#include "engine/cache/snapshot_file.h"
#include "tests/cmocka.h"
#include "tests/unit/tmp_dir.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 44, BYTES = 1 << 20, TOKENS = BLOCKS * 16 };

static struct tmp_dir folder;
static int dir_fd;
static char *written, *got;

static void fill(char *p, uint64_t seed) {
    for (size_t i = 0; i < BYTES; i += sizeof seed) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        memcpy(p + i, &seed, sizeof seed);
    }
}

static struct snapshot_job *job(enum snapshot_task task, char *memory) {
    struct snapshot_job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    *j = (struct snapshot_job){
        .task = task, .dir_fd = dir_fd, .name = snapshot_name("one"), .fd = -1};
    if (!memory) return j;
    j->memory = malloc(BLOCKS * sizeof *j->memory);
    for (int i = 0; i < BLOCKS; i++) j->memory[i] = memory + (size_t)i * BYTES;
    return j;
}

static struct snapshot_job *write_job(void) {
    struct snapshot_job *j = job(SNAPSHOT_WRITE, written);
    j->head = (struct kv_snapshot_head){.id = "one",
                                        .maker = {.n_layers = 1,
                                                  .n_groups = 1,
                                                  .n_kv_heads = 1,
                                                  .head_dim = 64,
                                                  .block_tokens = 16,
                                                  .block_bytes = BYTES},
                                        .memory_len = TOKENS,
                                        .n_tokens = TOKENS,
                                        .n_blocks = BLOCKS};
    j->ids = calloc(TOKENS, sizeof *j->ids);
    j->blocks = calloc(BLOCKS, sizeof *j->blocks);
    for (int i = 0; i < BLOCKS; i++) {
        fill(written + (size_t)i * BYTES, (uint64_t)i);
        j->blocks[i].number = (uint64_t)i;
    }
    return j;
}

static void write_file(void) {
    struct snapshot_job *j = write_job();
    j->until = BLOCKS;
    snapshot_job_run(j);
    if (j->rc < 0) fail_msg("%s", j->why.text);
    snapshot_job_free(j);
}

// Opened, and then every step-th block of it read into `got`.
static struct snapshot_job *read_file(int step, bool stop) {
    struct snapshot_job *open = job(SNAPSHOT_OPEN, NULL), *j = job(SNAPSHOT_READ, got);
    snapshot_job_run(open);
    assert_int_equal(open->rc, 0);
    j->head = open->head;
    j->blocks = open->blocks;
    j->fd = open->fd;
    open->blocks = NULL, open->fd = -1;
    snapshot_job_free(open);
    j->wanted = malloc(BLOCKS * sizeof *j->wanted);
    for (int i = 0; i < BLOCKS; i += step) j->wanted[j->n_wanted++] = i;
    j->until = j->n_wanted;
    atomic_store(&j->stop, stop);
    memset(got, 0, (size_t)BLOCKS * BYTES);
    snapshot_job_run(j);
    return j;
}

static void with_byte(int64_t at, unsigned char xor) {
    char name[SNAPSHOT_NAME_BYTES];
    unsigned char byte;
    snapshot_file_name(snapshot_name("one"), name);
    int fd = openat(dir_fd, name, O_RDWR);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= xor;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void test_what_is_written_is_read(void **state) {
    write_file();
    for (int step = 1; step <= BLOCKS; step = step * 3 + 1) {
        struct snapshot_job *j = read_file(step, false);
        assert_int_equal(j->rc, 0);
        assert_int_equal(atomic_load(&j->n_done), j->n_wanted);
        assert_int_equal(j->bytes, (int64_t)j->n_wanted * BYTES);
        for (int i = 0; i < j->n_wanted; i++)
            assert_memory_equal(got + (size_t)i * BYTES, written + (size_t)i * step * BYTES, BYTES);
        snapshot_job_free(j);
    }
}

static void test_damage_is_noticed_where_it_is(void **state) {
    static const int places[] = {0, 1, 7, 8, 9, 31, 32, 33, 43};
    write_file();
    struct snapshot_job *j = read_file(1, false);
    int64_t data = (int64_t)kv_snapshot_data_at(&j->head);
    snapshot_job_free(j);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char word[32];
        int64_t at = data + (int64_t)places[i] * BYTES + 77777 * (int64_t)i % BYTES;
        with_byte(at, 1);
        j = read_file(1, false);
        assert_int_equal(j->rc, E_CORRUPT);
        assert_string_equal(j->reason, "damaged");
        snprintf(word, sizeof word, "block %d ", places[i]);
        assert_non_null(strstr(j->why.text, word));
        assert_true(atomic_load(&j->n_done) <= places[i]);
        snapshot_job_free(j);
        with_byte(at, 1);
    }
    j = read_file(1, false);
    assert_int_equal(j->rc, 0);
    snapshot_job_free(j);
}

static bool exists(const char *ending) {
    char name[SNAPSHOT_NAME_BYTES], path[SNAPSHOT_NAME_BYTES + 8];
    snapshot_file_name(snapshot_name("one"), name);
    snprintf(path, sizeof path, "%s%s", name, ending);
    return faccessat(dir_fd, path, F_OK, 0) == 0;
}

static void remove_file(void) {
    char name[SNAPSHOT_NAME_BYTES];
    snapshot_file_name(snapshot_name("one"), name);
    unlinkat(dir_fd, name, 0);
}

// The file has its name only after the last piece; a job that ends before leaves nothing.
static void test_pieces(void **state) {
    static const int pieces[] = {0, 1, 8, 8, 30, BLOCKS};
    static char piece[BLOCKS * BYTES];
    for (int cut = 0; cut < 2; cut++) {
        struct snapshot_job *j = write_job();
        remove_file();
        for (size_t i = 0; i < sizeof pieces / sizeof *pieces - (size_t)cut; i++) {
            assert_false(exists(""));
            j->until = pieces[i];
            for (int b = j->at; b < j->until; b++) {
                j->memory[b] = piece + (size_t)(b - j->at) * BYTES;
                memcpy(j->memory[b], written + (size_t)b * BYTES, BYTES);
            }
            snapshot_job_run(j);
            assert_int_equal(j->rc, 0);
            assert_int_equal(j->at, pieces[i]);
        }
        assert_int_equal(exists(""), !cut);
        assert_int_equal(exists(".tmp"), cut);
        if (cut) snapshot_job_fail(j, E_CANCELLED, "it ends");
        snapshot_job_free(j);
        assert_false(exists(".tmp"));
        if (cut) continue;
        j = read_file(1, false);
        assert_int_equal(j->rc, 0);
        assert_memory_equal(got, written, (size_t)BLOCKS * BYTES);
        snapshot_job_free(j);
    }
}

static void test_broken_off(void **state) {
    char name[SNAPSHOT_NAME_BYTES];
    write_file();
    struct snapshot_job *j = read_file(1, true);
    assert_int_equal(j->rc, E_CANCELLED);
    assert_int_equal(atomic_load(&j->n_done), 0);
    // It becomes shorter after it has been opened.
    snapshot_job_free(j);
    struct snapshot_job *open = job(SNAPSHOT_OPEN, NULL);
    snapshot_job_run(open);
    assert_int_equal(open->rc, 0);
    snapshot_file_name(open->name, name);
    int fd = openat(dir_fd, name, O_RDWR);
    assert_int_equal(ftruncate(fd, (off_t)kv_snapshot_data_at(&open->head) + 40 * BYTES - 1), 0);
    close(fd);
    j = job(SNAPSHOT_READ, got);
    j->head = open->head;
    j->blocks = open->blocks;
    j->fd = open->fd;
    open->blocks = NULL, open->fd = -1;
    snapshot_job_free(open);
    j->wanted = malloc(BLOCKS * sizeof *j->wanted);
    for (int i = 0; i < BLOCKS; i++) j->wanted[j->n_wanted++] = i;
    j->until = BLOCKS;
    snapshot_job_run(j);
    assert_int_equal(j->rc, E_CORRUPT);
    assert_int_equal(atomic_load(&j->n_done), 32); // of the piece before
    assert_non_null(strstr(j->why.text, "cut off"));
    snapshot_job_free(j);
}

static int set_up(void **state) {
    // The disk's speed cannot be tested here
    strcpy(folder.path, "/dev/shm/parley-test-XXXXXX");
    if (!mkdtemp(folder.path)) tmp_dir_open(&folder);
    dir_fd = open(folder.path, O_RDONLY | O_DIRECTORY);
    written = malloc((size_t)BLOCKS * BYTES);
    got = malloc((size_t)BLOCKS * BYTES);
    return dir_fd >= 0 && written && got ? 0 : -1;
}

static int tear_down(void **state) {
    free(written);
    free(got);
    close(dir_fd);
    tmp_dir_close(&folder);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_written_is_read),
        cmocka_unit_test(test_damage_is_noticed_where_it_is),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_broken_off),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
