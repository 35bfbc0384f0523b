// Checks of the machine: descriptors, priority, processors, NUMA, huge pages. See doctor.h.
#include "base/cgroup.h"
#include "ws/cli/doctor.h"
#include "ws/net/net.h"
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define HUGE_PAGES "/sys/kernel/mm/transparent_hugepage/enabled"
#define GOVERNOR "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
enum { CAPABILITY_SYS_NICE = 23 }; // linux/capability.h

void doctor_read_line(const char *path, char *out, int bytes) {
    FILE *file = fopen(path, "re");
    out[0] = '\0';
    if (!file) return;
    if (!fgets(out, bytes, file)) out[0] = '\0';
    out[strcspn(out, "\n")] = '\0';
    fclose(file);
}

void doctor_check_descriptors(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "descriptors";
    struct rlimit r;
    char fix[160];
    long long want = (long long)net_descriptors(c);
    if (getrlimit(RLIMIT_NOFILE, &r) != 0) return;
    if (r.rlim_max == RLIM_INFINITY || (long long)r.rlim_max >= want) {
        finding_add(f, FINDING_OK, subject, NULL, "%lld for %lld connections", want,
                    (long long)c->max_connections);
        return;
    }
    snprintf(fix, sizeof fix,
             "LimitNOFILE=%lld in the systemd unit, or `ulimit -n %lld` as root, or fewer "
             "max_connections",
             want, want);
    finding_add(f, FINDING_ADVICE, subject, fix,
                "%lld may be open, and %lld connections take %lld: the last ones are refused",
                (long long)r.rlim_max, (long long)c->max_connections, want);
}

static bool may_run_ahead(void) {
    struct rlimit r;
    char line[128];
    unsigned long long effective = 0;
    if (getrlimit(RLIMIT_RTPRIO, &r) == 0 && r.rlim_cur >= 1) return true;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "CapEff: %llx", &effective) == 1) break;
    if (file) fclose(file);
    return effective >> CAPABILITY_SYS_NICE & 1;
}

void doctor_check_priority(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "priority";
    if (!c->run_ahead)
        finding_add(f, FINDING_OK, subject, NULL, "run_ahead is off");
    else if (may_run_ahead())
        finding_add(f, FINDING_OK, subject, NULL, "network and database threads may run ahead");
    else
        finding_add(f, FINDING_ADVICE, subject,
                    "LimitRTPRIO=1 in the systemd unit, or `setcap cap_sys_nice+ep` on the program",
                    "this user may not let the network run ahead of compute threads: under load a "
                    "token reaches its client some milliseconds later");
}

void doctor_check_processors(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "processors";
    int n = cgroup_processors();
    char governor[64];
    if (c->model.threads > n)
        finding_add(f, FINDING_ADVICE, subject, "set threads to 0",
                    "threads is %lld, and this process may use %d: threads that wait for each "
                    "other are slower than fewer",
                    (long long)c->model.threads, n);
    else
        finding_add(f, FINDING_OK, subject, NULL, "%lld of %d are used",
                    (long long)(c->model.threads ? c->model.threads : n), n);
    doctor_read_line(GOVERNOR, governor, sizeof governor);
    if (!strcmp(governor, "powersave") || !strcmp(governor, "conservative"))
        finding_add(f, FINDING_ADVICE, subject, "cpupower frequency-set -g performance",
                    "the frequency governor is %s: the first tokens after a pause are slow",
                    governor);
}

void doctor_check_numa(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "numa";
    glob_t nodes;
    size_t n =
        glob("/sys/devices/system/node/node[0-9]*", 0, NULL, &nodes) == 0 ? nodes.gl_pathc : 1;
    if (n > 0) globfree(&nodes);
    if (n <= 1 || !strncmp(c->model.device, "cuda", 4))
        finding_add(f, FINDING_OK, subject, NULL, n <= 1 ? "one node" : "the model is on a GPU");
    else
        finding_add(f, FINDING_ADVICE, subject,
                    "numactl --cpunodebind=0 --membind=0 parley serve ..., if the model fits there",
                    "%zu nodes: threads that read another node's memory are slower", n);
}

void doctor_check_huge_pages(struct findings *f, const struct serve_config *c) {
    static const char subject[] = "huge pages";
    char state[64];
    (void)c;
    doctor_read_line(HUGE_PAGES, state, sizeof state);
    if (strstr(state, "[never]"))
        finding_add(f, FINDING_ADVICE, subject, "echo madvise | sudo tee " HUGE_PAGES,
                    "they are off: weights on the CPU are read more slowly");
    else
        finding_add(f, FINDING_OK, subject, NULL, "%s",
                    state[0] ? "programs get them on request" : "this kernel has none to turn on");
}
