// The engine's load, for any thread. The engine's thread writes it.
#pragma once
#include "engine/engine.h"
#include <stdatomic.h>

struct core_load { // written by the engine's thread, read by any
    struct {
        _Atomic int32_t running, queued, paused;
    } turns[ENGINE_N_PRIORITIES];
    _Atomic int32_t sequences, blocks_free, blocks_idle, parked, host_blocks_free, snapshots;
    _Atomic int64_t snapshot_bytes;
    _Atomic int64_t steps, step_us_ewma, heartbeat_us;
    _Atomic bool device_lost;
    char why_lost[256];         // how the device failed; written once, before says_why
    _Atomic bool says_why;      // why_lost can be read
    _Atomic int32_t drawing_on; // the core that is drawing tokens; -1: none
};
