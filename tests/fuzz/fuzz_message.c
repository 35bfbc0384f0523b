// Messages of clients. An accepted one can be released; a refusal has one of the protocol's codes.
#include "engine/engine.h"
#include "tests/fuzz/fuzz.h"
#include "ws/parley/protocol.h"
#include <stdlib.h>

// A message that is released drops the model that its opening may hold. No message here holds one, so the functions of an
// engine that placement.c asks are never called: they end the program. The targets' library has no engine; the program of
// walk.c has one and may take its functions.
__attribute__((weak)) const struct engine_info *engine_info(const struct engine *e) {
    (void)e;
    abort();
}
__attribute__((weak)) bool engine_has_snapshot(const struct engine *e, const char *lasting_id) {
    (void)e, (void)lasting_id;
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const codes[] = {"bad_json", "bad_message", "unknown_type",
                                        "invalid",  "too_large",   "internal"};
    struct message m = {0};
    struct err err = {0};
    const char *code = NULL;
    size_t i = 0;
    int rc = message_decode(&m, (const char *)data, size, &json_limits_message, 1000, &code, &err);
    fuzz_check_err(rc, &err);
    if (rc < 0) {
        FUZZ_CHECK(code);
        while (i < sizeof codes / sizeof *codes && strcmp(codes[i], code) != 0) i++;
        FUZZ_CHECK(i < sizeof codes / sizeof *codes && strcmp(code, "internal") != 0);
    }
    FUZZ_CHECK(strlen(m.request.request_id) <= SESSION_REQUEST_ID_MAX);
    message_release(&m);
    return 0;
}
