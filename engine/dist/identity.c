// See identity.h.
#include "engine/dist/identity.h"
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

void identity_take(struct identity *me) {
    struct stat ns = {0};
    cpu_set_t set;
    char name[40] = "";
    *me = (struct identity){.pid = getpid()};
    gethostname(name, sizeof name - 1);
    (void)stat("/proc/self/ns/pid", &ns);
    snprintf(me->host, sizeof me->host, "%s %llu", name, (unsigned long long)ns.st_ino);
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set)) me->cpus = me->cpus * 1000003 + (uint64_t)i + 1;
}

void identity_program(char *path, size_t cap) {
    ssize_t n = readlink("/proc/self/exe", path, cap - 1);
    path[n > 0 ? n : 0] = '\0';
    if (access(path, X_OK) < 0) snprintf(path, cap, "/proc/%d/exe", (int)getpid());
}
