// Sends one datagram to the service manager's socket. See notify.h.
#include "ws/notify.h"
#include "base/err.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int notify_send(const char *state) {
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (!path || !path[0]) return 1;
    size_t len = strlen(path);
    if ((path[0] != '/' && path[0] != '@') || len < 2 || len >= sizeof to.sun_path) return E_INVAL;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@') to.sun_path[0] = '\0'; // an abstract address has no file
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return E_IO;
    socklen_t to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    ssize_t n = sendto(fd, state, strlen(state), MSG_DONTWAIT | MSG_NOSIGNAL,
                       (const struct sockaddr *)&to, to_len);
    close(fd);
    return n < 0 ? E_IO : 0;
}

bool notify_is_watched(void) {
    const char *interval = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!interval || strtoll(interval, NULL, 10) <= 0) return false;
    return !pid || strtoll(pid, NULL, 10) == getpid();
}
