// Where caches are: the list of idle sequences, the counts by state, and that illegal changes of
// state are caught.
#include "engine/cache/caches.h"
#include "tests/cmocka.h"
#include <sys/wait.h>
#include <unistd.h>

static struct caches c;
static struct engine_metrics metrics;

static int set_up(void **state) {
    c = (struct caches){.metrics = &metrics};
    return 0;
}

static struct sequence *add(uint64_t id) {
    struct sequence *s = caches_find_or_add(&c, id);
    assert_non_null(s);
    return s;
}

static int tear_down(void **state) {
    struct sequence *s, *next;
    HASH_ITER(hh, c.sequences, s, next) {
        HASH_DEL(c.sequences, s);
        sequence_free(s);
    }
    return 0;
}

static void test_idle_list_is_least_recently_used(void **state) {
    struct sequence *one = add(1), *two = add(2), *three = add(3);
    assert_null(c.idle);
    cache_idle_add(&c, one);
    cache_idle_add(&c, two);
    cache_idle_add(&c, three);
    cache_idle_add(&c, one); // used again
    assert_int_equal(c.n_idle, 3);
    assert_ptr_equal(c.idle, two);
    cache_idle_remove(&c, two);
    cache_idle_remove(&c, two);
    assert_ptr_equal(c.idle, three);
    assert_int_equal(c.n_idle, 2);
    cache_idle_remove(&c, three);
    cache_idle_remove(&c, one);
    assert_null(c.idle);
    assert_int_equal(c.n_idle, 0);
}

// The life of one cache: through host memory and back, beside a step, and from a snapshot.
static void test_each_change_is_counted(void **state) {
    static const struct {
        enum cache_state to;
        int n_parked;
    } life[] = {
        {CACHE_DEVICE, 0},  {CACHE_COPYING, 0},  {CACHE_CLEAN, 0},   {CACHE_PARKED, 1},
        {CACHE_WAITING, 1}, {CACHE_LOADING, 1},  {CACHE_PARKED, 1},  {CACHE_WAITING, 1},
        {CACHE_LOADING, 1}, {CACHE_STEPPING, 1}, {CACHE_DEVICE, 0},  {CACHE_PARKING, 0},
        {CACHE_PARKED, 1},  {CACHE_OPENING, 1},  {CACHE_WAITING, 1}, {CACHE_READING, 0},
        {CACHE_LOADING, 0}, {CACHE_CLEAN, 0},    {CACHE_DEVICE, 0},  {CACHE_DEVICE_ONLY, 0},
        {CACHE_EMPTY, 0},   {CACHE_OPENING, 0},  {CACHE_WAITING, 0}, {CACHE_EMPTY, 0},
    };
    struct sequence *s = add(1);
    add(2);
    assert_int_equal(c.n_in[CACHE_EMPTY], 2);
    for (size_t i = 0; i < sizeof life / sizeof *life; i++) {
        enum cache_state from = s->state;
        cache_set(&c, s, life[i].to);
        assert_int_equal(s->state, life[i].to);
        assert_int_equal(c.n_in[from], from == CACHE_EMPTY);
        assert_int_equal(c.n_in[s->state], 1 + (s->state == CACHE_EMPTY));
        assert_int_equal(c.tiers.n_parked, life[i].n_parked);
        if (cache_is_resuming(s->state) && !cache_is_resuming(from))
            assert_int_equal(s->back_to, from);
    }
}

static bool dies(enum cache_state from, enum cache_state to) {
    int status;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(STDERR_FILENO);
        struct sequence s = {.state = from};
        cache_set(&c, &s, to);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void test_illegal_changes_are_caught(void **state) {
    static const enum cache_state illegal[][2] = {
        {CACHE_EMPTY, CACHE_CLEAN},      {CACHE_EMPTY, CACHE_STEPPING},
        {CACHE_DEVICE, CACHE_PARKED},    {CACHE_PARKED, CACHE_LOADING},
        {CACHE_PARKED, CACHE_CLEAN},     {CACHE_OPENING, CACHE_READING},
        {CACHE_WAITING, CACHE_STEPPING}, {CACHE_READING, CACHE_PARKED},
        {CACHE_STEPPING, CACHE_LOADING},
    };
    for (size_t i = 0; i < sizeof illegal / sizeof *illegal; i++)
        assert_true(dies(illegal[i][0], illegal[i][1]));
    for (int from = 0; from < CACHE_N_STATES; from++) // a cache may be dropped wherever it is
        assert_false(dies((enum cache_state)from, CACHE_EMPTY));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_idle_list_is_least_recently_used, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_each_change_is_counted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_illegal_changes_are_caught, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
