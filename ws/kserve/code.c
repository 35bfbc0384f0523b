// Codes of refusals. See code.h.
#include "ws/kserve/code.h"
#include <string.h>

// The statuses of Triton: INVALID_ARG, NOT_FOUND, UNAVAILABLE, CANCELLED, UNSUPPORTED, INTERNAL.
// Triton has no limits of owners; RESOURCE_EXHAUSTED is gRPC's word for them.
const struct kserve_status kserve_statuses[KSERVE_CODES] = {
    [KSERVE_OK] = {200, 0},           [KSERVE_INVALID] = {400, 3},
    [KSERVE_NOT_FOUND] = {404, 5},    [KSERVE_LIMITED] = {429, 8},
    [KSERVE_UNAVAILABLE] = {503, 14}, [KSERVE_CANCELLED] = {400, 1},
    [KSERVE_UNSUPPORTED] = {501, 12}, [KSERVE_INTERNAL] = {500, 13},
};

int kserve_no_memory(struct err *err) {
    return err_set(err, E_NOMEM, "the server is out of memory");
}

enum kserve_code kserve_code_of_err(const struct err *err) {
    return err->code == E_NOMEM ? KSERVE_UNAVAILABLE : KSERVE_INVALID;
}

enum kserve_code kserve_code_of_session(const char *error_code) {
    static const struct {
        const char *name;
        enum kserve_code code;
    } rows[] = {{"invalid", KSERVE_INVALID},         {"session_full", KSERVE_INVALID},
                {"unsupported", KSERVE_INVALID},     {"session_not_found", KSERVE_INVALID},
                {"session_closed", KSERVE_INVALID},  {"session_busy", KSERVE_UNAVAILABLE},
                {"overloaded", KSERVE_UNAVAILABLE},  {"rate_limited", KSERVE_LIMITED},
                {"limit_reached", KSERVE_LIMITED},   {"shutting_down", KSERVE_UNAVAILABLE},
                {"store_failed", KSERVE_UNAVAILABLE}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, error_code) == 0) return rows[i].code;
    return KSERVE_INTERNAL;
}
