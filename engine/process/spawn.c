// See spawn.h.
#include "engine/process/spawn.h"
#include "engine/process/wire.h"
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

extern char **environ;

static int spawn(const char *program, int socket, int memory, pid_t *pid, struct err *err) {
    char *const argv[] = {(char *)"parley", (char *)"engine", NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setsigmask(&attr, &none);
    posix_spawnattr_setsigdefault(&attr, &all);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int rc = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    if (rc == 0) rc = posix_spawn_file_actions_adddup2(&files, socket, WIRE_SOCKET);
    if (rc == 0) rc = posix_spawn_file_actions_adddup2(&files, memory, WIRE_MEMORY);
    if (rc == 0) rc = posix_spawn(pid, program, &files, &attr, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attr);
    if (rc == 0) return 0;
    *pid = 0;
    return err_set(err, E_DEVICE, "the engine process cannot start: %s: %s", program, strerror(rc));
}

// The child's end is open in the child alone: when that is gone, reading says so.
int spawn_process(const char *program, int memory, pid_t *pid, int *fd, struct err *err) {
    int fds[2];
    *pid = 0;
    *fd = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
        return err_errno(err, "no socket for an engine process");
    int theirs = fcntl(fds[1], F_DUPFD_CLOEXEC, SPAWN_HIGH_FD);
    close(fds[1]);
    *fd = fds[0];
    if (theirs < 0) return err_errno(err, "no descriptor for an engine process");
    int rc = spawn(program, theirs, memory, pid, err);
    close(theirs);
    return rc;
}

int spawn_memory(size_t n_bytes, int *fd, void **at, struct err *err) {
    int low = memfd_create("parley-load", MFD_CLOEXEC);
    *fd = low < 0 ? -1 : fcntl(low, F_DUPFD_CLOEXEC, SPAWN_HIGH_FD);
    if (low >= 0) close(low);
    void *map = MAP_FAILED;
    if (*fd >= 0 && ftruncate(*fd, (off_t)n_bytes) == 0)
        map = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (map == MAP_FAILED) return err_errno(err, "no memory to share with an engine process");
    *at = map;
    return 0;
}
