// An engine process (`parley engine`): it has an engine's model, device and ranks, and a server has started it
// (engine_options.process). See engine/process/wire.h.
#pragma once

// Its main loop. The exit status: 0: an orderly end; 1: a failure, or not started by a server.
int engine_process_run(void);
