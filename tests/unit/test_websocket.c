// A WebSocket library that cannot start: the sentence names what is short, not what is there.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/net/net.h"
#include "ws/net/websocket.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define MAPS_AS_IT_LIKES true // a sanitizer
#else
#define MAPS_AS_IT_LIKES false
#endif

enum outcome { STARTS, NAMES_MEMORY, NAMES_ANOTHER, IS_UNLIMITED };

// The process may map this much more.
static int limit_to(long bytes) {
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%ld", &pages) != 1) return -1;
    fclose(f);
    rlim_t most = (rlim_t)(pages * sysconf(_SC_PAGESIZE) + bytes);
    return setrlimit(RLIMIT_AS, &(struct rlimit){most, RLIM_INFINITY});
}

static enum outcome open_within(long bytes) {
    struct err err;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct net *n = calloc(1, sizeof *n);
        free(malloc(100000)); // the heap has some room, as in a server
        if (!n || uv_loop_init(&n->loop) != 0 || limit_to(bytes) < 0) _exit(IS_UNLIMITED);
        if (websocket_open(n, &err) == 0) _exit(STARTS);
        if (strstr(err.text, "memory") && !strstr(err.text, "installed")) _exit(NAMES_MEMORY);
        fprintf(stderr, "%ld bytes: %s\n", bytes, err.text);
        _exit(NAMES_ANOTHER);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return (enum outcome)WEXITSTATUS(status);
}

static void too_little_memory_is_named(void **state) {
    if (MAPS_AS_IT_LIKES) skip();
    assert_int_equal(open_within(0), NAMES_MEMORY);
    for (long kib = 32; kib < 65536; kib *= 2) {
        enum outcome outcome = open_within(kib << 10);
        assert_true(outcome == STARTS || outcome == NAMES_MEMORY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(too_little_memory_is_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
