// MPI as the process's: what a launcher (mpirun, srun) says of it, and its start. comm.h declares
// comm_is_launched() and comm_is_follower(), which mpi_process.c has too.
#pragma once
#include "base/err.h"

int mpi_process_job_size(void); // ranks that the launcher started; 1: it does not say

// Starts MPI, once for the process: later calls return 0. at_end runs at exit(). One thread at a time.
// E_DEVICE: MPI does not start. E_UNSUPPORTED: it was built without threads.
int mpi_process_start(void (*at_end)(void), struct err *err);
