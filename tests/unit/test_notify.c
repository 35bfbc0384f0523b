// The service manager's side is a datagram socket of the test's own: at a path, and an abstract
// one.
#include "base/err.h"
#include "tests/cmocka.h"
#include "ws/notify.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int clear(void **state) {
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    return 0;
}

static int manager(const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
    memcpy(at.sun_path, name, strlen(name));
    if (name[0] == '@') at.sun_path[0] = '\0';
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, len), 0);
    setenv("NOTIFY_SOCKET", name, 1);
    return fd;
}

static void expect(int fd, const char *want) {
    char got[256];
    ssize_t n = recv(fd, got, sizeof got, MSG_DONTWAIT);
    assert_int_equal(n, strlen(want));
    assert_memory_equal(got, want, strlen(want));
}

static void a_manager_gets_each_state(void **state) {
    char path[80], abstract[80];
    snprintf(path, sizeof path, "/tmp/parley-notify-%d", (int)getpid());
    snprintf(abstract, sizeof abstract, "@parley-notify-%d", (int)getpid());
    const char *names[] = {path, abstract};
    for (int i = 0; i < 2; i++) {
        int fd = manager(names[i]);
        assert_int_equal(notify_send("READY=1\nSTATUS=Serving"), 0);
        assert_int_equal(notify_send("WATCHDOG=1"), 0);
        expect(fd, "READY=1\nSTATUS=Serving");
        expect(fd, "WATCHDOG=1");
        close(fd);
        assert_int_equal(notify_send("STOPPING=1"), E_IO); // the manager has gone
    }
    unlink(path);
}

static void a_manager_that_does_not_read_blocks_nothing(void **state) {
    char name[80];
    snprintf(name, sizeof name, "@parley-notify-full-%d", (int)getpid());
    int fd = manager(name), n = 0;
    while (n < 100000 && notify_send("WATCHDOG=1") == 0) n++;
    assert_in_range(n, 1, 99999);
    close(fd);
}

static void without_a_manager_nothing_is_sent(void **state) {
    assert_int_equal(notify_send("READY=1"), 1);
    setenv("NOTIFY_SOCKET", "", 1);
    assert_int_equal(notify_send("READY=1"), 1);
    setenv("NOTIFY_SOCKET", "relative", 1);
    assert_int_equal(notify_send("READY=1"), E_INVAL);
    setenv("NOTIFY_SOCKET", "@", 1);
    assert_int_equal(notify_send("READY=1"), E_INVAL);
    char long_path[200] = "/";
    memset(long_path + 1, 'x', sizeof long_path - 2);
    setenv("NOTIFY_SOCKET", long_path, 1);
    assert_int_equal(notify_send("READY=1"), E_INVAL);
    setenv("NOTIFY_SOCKET", "/nowhere/at/all", 1);
    assert_int_equal(notify_send("READY=1"), E_IO);
}

static void the_watchdog_is_for_one_process(void **state) {
    char pid[32];
    assert_false(notify_is_watched());
    setenv("WATCHDOG_USEC", "0", 1);
    assert_false(notify_is_watched());
    setenv("WATCHDOG_USEC", "60000000", 1);
    assert_true(notify_is_watched());
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_true(notify_is_watched());
    setenv("WATCHDOG_PID", "1", 1);
    assert_false(notify_is_watched());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_manager_gets_each_state, clear),
        cmocka_unit_test_setup(a_manager_that_does_not_read_blocks_nothing, clear),
        cmocka_unit_test_setup(without_a_manager_nothing_is_sent, clear),
        cmocka_unit_test_setup(the_watchdog_is_for_one_process, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
