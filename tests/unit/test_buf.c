// Buffers: growth up to the cap, the sticky error, taking, reading files.
#include "base/buf.h"
#include "base/err.h"
#include "tests/cmocka.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void adds_and_terminates(void **state) {
    struct buf b;
    buf_init(&b, 1000);
    assert_string_equal(buf_z(&b), "");
    assert_int_equal(buf_addz(&b, "ab"), 0);
    assert_int_equal(buf_addc(&b, 'c'), 0);
    assert_int_equal(buf_add(&b, "d\0e", 3), 0);
    assert_int_equal(buf_addf(&b, "%d-%s", 42, "x"), 0);
    assert_int_equal(b.len, 10);
    assert_memory_equal(b.data, "abcd\0e42-x", 11);
    buf_reset(&b);
    assert_string_equal(buf_z(&b), "");
    assert_true(b.cap > 0);
    buf_release(&b);
}

static void grows_to_the_cap_and_no_further(void **state) {
    struct buf b;
    buf_init(&b, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(buf_addc(&b, (char)('a' + i % 26)), 0);
    assert_true(b.cap <= 1001);
    assert_int_equal(buf_addc(&b, 'x'), E_LIMIT);
    assert_int_equal(b.len, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(b.data[i], 'a' + i % 26);
    buf_release(&b);
}

static void error_sticks_until_reset(void **state) {
    struct buf b;
    buf_init(&b, 8);
    buf_addz(&b, "12345");
    assert_int_equal(buf_addz(&b, "6789"), E_LIMIT);
    assert_int_equal(buf_addz(&b, "6"), E_LIMIT); // would fit, but something is missing before it
    assert_int_equal(buf_addf(&b, "%d", 6), E_LIMIT);
    assert_string_equal(buf_z(&b), "12345");
    assert_int_equal(b.error, E_LIMIT);
    assert_null(buf_take(&b, NULL));
    buf_reset(&b);
    assert_int_equal(buf_addz(&b, "12345678"), 0);
    buf_release(&b);
}

static void formatted_add_that_fails_leaves_nothing(void **state) {
    struct buf b;
    buf_init(&b, 8);
    buf_addz(&b, "1234");
    assert_int_equal(buf_addf(&b, "%s", "too long for it"), E_LIMIT);
    assert_string_equal(buf_z(&b), "1234");
    assert_int_equal(b.len, 4);
    buf_release(&b);
}

static void formatted_add_of_any_length(void **state) {
    char text[300];
    for (size_t n = 0; n < sizeof text; n++) { // crosses every size of the allocation
        memset(text, 'x', n);
        text[n] = '\0';
        struct buf b;
        buf_init(&b, 10000);
        buf_addz(&b, "<");
        assert_int_equal(buf_addf(&b, "%s>", text), 0);
        assert_int_equal(b.len, n + 2);
        assert_int_equal(strlen(b.data), n + 2);
        assert_int_equal(b.data[n + 1], '>');
        buf_release(&b);
    }
}

static void sizes_near_the_end_of_size_t_are_refused(void **state) {
    struct buf b;
    buf_init(&b, SIZE_MAX);
    buf_addz(&b, "abc");
    assert_int_equal(buf_reserve(&b, SIZE_MAX), E_LIMIT);
    buf_reset(&b);
    buf_addz(&b, "abc");
    assert_int_equal(buf_reserve(&b, SIZE_MAX - 3), E_LIMIT);
    buf_release(&b);
}

static void remove_front_keeps_the_rest(void **state) {
    struct buf b;
    buf_init(&b, 100);
    buf_remove_front(&b, 3);
    buf_addz(&b, "abcdef");
    buf_remove_front(&b, 0);
    assert_string_equal(buf_z(&b), "abcdef");
    buf_remove_front(&b, 2);
    assert_string_equal(buf_z(&b), "cdef");
    buf_remove_front(&b, 99);
    assert_string_equal(buf_z(&b), "");
    assert_int_equal(b.len, 0);
    buf_release(&b);
}

static void take_gives_the_bytes_away(void **state) {
    struct buf b;
    size_t len = 99;
    buf_init(&b, 100);
    char *empty = buf_take(&b, &len);
    assert_string_equal(empty, "");
    assert_int_equal(len, 0);
    buf_addz(&b, "hello");
    char *data = buf_take(&b, &len);
    assert_string_equal(data, "hello");
    assert_int_equal(len, 5);
    assert_int_equal(b.len, 0);
    assert_null(b.data);
    assert_int_equal(buf_addz(&b, "again"), 0);
    free(empty);
    free(data);
    buf_release(&b);
}

static void doubles_in_the_fewest_digits(void **state) {
    static const struct {
        double v;
        const char *text;
    } rows[] = {{0, "0"},
                {0.1, "0.1"},
                {-2.5, "-2.5"},
                {1e21, "1e+21"},
                {3, "3"},
                {NAN, "NaN"},
                {INFINITY, "+Inf"},
                {-INFINITY, "-Inf"},
                {0.30000000000000004, "0.30000000000000004"}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct buf b;
        buf_init(&b, 100);
        assert_int_equal(buf_add_double(&b, rows[i].v), 0);
        assert_string_equal(buf_z(&b), rows[i].text);
        buf_release(&b);
    }
}

// --- files ---

static char folder[64];

static const char *make_file(const char *name, size_t size) {
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    for (size_t i = 0; i < size; i++) fputc((int)(i * 7 % 251), f);
    fclose(f);
    return path;
}

static void files_up_to_the_limit_are_read_whole(void **state) {
    static const size_t sizes[] = {0, 1, 63, 64, 65, 4096, 100000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct buf b;
        struct err err;
        const char *path = make_file("f", sizes[i]);
        assert_int_equal(buf_read_file(&b, path, sizes[i], &err), 0); // exactly at the limit
        assert_int_equal(b.len, sizes[i]);
        assert_true(b.cap <= sizes[i] + 64); // a big file is not given twice its size
        for (size_t k = 0; k < b.len; k++) assert_int_equal((unsigned char)b.data[k], k * 7 % 251);
        buf_release(&b);
        if (sizes[i] == 0) continue;
        assert_int_equal(buf_read_file(&b, path, sizes[i] - 1, &err), E_LIMIT);
        assert_non_null(strstr(err.text, path));
        buf_release(&b);
    }
}

// Two pipes: one with bytes, whose writer stays open, as /dev/fd/N; and a named one without a writer,
// which open(2) would wait for.
struct pipes {
    int fds[2];
    char paths[2][96];
};
static void pipes_make(struct pipes *p) {
    assert_int_equal(pipe(p->fds), 0);
    assert_int_equal(write(p->fds[1], "half", 4), 4);
    snprintf(p->paths[0], sizeof p->paths[0], "/dev/fd/%d", p->fds[0]);
    snprintf(p->paths[1], sizeof p->paths[1], "%s/fifo", folder);
    assert_int_equal(mkfifo(p->paths[1], 0600), 0);
}
static void pipes_close(struct pipes *p) {
    unlink(p->paths[1]);
    close(p->fds[0]);
    close(p->fds[1]);
}

static void expect_failure(int rc, int code, struct buf *b, const struct err *err, const char *path,
                           const char *why) {
    assert_int_equal(rc, code);
    assert_non_null(strstr(err->text, path));
    assert_non_null(strstr(err->text, why));
    buf_release(b);
}

static void pipes_and_devices_are_refused_at_once(void **state) {
    struct pipes p;
    pipes_make(&p);
    const char *const paths[] = {p.paths[0], p.paths[1], "/dev/zero"};
    for (int i = 0; i < 3; i++) {
        struct buf b;
        struct err err;
        int rc = buf_read_file(&b, paths[i], 1 << 20, &err);
        expect_failure(rc, E_INVAL, &b, &err, paths[i], "is not a regular file");
    }
    pipes_close(&p);
}

// A child writes n bytes into path's pipe (a shell's <(command)), in pieces, and ends.
static pid_t write_in_child(int fd, size_t n) {
    pid_t child = fork();
    if (child != 0) return child;
    char byte;
    for (size_t i = 0; i < n; i++) {
        byte = (char)(i * 7 % 251);
        if (write(fd, &byte, 1) != 1) break;
    }
    _exit(0);
}

static void a_pipe_that_a_person_names_is_read_to_its_end(void **state) {
    static const struct {
        size_t n, max;
        int code;
    } cases[] = {{0, 100000, 0},
                 {1, 100000, 0},
                 {70000, 100000, 0},
                 {100000, 100000, 0},
                 {70000, 69999, E_LIMIT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf b;
        struct err err;
        int fds[2];
        char path[32];
        assert_int_equal(pipe(fds), 0);
        snprintf(path, sizeof path, "/dev/fd/%d", fds[0]);
        pid_t child = write_in_child(fds[1], cases[i].n);
        assert_true(child > 0);
        close(fds[1]);
        assert_int_equal(buf_read_file_or_pipe(&b, path, cases[i].max, 60000, &err), cases[i].code);
        close(fds[0]); // a writer that is refused ends by SIGPIPE
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (cases[i].code == 0) assert_int_equal(b.len, cases[i].n);
        for (size_t k = 0; cases[i].code == 0 && k < b.len; k++)
            assert_int_equal((unsigned char)b.data[k], k * 7 % 251);
        buf_release(&b);
    }
}

static void a_pipe_that_does_not_end_is_given_up(void **state) {
    struct pipes p;
    pipes_make(&p);
    for (int i = 0; i < 2; i++) {
        struct buf b;
        struct err err;
        int rc = buf_read_file_or_pipe(&b, p.paths[i], 100, 20, &err);
        expect_failure(rc, E_TIMEOUT, &b, &err, p.paths[i], "has not ended after 20 ms");
    }
    pipes_close(&p);
}

static void a_named_file_may_be_regular_but_no_device(void **state) {
    struct buf b;
    struct err err;
    const char *path = make_file("f", 300);
    assert_int_equal(buf_read_file_or_pipe(&b, path, 300, 1, &err), 0);
    assert_int_equal(b.len, 300);
    buf_release(&b);
    assert_int_equal(buf_read_file_or_pipe(&b, "/dev/zero", 300, 1, &err), E_INVAL);
    assert_non_null(strstr(err.text, "is not a regular file"));
    buf_release(&b);
}

static void what_cannot_be_read_says_why(void **state) {
    struct buf b;
    struct err err;
    assert_int_equal(buf_read_file(&b, "/no/such/file", 10, &err), E_NOTFOUND);
    assert_string_equal(err.text, "/no/such/file: No such file or directory");
    buf_release(&b);
    assert_int_equal(buf_read_file(&b, folder, 10, &err), E_INVAL);
    assert_non_null(strstr(err.text, "is a folder"));
    buf_release(&b);
}

static int make_folder(void **state) {
    strcpy(folder, "/tmp/test_buf.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    char path[128];
    snprintf(path, sizeof path, "%s/f", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_and_terminates),
        cmocka_unit_test(grows_to_the_cap_and_no_further),
        cmocka_unit_test(error_sticks_until_reset),
        cmocka_unit_test(formatted_add_that_fails_leaves_nothing),
        cmocka_unit_test(formatted_add_of_any_length),
        cmocka_unit_test(sizes_near_the_end_of_size_t_are_refused),
        cmocka_unit_test(remove_front_keeps_the_rest),
        cmocka_unit_test(take_gives_the_bytes_away),
        cmocka_unit_test(doubles_in_the_fewest_digits),
        cmocka_unit_test(files_up_to_the_limit_are_read_whole),
        cmocka_unit_test(pipes_and_devices_are_refused_at_once),
        cmocka_unit_test(a_pipe_that_a_person_names_is_read_to_its_end),
        cmocka_unit_test(a_pipe_that_does_not_end_is_given_up),
        cmocka_unit_test(a_named_file_may_be_regular_but_no_device),
        cmocka_unit_test(what_cannot_be_read_says_why),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
