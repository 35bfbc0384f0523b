// For LD_PRELOAD: each fsync of a file or folder under a folder named "snapshots" takes half a second longer.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int fsync(int fd) {
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    if (strstr(path, "/snapshots")) usleep(500000);
    return (int)syscall(SYS_fsync, fd);
}
