// Enums as words, for the wire, logs and metrics.
#include "engine/engine.h"

const char *engine_finish_name(enum engine_finish f) {
    static const char *const names[] = {
        [FINISH_EOS] = "eos",           [FINISH_STOP] = "stop",
        [FINISH_LENGTH] = "length",     [FINISH_CANCELLED] = "cancelled",
        [FINISH_DEADLINE] = "deadline", [FINISH_ERROR] = "error",
        [FINISH_SHUTDOWN] = "shutdown", [FINISH_YIELDED] = "yielded",
    };
    return (unsigned)f < sizeof names / sizeof *names ? names[f] : "unknown";
}

const char *engine_cache_source_name(enum engine_cache_source s) {
    static const char *const names[] = {
        [CACHE_NONE] = "none", [CACHE_KEPT] = "kept",         [CACHE_RECOMPUTED] = "recomputed",
        [CACHE_HOST] = "host", [CACHE_SNAPSHOT] = "snapshot",
    };
    return (unsigned)s < sizeof names / sizeof *names ? names[s] : "unknown";
}
