// Every rank but the leader: a loop that receives plans and runs them on its device. It reads no clock
// and decides nothing. See lead.h for the other side.
#pragma once

// Runs until the leader ends it. 0: an orderly end; 1: a failure, after a sentence on stderr. The
// process is then to exit at once (_exit where 1: MPI must not wait for ranks that are gone).
int rank_run(void);
