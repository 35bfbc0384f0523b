// Limits of control groups, read from folders that look like /sys/fs/cgroup.
#include "base/cgroup.h"
#include "base/memory.h"
#include "tests/cmocka.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB (INT64_C(1) << 20)

static char root[64];

static void put(const char *group, const char *name, const char *text) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s%s", root, group);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s%s/%s", root, group, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_root(void **state) {
    snprintf(root, sizeof root, "%s/cgroup-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -r '%s'", root);
    return system(command);
}

static void no_group_is_no_limit(void **state) {
    struct cgroup_limits l;
    cgroup_limits_of(&l, "/no/such/folder", "/a");
    assert_int_equal(l.bytes_left, -1);
    assert_true(l.processors == 0);
    put("", "memory.max", "max\n");
    put("", "memory.current", "1048576\n");
    put("", "cpu.max", "max 100000\n");
    cgroup_limits_of(&l, root, "/");
    assert_int_equal(l.bytes_left, -1);
    assert_true(l.processors == 0);
}

static void what_is_left_counts_caches_of_files_as_free(void **state) {
    struct cgroup_limits l;
    put("", "memory.max", "104857600\n");
    put("", "memory.current", "62914560\n");
    cgroup_limits_of(&l, root, "/");
    assert_int_equal(l.bytes_left, 40 * MIB);
    put("", "memory.stat", "anon 100\ninactive_file 10485760\nactive_file 10485760\nslab 5\n");
    cgroup_limits_of(&l, root, "/");
    assert_int_equal(l.bytes_left, 60 * MIB);
    put("", "memory.current", "209715200\n"); // above it the kernel reclaims
    cgroup_limits_of(&l, root, "");
    assert_int_equal(l.bytes_left, 0);
}

static void the_smallest_of_all_groups_above_counts(void **state) {
    struct cgroup_limits l;
    put("/a", "memory.max", "83886080\n");
    put("/a", "memory.current", "0\n");
    put("/a", "cpu.max", "400000 100000\n");
    put("/a/b", "memory.max", "max\n");
    put("/a/b", "memory.current", "0\n");
    put("/a/b", "cpu.max", "150000 100000\n");
    cgroup_limits_of(&l, root, "/a/b");
    assert_int_equal(l.bytes_left, 80 * MIB);
    assert_true(l.processors == 1.5);
    cgroup_limits_of(&l, root, "/a");
    assert_true(l.processors == 4);
}

static void rubbish_is_no_limit(void **state) {
    struct cgroup_limits l;
    put("", "memory.max", "many\n");
    put("", "cpu.max", "-5 0\n");
    cgroup_limits_of(&l, root, "/");
    assert_int_equal(l.bytes_left, -1);
    assert_true(l.processors == 0);
}

static void this_process_has_a_processor_and_memory(void **state) {
    assert_true(cgroup_processors() >= 1);
    assert_true(cgroup_processors() <= sysconf(_SC_NPROCESSORS_ONLN));
    assert_true(memory_left() > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_group_is_no_limit, make_root, remove_root),
        cmocka_unit_test_setup_teardown(what_is_left_counts_caches_of_files_as_free, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(the_smallest_of_all_groups_above_counts, make_root,
                                        remove_root),
        cmocka_unit_test_setup_teardown(rubbish_is_no_limit, make_root, remove_root),
        cmocka_unit_test(this_process_has_a_processor_and_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
