// Every rank except the leader: a loop that receives plans and runs them on its device. It reads no clock
// and decides nothing. See lead.h for the other side.
#pragma once

// Runs until the leader ends it. 0: an orderly end; 1: a failure, after a sentence on stderr. The caller
// then exits at once (after 1 by _exit, so that MPI does not wait for ranks that are gone).
int rank_run(void);
