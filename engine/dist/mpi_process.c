// See mpi_process.h.
#include "engine/dist/comm.h"

#if PARLEY_MPI
#include "engine/dist/mpi_process.h"
#include <errno.h>
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { FOLDER_MIB = 32 }; // Open MPI 4.1 with PMIx 4 was seen to take 17, and to hang with less

static int variable(const char *name, int missing) {
    const char *text = getenv(name);
    return text && *text ? atoi(text) : missing;
}

// Asked once, before MPI starts: it sets such variables itself.
bool comm_is_launched(void) {
    static bool asked, is_launched;
    if (asked) return is_launched;
    asked = true;
    is_launched = getenv("OMPI_COMM_WORLD_SIZE") ||
                  (getenv("PMIX_RANK") && variable("SLURM_STEP_NUM_TASKS", 1) > 1);
    return is_launched;
}

bool comm_is_follower(void) {
    return comm_is_launched() && variable("OMPI_COMM_WORLD_RANK", variable("PMIX_RANK", 0)) > 0;
}

int mpi_process_job_size(void) {
    return variable("OMPI_COMM_WORLD_SIZE", variable("SLURM_STEP_NUM_TASKS", 1));
}

// Of what the environment leaves open: ranks of one machine talk over its loopback alone, may be more
// than its cores, and may run as root, as the command that starts them already does.
static void set_defaults(void) {
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 0);
    setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
    setenv("OMPI_MCA_btl_tcp_if_include", "lo", 0);
    setenv("OMPI_MCA_oob_tcp_if_include", "lo", 0);
    // A step's plan for hundreds of sessions goes at once; a longer message waits for its receiver first.
    setenv("OMPI_MCA_btl_vader_eager_limit", "32768", 0);
    setenv("OMPI_MCA_orte_execute_quiet", "1", 0); // no remark that MPI_Finalize was left out
    // A rank that is killed ends neither its leader nor the ranks of other instances.
    setenv("OMPI_MCA_orte_enable_recovery", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
}

// Where Open MPI keeps the sockets and shared memory of its ranks.
static const char *folder_of_ranks(void) {
    static const char *const names[] = {"TMPDIR", "TEMP", "TMP"}; // in Open MPI's order
    const char *dir = NULL;
    for (int i = 0; i < 3 && !dir; i++) dir = getenv(names[i]);
    return dir && *dir ? dir : "/tmp";
}

// Without room there, Open MPI ends the process, or hangs, and does not say why.
static int check_folder(struct err *err) {
    const char *dir = folder_of_ranks();
    char probe[PATH_MAX];
    bool fits = snprintf(probe, sizeof probe, "%s/parley-XXXXXX", dir) < (int)sizeof probe;
    if (!fits) errno = ENAMETOOLONG;
    if (!fits || (mkdir(dir, 0700) < 0 && errno != EEXIST) || !mkdtemp(probe))
        return err_set(err, E_DEVICE,
                       "Open MPI has no folder for the ranks' sockets: %.200s: %s; set TMPDIR to a "
                       "folder that can be written",
                       dir, strerror(errno));
    rmdir(probe);
    struct statvfs room;
    if (statvfs(dir, &room) < 0 || room.f_bavail >= ((size_t)FOLDER_MIB << 20) / room.f_frsize)
        return 0;
    return err_set(err, E_DEVICE,
                   "Open MPI has too little room for the ranks' sockets and memory: %.200s has %zu "
                   "KiB of %d MiB; set TMPDIR to a folder with more",
                   dir, (size_t)room.f_bavail * room.f_frsize >> 10, FOLDER_MIB);
}

int mpi_process_start(void (*at_end)(void), struct err *err) {
    static bool is_up;
    int provided = 0;
    if (is_up) return 0;
    if (!comm_is_launched()) {
        set_defaults();
        TRY(check_folder(err));
    }
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided) != MPI_SUCCESS)
        return err_set(err, E_DEVICE, "MPI does not start");
    is_up = true;
    atexit(at_end);
    if (provided < MPI_THREAD_MULTIPLE)
        return err_set(err, E_UNSUPPORTED, "this MPI was built without threads");
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    return 0;
}
#endif
