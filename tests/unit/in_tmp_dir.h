// One scratch folder for all tests of a program: cmocka_run_group_tests(tests, setup, teardown).
#pragma once
#include "tests/unit/tmp_dir.h"

static struct tmp_dir dir;

static int setup(void **state) {
    tmp_dir_open(&dir);
    return 0;
}
static int teardown(void **state) {
    tmp_dir_close(&dir);
    return 0;
}
